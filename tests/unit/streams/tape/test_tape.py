"""A tape holds what a kernel was called with, and nothing of it is changed on the way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Outcome, PolicyState
from streams.operators.contract import (
    LOOKED_UP,
    NO_READ_BACK,
    NONE_UNREAD,
    Emit,
    Loaded,
    LogMessage,
    Needs,
    Operator,
    Phase,
    Predicted,
    Ran,
    ReadBack,
    Record,
    StateKey,
)
from streams.runtime.kafka.fast.whole_batches import batch_of
from streams.tape.calls import KernelCall, Method, RecordRun, StateMark
from streams.tape.common import MOST
from streams.tape.reader import TapeReader, chunk_of
from streams.tape.taped import CHUNK_BYTES, GATHERED_US, HeardAsking, Taped
from streams.tape.writer import checksum
from tests.loops import CODEC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streams.operators.contract import AskNow, Effects, Unread

NOW_US = 1_700_000_000_000_000
STATE = PolicyState("exp3", ("a", "b"), 12, (0.5, 0.25))
MESSAGE = LogMessage("done")


class Kernel(Operator):
    """Remembers what it is called with."""

    def __init__(self, deadline_us: int | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.deadline_us = deadline_us
        self.is_failing = False
        self.ask: AskNow | None = None
        self.read_back = NO_READ_BACK

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Note it."""
        if self.is_failing:
            raise ValueError("broken")
        if self.ask is not None:
            self.ask("forest", 0, None, 1)  # type: ignore[arg-type]
        self.calls.append((records, now_us))
        return [MESSAGE]

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Note it."""
        self.calls.append((unread, now_us))
        return []

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Note it."""
        self.calls.append((states, now_us))
        return []

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Note it."""
        self.calls.append((batch_id, ran, now_us))
        return []

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Note it."""
        self.calls.append((loaded, now_us))
        return []

    def needs(self) -> Needs:
        """Be due."""
        return Needs(self.deadline_us, read_back=self.read_back)


def record(offset: int, topic: str = topics.QUERIES, partition: int = 0) -> Record:
    """Return a record."""
    return Record(topic, partition, offset, NOW_US, b"key", b"value")


def taped(kernel: Operator | None = None) -> Taped:
    """Return a kernel on tape."""
    return Taped(kernel or Kernel(), CODEC, "joiner@1", {"role": "joiner"})


class Listener:
    """Reads what a tape writes."""

    def __init__(self) -> None:
        self.reader = TapeReader()
        self.calls: list[KernelCall] = []
        self.numbers: list[int] = []
        self.data = b""

    def hear(self, effects: Effects) -> Effects:
        """Take chunks, and return what else there is."""
        for one in effects:
            if isinstance(one, Emit) and one.topic == topics.CALLS:
                chunk = chunk_of(one.value)
                assert (chunk.about is None) is (chunk.number > 0)
                self.numbers.append(chunk.number)
                self.data += chunk.data
                if not chunk.is_part:
                    self.calls += self.reader.calls(self.data)
                    self.data = b""
        return [one for one in effects if not isinstance(one, Emit)]


def heard(tape: Taped, listener: Listener, now_us: int = NOW_US + 10 * GATHERED_US) -> list[KernelCall]:
    """Return all calls so far."""
    listener.hear(tape.on_phase(Phase.STOPPING, now_us))
    assert [call.number for call in listener.calls] == [*range(len(listener.calls))]
    return listener.calls[:-1]


def test_records_are_named_by_runs_of_their_positions() -> None:
    """Whole batches are told from single records, and what is in no log is written out."""
    given_record = Record(topics.FEATURES, LOOKED_UP, LOOKED_UP, NOW_US, b"texts/1", None)
    followed = record(3, topics.MODELS)
    given_runs = [
        *(record(offset) for offset in (5, 6, 7, 9)),
        record(4, partition=1),
        batch_of([record(offset, topics.FEEDBACK) for offset in (1, 2)]),
        batch_of([record(offset, topics.FEEDBACK) for offset in (3, 4)]),
        given_record,
        given_record,
        followed,
    ]
    tape, listener = taped(), Listener()
    listener.hear(tape.on_records(given_runs, NOW_US))  # type: ignore[arg-type]
    listener.hear(tape.on_records([record(8), record(10)], NOW_US + 3))
    first, second = heard(tape, listener)

    assert first.now_us == NOW_US
    assert first.runs == [
        RecordRun(topics.QUERIES, 0, 5, 3),
        RecordRun(topics.QUERIES, 0, 9, 1),
        RecordRun(topics.QUERIES, 1, 4, 1),
        RecordRun(topics.FEEDBACK, 0, 1, 2, is_whole=True),
        RecordRun(topics.FEEDBACK, 0, 3, 2, is_whole=True),
        RecordRun(topics.FEATURES, LOOKED_UP, LOOKED_UP, 1, given=(given_record,)),
        RecordRun(topics.FEATURES, LOOKED_UP, LOOKED_UP, 1, given=(given_record,)),
        RecordRun(topics.MODELS, 0, 3, 1, given=(followed,)),
    ]
    assert second.now_us == NOW_US + 3
    assert second.runs == [RecordRun(topics.QUERIES, 0, 8, 1), RecordRun(topics.QUERIES, 0, 10, 1)]


