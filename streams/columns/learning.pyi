from collections.abc import Callable, Mapping, Sequence

from schemas.records import Observation, PolicyState
from streams.operators.contract import Batch, Effects, Record
from streams.operators.learn.kernel import FoldRun, Learner, LearnerPartition

KINDS: Mapping[str, int]

class Form:
    def __init__(
        self, policy: str, arms: tuple[str, ...], kind: int, eta: float, share: float, starts: bool, classes: int
    ) -> None: ...

class Learning:
    taken: dict[str, int]
    left: dict[tuple[str, str], int]
    def __init__(
        self,
        heads: tuple[bytes, bytes],
        max_bytes: int,
        form_of: Callable[[str, tuple[str, ...]], Form | None],
        unpack: Callable[[Batch], list[Record]],
        decode: Callable[[Record], Sequence[Observation]],
    ) -> None: ...
    def read(
        self, run: list[Record | Batch], start: int, leave: Callable[[Record], Callable[[FoldRun], None]]
    ) -> dict[str, None]: ...
    def fold(
        self,
        run: FoldRun,
        states: dict[str, PolicyState | None],
        partition: LearnerPartition,
        learner: Learner,
        most_numbers: int,
        effects: Effects,
    ) -> None: ...
