from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Terms:
    count: int
    def __init__(self, slots: NDArray[np.uint64], ends: NDArray[np.uint32], text: NDArray[np.uint8]) -> None: ...

class Grams:
    features: int
    def __init__(
        self,
        analyzer: int,
        lower: bool,
        accents: Callable[[str], str] | None,
        shortest: int,
        least: int,
        most: int,
        vocabulary: Terms | None,
        stopped: Terms | None,
        features: int,
        signed: bool,
        binary: bool,
        logs: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None,
        idf: NDArray[np.float64] | None,
        norm: int,
        scale: float,
    ) -> None: ...
    def row(self, text: str) -> bytes: ...

class Scorer:
    def __init__(self, grams: tuple[Grams, ...], weights: NDArray[np.float64]) -> None: ...
    def add(
        self,
        texts: Sequence[str],
        sums: NDArray[np.float64],
        tables: tuple[tuple[dict[Any, Any], dict[Any, Any]] | None, ...],
    ) -> int: ...

def logistic(numbers: NDArray[np.float64]) -> None: ...
