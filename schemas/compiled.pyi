from collections.abc import Callable, Mapping
from typing import TypeVar

_R = TypeVar("_R")

class Node:
    def __init__(
        self,
        kind: str,
        parts: tuple[Node, ...] = (),
        members: tuple[object, ...] = (),
        made: type | None = None,
        places: tuple[int, ...] = (),
        widths: tuple[int, ...] = (),
    ) -> None: ...

class Reader:
    def __init__(self, root: Node, python: Callable[[bytes, int], tuple[object, int]]) -> None: ...
    def __call__(self, buffer: bytes, start: int, /) -> tuple[object, int]: ...

class Values:
    def __init__(
        self,
        readers: Mapping[type, Mapping[bytes, object]],
        max_bytes: int,
        python: Callable[[type, bytes | None], object],
    ) -> None: ...
    def __call__(self, record: type[_R], value: bytes | None, /) -> _R: ...

def first_text(value: bytes | None, /) -> str | None: ...
def first_texts(value: bytes | None, count: int, /) -> tuple[str, ...] | None: ...

class Writer:
    def __init__(self, root: Node, python: Callable[[object, bytes], bytes]) -> None: ...
    def __call__(self, record: object, head: bytes, /) -> bytes: ...
