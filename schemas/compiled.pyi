from collections.abc import Callable

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

class Writer:
    def __init__(self, root: Node, python: Callable[[object, bytes], bytes]) -> None: ...
    def __call__(self, record: object, head: bytes, /) -> bytes: ...
