from collections.abc import Callable, Mapping, Sequence

from streams.columns.join_forms import JoinForms
from streams.operators.contract import Batch, Effects, Record
from streams.operators.ids import IdTimes
from streams.operators.join.buffer import JoinBuffer
from streams.operators.join.observation import ErrorSpans
from streams.operators.join.shared_buffer import SharedBuffer

KINDS: Mapping[str, int]
TEACHES: Mapping[str, int]

class Owner:
    def __init__(
        self,
        name: str,
        text: bytes,
        window_us: int,
        kind: int,
        span: float,
        labels: frozenset[bytes],
        teachers: frozenset[bytes],
        tail: bytes,
        before: bytes,
        behind: bytes,
        after: bytes | None,
    ) -> None: ...

class Joining:
    taken: dict[str, int]
    left: dict[tuple[str, str], int]
    def __init__(
        self,
        forms: JoinForms,
        topics: tuple[str, str, str],
        max_bytes: int,
        memory_us: int,
        owner_of: Callable[[str, bytes], Owner],
        teaches: Callable[[str, int], int],
        route: Callable[[str], tuple[int, bytes]],
        count: Callable[[str, int], None],
        spans: ErrorSpans,
        unpack: Callable[[Batch], list[Record]],
    ) -> None: ...
    def forget(self) -> None: ...
    def wait(
        self,
        run: Sequence[Record | Batch],
        partition: JoinBuffer,
        room: SharedBuffer,
        now_us: int,
        observed: IdTimes,
        observed_us: int,
        early_us: int,
        oldest_s: int,
        take: Callable[[Record, list[str]], None],
    ) -> list[str]: ...
    def join(
        self,
        run: Sequence[Record | Batch],
        partition: JoinBuffer,
        room: SharedBuffer,
        now_us: int,
        oldest_s: int,
        effects: Effects,
        is_plain: bool,
        was_read: bool,
        observed: IdTimes,
        observed_us: int,
        early_us: int,
        take: Callable[[list[Record]], bool],
        take_alone: Callable[[Record, str], None],
        finish: Callable[[], None],
    ) -> None: ...
