"""What a poll has brought and a kernel has not been given, in records and in whole batches of them."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from streams.operators.contract import Batch, Record
from streams.runtime.kafka.fast.whole_batches import records_of
from streams.runtime.role.poll_buffer import PollBuffer
from streams.testing.packing import Packing

PLACES = [("queries", 0), ("queries", 1), ("feedback", 0)]


def one_by_one(found: list[Record | Batch]) -> list[Record]:
    """Return records, whatever they came in."""
    return [record for one in found for record in (records_of(one) if isinstance(one, Batch) else [one])]


@given(
    st.lists(st.tuples(st.sampled_from(PLACES), st.integers(1, 9)), max_size=6),
    st.lists(st.integers(1, 12) | st.sampled_from(PLACES), max_size=8),
    st.integers(0, 99),
    st.booleans(),
)
def test_however_they_come_the_same_records_are_taken_counted_and_dropped(
    polled: list[tuple[tuple[str, int], int]], steps: list[int | tuple[str, int]], seed: int, asks: bool
) -> None:
    """Against a plain list of records; a batch is cut where a slice ends."""
    next_of: Counter[tuple[str, int]] = Counter()
    left: list[Record] = []
    for (topic, partition), count in polled:
        for _ in range(count):
            left.append(Record(topic, partition, next_of[topic, partition], 7_000, None, b"v"))
            next_of[topic, partition] += 1
    buffer = PollBuffer()
    buffer.fill(Packing(frozenset({"queries"}), Random(seed))(left))
    for step in steps:
        if isinstance(step, int):
            assert one_by_one(buffer.take(step)) == left[:step]
            del left[:step]
        else:
            buffer.drop([step])
            left = [record for record in left if record[:2] != step]
        assert len(buffer) == len(left)
        if left:
            assert buffer.first[:3] == left[0][:3]
        if asks:
            assert buffer.counts() == Counter(record[:2] for record in left)
    assert buffer.counts() == Counter(record[:2] for record in left)