PREDICTED = [
    Predicted((Outcome.OK, Outcome.INVALID), np.array([3, 0], np.int32), np.ones((2, 3), np.float32), {1: "shape"}),
    Predicted((Outcome.OK,), ("seven",), None, {}, "it broke", {0: "dear client"}),
    Predicted.failed(2, "gone"),
    Predicted((Outcome.OK,) * 2, np.array([(1, [0.5, 2.0]), (7, [0.0, 1.0])], [("a", "<i8"), ("é", "<f4", (2,))])),
]


@pytest.mark.parametrize("results", PREDICTED)
def test_what_models_answer_is_written_whole(results: Predicted) -> None:
    """No topic holds it."""
    tape, listener = taped(), Listener()
    listener.hear(tape.on_predicted(7, Ran(results, 1_234, is_lost=True), NOW_US))
    (call,) = heard(tape, listener)

    assert (call.method, call.batch_id) == (Method.PREDICTED, 7)
    assert call.ran is not None
    assert call.ran[1:] == (1_234, False, True)
    same(call.ran.results, results)


def same(one: Predicted, other: Predicted) -> None:
    """Compare results, bit by bit."""
    for name in ("outcomes", "reasons", "messages", "fault"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("answers", "scores"):
        its, others = getattr(one, name), getattr(other, name)
        assert type(its) is type(others)
        assert np.array_equal(its, others) if isinstance(its, np.ndarray) else its == others
        assert getattr(its, "dtype", None) == getattr(others, "dtype", None)


def test_a_call_that_is_made_over_and_over_is_a_byte_and_the_time() -> None:
    """Of those that are remembered the one goes that was made longest ago; it is written out again."""
    tape, listener = taped(), Listener()
    offsets = Counter[int]()

    def poll(partition: int) -> int:
        before = len(tape._writer)
        now_us = NOW_US + 500 * offsets.total()
        listener.hear(tape.on_records([record(offsets[partition], partition=partition)], now_us))
        offsets[partition] += 1
        return len(tape._writer) - before

    sizes = [poll(partition) for partition in (0, 0, 1, 1, 0, *range(2, MOST), 1, MOST, 0, 1)]
    places = [(call.runs[0].partition, call.runs[0].begin) for call in heard(tape, listener)]

    assert [size == 3 for size in sizes[1:5]] == [False, False, True, True]
    assert min(sizes[5:-4]) > 3
    assert [size == 3 for size in sizes[-4:]] == [True, False, False, True]
    assert places[:5] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
    assert places[-4:] == [(1, 2), (MOST, 0), (0, 3), (1, 3)]


def test_states_are_named_by_version_and_checksum() -> None:
    """Their numbers follow from the log."""
    tape, listener = taped(), Listener()
    listener.hear(tape.on_states({StateKey(1, "digits/ann"): STATE, StateKey(0, "digits"): None}, NOW_US))
    (call,) = heard(tape, listener)

    assert call.states == {
        StateKey(1, "digits/ann"): StateMark(12, checksum(CODEC.encode(STATE))),
        StateKey(0, "digits"): None,
    }
    assert checksum(CODEC.encode(STATE)) != checksum(CODEC.encode(STATE._replace(values=(0.5, 0.26))))


def test_all_other_calls_are_written_in_order() -> None:
    """With all that they were given."""
    loaded = Loaded("forest", "2", 1, "no such file", 12, 1 << 33, is_lost=True, is_hopeless=True)
    kernel = Kernel(NOW_US)
    tape, listener = taped(kernel), Listener()
    tape.on_partitions({0: 12, 3: 0})
    listener.hear(tape.on_phase(Phase.CAUGHT_UP, NOW_US))
    listener.hear(tape.on_timer(NOW_US, {(topics.FEEDBACK, 2): 9}))
    listener.hear(tape.on_loaded(loaded, NOW_US - 5))
    tape.on_partitions({0: None, 3: 5})
    calls = heard(tape, listener)

    methods = Method.PARTITIONS, Method.CAUGHT_UP, Method.TIMER, Method.LOADED, Method.PARTITIONS
    assert tuple(call.method for call in calls) == methods
    assert calls[0].starts == {0: 12, 3: 0}
    assert calls[2].unread == {(topics.FEEDBACK, 2): 9}
    assert (calls[3].loaded, calls[3].now_us) == (loaded, NOW_US - 5)
    assert calls[4].starts == {0: None, 3: 5}
    assert kernel.calls == [({(topics.FEEDBACK, 2): 9}, NOW_US), (loaded, NOW_US - 5)]


def test_what_was_asked_at_once_and_an_exception_belong_to_their_call() -> None:
    """They follow from what the kernel was given, and are needed to do it again."""
    kernel, listener = Kernel(), Listener()
    kernel.ask = asking = HeardAsking(lambda *_: (PREDICTED[1], 5))
    tape = Taped(kernel, CODEC, "selection@1", {"role": "selection"}, asking)
    listener.hear(tape.on_records([record(1)], NOW_US))
    kernel.is_failing = True
    with pytest.raises(ValueError, match="broken"):
        tape.on_records([record(2)], NOW_US)
    first, second = heard(tape, listener)

    assert [found and found[1] for found in first.answered] == [5]
    assert not first.has_raised
    assert second.has_raised


def test_batches_that_were_damaged_on_the_way_are_named_where_a_call_failed() -> None:
    """No log holds them so."""
    pytest.importorskip("streams.columns.batches", reason="Skysail is not compiled here")
    kernel = Kernel()
    kernel.is_failing = True
    tape, listener = taped(kernel), Listener()
    whole = batch_of([record(1), record(2)])
    damaged = whole._replace(data=whole.data[:-1] + bytes((whole.data[-1] ^ 1,)))
    with pytest.raises(ValueError, match="broken"):
        tape.on_records([record(0), whole, damaged], NOW_US)  # type: ignore[list-item]
    (call,) = heard(tape, listener)

    assert (call.has_raised, call.damaged) == (True, [1])


def test_the_kernel_is_called_as_without_a_tape_and_only_chunks_are_added() -> None:
    """The tape's own deadline is none of the kernel's."""
    kernel = Kernel()
    tape, listener = taped(kernel), Listener()
    assert tape.needs() == Needs()
    assert listener.hear(tape.on_records([record(1)], NOW_US)) == [MESSAGE]
    assert listener.numbers == [0]  # what it is made of is known at once
    assert tape.on_records([record(2)], NOW_US + 1) == [MESSAGE]
    assert tape.needs() == Needs(NOW_US + 1 + GATHERED_US)
    assert listener.hear(tape.on_timer(NOW_US + 1 + GATHERED_US)) == []
    assert len(kernel.calls) == len(listener.calls) == 2
    assert tape.needs() == Needs()


def test_calls_are_not_written_where_what_comes_of_a_call_is_not_performed() -> None:
    """A role is told what it has written: nothing comes of that."""
    kernel = Kernel()
    kernel.read_back = ReadBack(has_written=True)
    tape, listener = taped(kernel), Listener()
    assert tape.on_records([record(1, topics.OBSERVATIONS)], NOW_US) == [MESSAGE]
    assert listener.hear(tape.on_records([record(1)], NOW_US + 1)) == [MESSAGE]

    assert [call.runs[0].topic for call in listener.calls] == [topics.OBSERVATIONS, topics.QUERIES]


def test_a_call_may_need_several_records() -> None:
    """They are read as one."""
    tape, listener = taped(), Listener()
    large = Predicted((Outcome.OK,), np.zeros(1), np.arange(CHUNK_BYTES / 3).reshape(1, -1))
    listener.hear(tape.on_predicted(1, Ran(large, 1), NOW_US))
    (call,) = heard(tape, listener)

    assert listener.numbers == [0, 1, 2, 3]
    assert call.ran is not None
    same(call.ran.results, large)


def test_a_call_that_cannot_be_written_ends_the_tape_and_not_the_kernel() -> None:
    """What follows is not written down."""
    kernel = Kernel()
    tape, listener = taped(kernel), Listener()
    strange = Predicted((Outcome.OK,), np.array(["text"]))
    listener.hear(tape.on_predicted(1, Ran(strange, 1), NOW_US))
    listener.hear(tape.on_records([record(1)], NOW_US))
    listener.hear(tape.on_phase(Phase.STOPPING, NOW_US))

    assert [call.method for call in listener.calls] == [Method.LOST]
    assert len(kernel.calls) == 2


@given(st.binary(max_size=80))
def test_any_bytes_are_calls_or_refused(data: bytes) -> None:
    """A trace may come from anybody."""
    for read in (lambda: chunk_of(data), lambda: [*TapeReader().calls(data)]):
        try:
            read()
        except DecodeError:
            continue
