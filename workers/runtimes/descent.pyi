from typing import Any

import numpy as np
from numpy.typing import NDArray

class Descent:
    features: int
    outputs: int
    def __init__(
        self,
        roots: NDArray[np.intp],
        feature: NDArray[np.intp],
        threshold: NDArray[np.float64],
        left: NDArray[np.intp],
        missing_right: NDArray[np.uint8],
        leaves: NDArray[np.float64],
        depth: int,
        stages: int,
    ) -> None: ...
    def add(self, rows: NDArray[np.floating[Any]], sums: NDArray[np.float64]) -> None: ...
