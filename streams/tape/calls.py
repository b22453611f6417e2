"""A call of a kernel, with its arguments: records by their positions, states by their versions."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streams.operators.contract import Loaded, Predicted, Ran, Record, StateKey, Unread


class Method(IntEnum):
    """Which method of an operator was called; the last ones are what happened in the call before."""

    RECORDS = 0
    TIMER = 1
    STATES = 2
    PREDICTED = 3
    LOADED = 4
    PARTITIONS = 5
    CAUGHT_UP = 6  # these two are phases
    STOPPING = 7
    ASKED = 8  # a model answered at once
    RAISED = 9  # it ended with an exception
    LOST = 10  # something could not be written down: nothing follows


class RecordRun(NamedTuple):
    """Consecutive records of a partition.

    Attributes:
        topic: logical.
        partition: of the topic.
        begin: offset of the first one.
        count: records.
        is_whole: they came as one record batch.
        given: the records themselves, where a log may not hold them any more.
    """

    topic: str
    partition: int
    begin: int
    count: int  # type: ignore[assignment]  # a tuple's method of this name is not used
    is_whole: bool = False
    given: tuple[Record, ...] = ()


class StateMark(NamedTuple):
    """Names a state without its numbers: how many lessons it has had, and a checksum of all of it."""

    version: int
    checksum: int


_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
# What a model answered at once, and how long it took (us); None = it was to be asked otherwise.
Answered: TypeAlias = "tuple[Predicted, int] | None"


class KernelCall(NamedTuple):
    """One call.

    Attributes:
        method: that was called.
        now_us: the time that was given.
        number: of the call, from 0 on.
        runs: records.
        states: that were given; None = nothing is stored.
        unread: as `on_timer` gets it.
        batch_id: that was predicted.
        ran: what became of it.
        loaded: what became of a copy.
        starts: of partitions, as `on_partitions` gets them.
        answered: what models have answered at once meanwhile.
        has_raised: whether it ended with an exception.
        damaged: which of its whole batches had been damaged on the way; only looked for where it ended so.
    """

    method: Method
    now_us: int
    number: int = 0
    runs: Sequence[RecordRun] = ()
    states: Mapping[StateKey, StateMark | None] = _NOTHING
    unread: Unread = _NOTHING
    batch_id: int = 0
    ran: Ran | None = None
    loaded: Loaded | None = None
    starts: Mapping[int, int | None] = _NOTHING
    answered: Sequence[Answered] = ()
    has_raised: bool = False
    damaged: Sequence[int] = ()


class TapeChunk(NamedTuple):
    """A part of a tape: the value of one record of topic `calls`.

    Attributes:
        tape: the process and the time of its start.
        number: from 0 on; a gap says that some is lost.
        about: in the first one, what the kernel was made of.
        data: calls.
        is_part: the next chunk goes on where this one ends, perhaps within a call.
    """

    tape: str
    number: int
    about: Mapping[str, Any] | None
    data: bytes
    is_part: bool = False
