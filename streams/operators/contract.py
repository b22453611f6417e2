"""The one contract that every operator fulfils, and the effects it may ask for.

    records ──▶ on_records ────────────────┐
    timer   ──▶ on_timer ──────────────────┤
    states  ──▶ on_states ─────────────────┼──▶ effects ──▶ a runtime performs them, or a test compares them
    models  ──▶ on_predicted, on_loaded ───┤
    role    ──▶ on_phase ──────────────────┘

    group   ──▶ on_partitions                  a runtime ◀── needs, statistics

An operator does no I/O and reads no clock: `now_us` (microseconds since the epoch) is an argument. An input record is
*complete* when its outcome is acknowledged: an effect names in `completes` the positions that are done once it has been
performed. The runtime commits only the contiguous prefix of completed offsets.

Who asks for it is given whole record batches among the records, and may return finished ones: no object a record. What
it cannot use of a batch it unpacks. If it raises, all that is not complete is read again, record by record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from schemas.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input, Model, PolicyState, Tensor

# Named tuples, not dataclasses, for what is made once a record: they cost a third (0.25 against 0.7 us, CPython 3.11).


class Position(NamedTuple):
    """A record's place in Kafka. `topic` is the logical name (without the deployment's prefix)."""

    topic: str
    partition: int
    offset: int


class Record(NamedTuple):
    """A consumed record: coordinates, bytes, broker timestamp, headers."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def position(self) -> Position:
        """Where this record stands."""
        return Position(self.topic, self.partition, self.offset)


class Batch(NamedTuple):
    """One whole record batch as fetched: format 2, not compressed, no control batch, an offset a record without gaps.

    Its CRC is not checked yet: who reads its bytes does that first.

    Attributes:
        topic: logical. Fields 0 and 1 are those of `Record`.
        partition: of the topic.
        offset: the first record that is wanted; those of the batch before it are not delivered.
        end: behind the last one wanted. A large batch is cut into slices over the same bytes.
        data: the batch with its header.
    """

    topic: str
    partition: int
    offset: int
    end: int
    data: bytes


def end_of(taken: Record | Batch) -> int:
    """Return the offset behind a record, or behind the last wanted one of a batch."""
    return taken.end if type(taken) is Batch else taken.offset + 1


def count_of(taken: Collection[Record | Batch]) -> int:
    """Return how many records these are."""
    if Batch not in map(type, taken):  # 25 ns a record
        return len(taken)
    return sum([end_of(one) - one.offset for one in taken])


class Span(NamedTuple):
    """The delivered records of a partition with `begin <= offset < end`."""

    topic: str
    partition: int
    begin: int
    end: int


class StateKey(NamedTuple):
    """Names one policy state. `partition` is the `observations` partition whose learner owns it."""

    partition: int
    name: str  # as `streams.topology.state_name` makes it


