from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

_Headers: TypeAlias = tuple[tuple[str, bytes], ...]
_Row: TypeAlias = tuple[str, str, bytes | None, str | None, str, _Headers, int, int, int, int, int, int, int, int, int]

class Asked:
    received_us: int
    count: int
    left: int
    places: int
    slack_us: int
    of: Any
    def __init__(self, numbers: bytes, texts: bytes, received_us: int, of: object) -> None: ...
    def parts(
        self, inputs: bytes, most: int, share: float, back_us: int
    ) -> list[tuple[int, int, tuple[str, ...], tuple[int, ...], bytes]]: ...

class Waiting:
    def __len__(self) -> int: ...
    def add(self, asked: Asked, others: Mapping[int, Mapping[str, object]]) -> None: ...
    def next_due(self) -> int | None: ...
    def due(self, now_us: int) -> list[tuple[Any, _Row]]: ...
    def claim(self, wanted: Iterable[tuple[int, str]]) -> list[tuple[Any, _Row]]: ...
    def rows(self, partitions: Iterable[int] | None = None) -> list[tuple[Any, _Row]]: ...
    def match(self, partition: int, row_ids: tuple[str, ...], model: str) -> Found | None: ...

class Found:
    pairs: list[tuple[Asked, int, int]]
    def write(
        self,
        said: list[tuple[bytes, tuple[bytes, ...], bytes]],
        kind: int,
        answers: bytes | list[bytes],
        worked: list[bytes],
        answered_us: int,
    ) -> tuple[bytes, list[tuple[int, int]], list[tuple[Asked, list[int], list[int]]]]: ...
