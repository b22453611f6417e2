"""What a call was given is read again from the trace, as it came."""

from __future__ import annotations

import pytest
from aiokafka.errors import CorruptRecordException

from schemas import topics
from streams.operators.contract import Batch, Record
from streams.replay.recording import MemoryTrace, MissingInputError, TapeInputs
from streams.runtime.kafka.fast.whole_batches import records_of
from streams.tape.calls import RecordRun

RECORDS = [Record(topics.QUERIES, 0, offset, 1_700_000_000_000_000, b"key", b"value") for offset in range(6)]
RUNS = [
    RecordRun(topics.QUERIES, 0, 0, 1),
    RecordRun(topics.QUERIES, 0, 1, 2, is_whole=True),
    RecordRun(topics.QUERIES, 0, 3, 3, is_whole=True),
]


def test_batches_come_whole_and_those_that_were_damaged_are_damaged_again() -> None:
    """Whoever opens one finds a wrong checksum."""
    single, whole, damaged = TapeInputs(MemoryTrace(RECORDS)).records(RUNS, [1], are_whole=True)

    assert single == RECORDS[0]
    assert isinstance(whole, Batch)
    assert records_of(whole) == RECORDS[1:3]
    assert isinstance(damaged, Batch)
    assert (damaged.offset, damaged.end) == (3, 6)
    with pytest.raises(CorruptRecordException):
        records_of(damaged)


def test_a_kernel_that_takes_records_gets_those_of_batches() -> None:
    """None of them is damaged in the log."""
    assert TapeInputs(MemoryTrace(RECORDS)).records(RUNS, [1], are_whole=False) == RECORDS


def test_what_the_trace_does_not_hold_is_missed() -> None:
    """A call without all that it was given is not made."""
    with pytest.raises(MissingInputError, match="queries-0@3"):
        TapeInputs(MemoryTrace(RECORDS[:3])).records(RUNS, are_whole=True)