class Emit(NamedTuple):
    """Produce one record; when the broker has acknowledged it, `completes` are complete.

    With `is_part` a record behind it in the same partition completes what this one is a part of: it is not dropped.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    completes: tuple[Position, ...] = ()
    headers: tuple[tuple[str, bytes], ...] = ()
    is_part: bool = False


class EmitBatch(NamedTuple):
    """Produce one finished record batch; when the broker has acknowledged it, `completes` are complete.

    It keeps its place among the other records of its partition, and may travel in one batch with those beside it. If
    the broker refuses it, its records are produced one by one, and the last of them completes what it completes.

    Attributes:
        topic: logical.
        partition: of the topic.
        data: format 2, base offset 0, not compressed, timestamps of its maker (`CreateTime`); its CRC is right.
        count: records in it, at least one.
        completes: what it is the outcome of.
    """

    topic: str
    partition: int
    data: bytes
    count: int  # type: ignore[assignment]  # a tuple's method of this name is not used
    completes: tuple[Span, ...] = ()


# A header of a record of `model-predictions` that selection has taken already: it was written for readers of the log.
BEHIND = ("behind", b"")


class DeadLetter(NamedTuple):
    """Write the record, bytes untouched, to `<topic>.dlq` with its cause; then it is complete."""

    record: Record
    cause: str  # one word a machine can group by, e.g. `undecodable`, `late`
    message: str  # what a person needs


class Skip(NamedTuple):
    """These positions need no outcome; count them under `reason`."""

    completes: tuple[Position, ...]
    reason: str
    spans: tuple[Span, ...] = ()  # more of them


class FetchStates(NamedTuple):
    """Read these states; the runtime answers with `on_states`."""

    keys: tuple[StateKey, ...]


# The partition and offset of a record of topic `features` that brings what a store has answered.
LOOKED_UP: Final = -1


class FetchFeatures(NamedTuple):
    """Read the features under these keys of topic `features` from the store that has them.

    The runtime answers each that it can with a record of that topic, of partition `LOOKED_UP`, without a value where
    nothing is stored. The others are not answered.
    """

    keys: tuple[str, ...]


class WriteStates(NamedTuple):
    """Compare-and-set one partition's states together with its offset, in one step.

    It is refused if the stored offset is not `expected`: another process wrote, or the store lost its last second. The
    runtime then calls `on_partitions`, and reads again from the stored offset, or as far before it as is read back.
    """

    partition: int
    expected: int | None  # next offset to apply as last known; None = nothing stored yet
    offset: int  # next offset to apply after this write
    states: Mapping[str, PolicyState]
    completes: tuple[Position, ...]
    spans: tuple[Span, ...] = ()  # more of what is complete


class Load(NamedTuple):
    """Load a version of a model; the runtime answers with `on_loaded`.

    Several copies of one version may be loaded at a time.
    """

    model: Model
    copy: int = 0
    is_vital: bool = False  # the role ends if loading hangs: nothing answers before this version is there
    is_beside: bool = False  # it runs beside the version that serves


class Unload(NamedTuple):
    """Drop one copy of a version, which is not asked any more."""

    model: str
    version: str
    copy: int = 0


class Predict(NamedTuple):
    """Have a loaded copy predict these rows; the runtime answers with `on_predicted`.

    A copy predicts one batch at a time. `joined` are parts of the same batch for other models that have its trunk. Each
    part is answered by its own number, in their order. If the batch is lost, the first part without an answer is to
    blame.
    """

    batch_id: int
    model: str
    version: str
    rows: Sequence[Input]
    patience_us: int  # after which the model counts as hung
    copy: int = 0
    queued: int = 0  # rows that wait for the next batch
    is_vital: bool = False  # the role ends if the model hangs and cannot be replaced
    joined: tuple[Predict, ...] = ()


class AskNow(Protocol):
    """Asks a model that is loaded, at once, on the thread of the caller."""

    def __call__(self, model: str, copy: int, rows: Tensor, patience_us: int) -> tuple[Predicted, int] | None:
        """Return the results, and how long they took (us).

        Args:
            model: by name.
            copy: of the version.
            rows: (n, ...) of one form.
            patience_us: after which it counts as hung.

        Returns:
            None: it is not known to take less than a millisecond, or has failed: it is to be asked by `Predict`.
        """
        ...


class LogMessage(NamedTuple):
    """Log a message."""

    message: str
    is_fault: bool = False


Effect: TypeAlias = (
    Emit
    | EmitBatch
    | DeadLetter
    | Skip
    | FetchStates
    | FetchFeatures
    | WriteStates
    | Load
    | Unload
    | Predict
    | LogMessage
)
Effects: TypeAlias = list[Effect]


@dataclass(frozen=True, slots=True)
class Predicted:
    """A batch's results as columns, one entry a row; answers and scores mean nothing where the outcome is not OK."""

    outcomes: tuple[Outcome, ...]
    answers: tuple[str, ...] | NDArray[np.generic]
    scores: NDArray[np.generic] | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)  # of the INVALID rows
    fault: str | None = None  # the model's first error
    messages: Mapping[int, str] = field(default_factory=dict)  # to the clients, for the INVALID rows

    @classmethod
    def failed(cls, rows: int, fault: str) -> Predicted:
        """Say that no row was answered, and why."""
        return cls((Outcome.FAILED,) * rows, np.zeros(rows, dtype=np.int64), fault=fault)


class Ran(NamedTuple):
    """The answer to a `Predict`.

    Attributes:
        results: an entry a row.
        took_us: how long the model took.
        is_blocking: nothing was read or written meanwhile.
        is_lost: the model must be loaded again before it is asked again; `on_loaded` follows.
    """

    results: Predicted
    took_us: int
    is_blocking: bool = False
    is_lost: bool = False


class Loaded(NamedTuple):
    """The answer to a `Load`; a copy with a `fault` cannot be used, and has been dropped.

    Attributes:
        model: whose.
        version: that was loaded.
        copy: of the version.
        fault: why it was not; None = it was.
        took_us: how long that took.
        size_bytes: of the copy in memory; 0 = not known.
        is_lost: all that was loaded beside it is lost, too.
        is_hopeless: nothing but another package would help.
    """

    model: str
    version: str
    copy: int = 0
    fault: str | None = None
    took_us: int = 0
    size_bytes: int = 0
    is_lost: bool = False
    is_hopeless: bool = False

    @classmethod
    def of(
        cls, load: Load, fault: str | None = None, took_us: int = 0, size_bytes: int = 0, *, is_lost: bool = False
    ) -> Loaded:
        """Answer a `Load`."""
        return cls(load.model.name, load.model.version, load.copy, fault, took_us, size_bytes, is_lost)


