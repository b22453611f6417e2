from collections.abc import Callable, Mapping, Sequence

from streams.operators.contract import Batch
from streams.operators.ids import IdTimes

WHYS: tuple[str, ...]

class Lane:
    def __init__(
        self,
        name: bytes,
        form: tuple[object, ...],
        slo_us: int,
        longest_us: int,
        margin_us: int,
        margins: tuple[int, int],
    ) -> None: ...
    def decide_by(self, cumulative: tuple[float, ...]) -> None: ...
    def say(
        self,
        arm: int,
        rows: int,
        kind: int,
        answers: bytes | list[bytes],
        form: tuple[bytes, ...],
    ) -> None: ...

class Poll:
    partitions: set[int]
    count: int
    def __init__(self, batches: list[Batch], lanes: tuple[Lane, ...], now_us: int) -> None: ...
    def runs(self) -> list[tuple[bool, int]]: ...
    def whys(self) -> dict[str, int]: ...
    def places(self, begin: int, end: int, lane: int = -2) -> list[tuple[int, int]]: ...
    def lanes_of(self, begin: int, end: int) -> set[int]: ...
    def leave(self, begin: int, end: int, lane: int) -> None: ...
    def ask(
        self, begin: int, end: int, number: int, recent: Mapping[int, tuple[IdTimes, int]]
    ) -> list[tuple[int, int, bytes]]: ...
    def answer(
        self, begin: int, end: int, answered_us: int, recents: Callable[[int, int], Recent], most_bytes: int
    ) -> Answered: ...

class Answered:
    batches: list[tuple[int, bytes, int, list[tuple[int, int]]]]
    copies: list[tuple[int, int]]
    def of(self, lane: int) -> tuple[list[int], int, Sequence[int], int, int]: ...

class Recent:
    generation: int
    size: int
    def __init__(self, ids: IdTimes, generation: int, size: int, capacity: int) -> None: ...