class ReadBack(NamedTuple):
    """What an operator is given again at a start, so that it remembers: records whose outcomes are there already.

    Attributes:
        us: how far before the first incomplete record of the main topic reading begins. This only rebuilds the
            operator's memory (ids it has seen); records before the start are already complete.
        topics: consumed topics beside the main one that are read back as far.
        has_written: whether `on_records` gets, before any record of its partitions, what the role has written since
            its first incomplete record of the main topic. Some of it may come several times. It completes nothing,
            and nothing that it leads to is performed.
    """

    us: int = 0
    topics: frozenset[str] = frozenset()
    has_written: bool = False


class GroupNeeds(NamedTuple):
    """What an operator wants of its group where its topics change while the role runs.

    Attributes:
        topics: to consume; None = those that the role says.
        spread: what the consumer's assignor spreads partitions by, if it goes by anything. Another object than before
            says that it would spread them otherwise now: the runtime joins the group anew.
        is_getting_ready: whether it would rather not take records of its group yet: it has what it follows, and
            prepares for them. The runtime joins the group without it after a while.
        whole: topics of these that are read from their beginning, where the group has never read them; of others, what
            was written ten minutes before.
    """

    topics: frozenset[str] | None = None
    spread: object = None
    is_getting_ready: bool = False
    whole: frozenset[str] = frozenset()


NO_READ_BACK: Final = ReadBack()
NO_GROUP_NEEDS: Final = GroupNeeds()


class Needs(NamedTuple):
    """The needs of an operator, which the runtime fulfils.

    Attributes:
        deadline_us: when `on_timer` must be called next; None = never.
        held: how much is in hand, if one record may hold many; counts against the role's bound as records do.
        paused: consumed topics to leave unread for now, because the operator holds as much of them as it may.
        is_told_unread: whether `on_timer` gets the numbers of unread records.
        read_back: what it is given again at a start.
        group: where its topics change.
    """

    deadline_us: int | None = None
    held: int = 0
    paused: frozenset[str] = frozenset()
    is_told_unread: bool = False
    read_back: ReadBack = NO_READ_BACK
    group: GroupNeeds = NO_GROUP_NEEDS


NO_NEEDS: Final = Needs()


class Phase(Enum):
    """What a role tells its operator about itself, once each."""

    CAUGHT_UP = "caught up"  # everything has been given which lay in the topics that it follows at the start
    STOPPING = "stopping"  # what is to be kept is to be said now; other calls may follow


# Clocks of brokers may disagree by so much: an outcome may be dated before what it is the outcome of.
CLOCKS_US: Final = 60_000_000
Unread: TypeAlias = "Mapping[tuple[str, int], int]"
NONE_UNREAD: Final[Unread] = MappingProxyType({})


class Operator(Protocol):
    """A stateful kernel. Every method may be called at any time between records; none may block.

    Kernels subclass it: what they do not need has a default here.
    """

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take a poll's records, in order within each partition."""
        ...

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Do what is due at `now_us`.

        Args:
            now_us: the time.
            unread: how many records `on_records` has not had yet, by partition of a consumed topic; 1 if the number is
                not known, and no partition without any. Operators with `is_told_unread` get it when they are due, and
                twice a second.
        """
        return []

    def on_phase(self, phase: Phase, now_us: int) -> Effects:
        """Take how far the role is."""
        return []

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take the answer to a `FetchStates`; None = nothing stored under that key."""
        return []

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Take what became of a batch."""
        raise RuntimeError("who asks models overrides this; nobody else is answered")

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Take what became of a copy."""
        raise RuntimeError("who loads models overrides this; nobody else is answered")

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Forget everything about these partitions, of all topics, and begin them anew, or hand them over.

        An operator whose topics change has no main one: its starts mean nothing. After a refused `WriteStates` the
        partition is handed over, and begins anew as stored.

        Args:
            starts: the first incomplete offset of the main topic, as committed to the group, by partition. For an
                operator that writes states it is as stored with them (0 if nothing is stored yet). Earlier records may
                follow, as far as the operator reads back. None = the partition is not ours any more: its new owner
                starts from the committed offset.
        """
        return  # without it mypy takes the default for a method that has to be overridden

    def needs(self) -> Needs:
        """Return the operator's needs; the runtime asks after every call, so this should cost little."""
        return NO_NEEDS

    def statistics(self) -> Mapping[str, float]:
        """Counters since the start (names end in `_total`) and gauges, labels as in `answers_total{status=default}`."""
        return {}
