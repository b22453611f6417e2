"""Tests of the offset tracker: what may be committed."""

from __future__ import annotations

import sys

import pytest

from streams.operators.contract import Position, Span
from streams.runtime.errors import OffsetOrderError, UnassignedError
from streams.runtime.offsets import OffsetTracker

P = ("queries", 0)


def at(*offsets: int, topic: str = "queries", partition: int = 0) -> list[Position]:
    """Return positions of one partition."""
    return [Position(topic, partition, offset) for offset in offsets]


def tracking(*offsets: int, start: int = 0, committed: int | None = None) -> OffsetTracker:
    """Return a tracker to which these offsets of one partition were delivered."""
    tracker = OffsetTracker()
    tracker.assign(P, start, committed)
    tracker.delivered(P, offsets)
    return tracker


def test_nothing_is_committable_before_something_is_complete() -> None:
    """Delivered records alone move nothing."""
    assert tracking(0, 1, 2).committable() == {}


def test_only_the_completed_prefix_is_committable() -> None:
    """A record that is done does not count while one before it is not."""
    tracker = tracking(10, 11, 12, start=10)
    tracker.complete(at(10, 12))
    assert tracker.committable() == {P: 11}
    tracker.complete(at(11))
    assert tracker.committable() == {P: 13}


def test_gaps_in_offsets_are_passed() -> None:
    """Offsets that were never delivered hold nothing up."""
    tracker = tracking(10, 14, 20)
    tracker.complete(at(14, 10))
    assert tracker.committable() == {P: 15}
    assert tracker.outstanding() == 1


def test_a_span_ends_where_it_says_across_gaps() -> None:
    """What lies behind it is not complete, however many offsets are missing in it; so it is with what lies before."""
    tracker = tracking(0, 1, 5, 6, 7, 8)
    tracker.complete_spans([Span(*P, 0, 4)])
    assert (tracker.committable(), tracker.outstanding(), tracker.ignored_total) == ({P: 2}, 4, 2)
    tracker.complete_spans([Span(*P, 6, 8), Span(*P, 3, 3), Span("other", 0, 0, 9)])
    assert (tracker.committable(), tracker.outstanding(), tracker.ignored_total) == ({P: 2}, 2, 11)
    tracker.complete_spans([Span(*P, 4, 6)])
    assert tracker.committable() == {P: 8}


def test_a_committed_offset_is_not_offered_again() -> None:
    """Only what changed is committed."""
    tracker = tracking(0, 1)
    tracker.complete(at(0))
    tracker.committed({P: 1})
    assert tracker.committable() == {}
    tracker.complete(at(1))
    assert tracker.committable() == {P: 2}


def test_a_refused_commit_is_offered_again() -> None:
    """Until the broker has accepted it, an offset stays committable."""
    tracker = tracking(0)
    tracker.complete(at(0))
    assert tracker.committable() == tracker.committable() == {P: 1}


def test_records_before_the_start_are_complete_already() -> None:
    """What is read back for memory's sake is neither outstanding nor committable."""
    tracker = tracking(5, 6, 7, 8, start=7)
    assert tracker.outstanding() == 2
    tracker.complete(at(7))
    assert tracker.committable() == {P: 8}


def test_nothing_below_the_committed_offset_is_committed() -> None:
    """A partition that is read again from before the commit does not pull it back."""
    tracker = tracking(0, 1, 2, committed=2)
    tracker.complete(at(0, 1))
    assert tracker.committable() == {}
    tracker.complete(at(2))
    assert tracker.committable() == {P: 3}


def test_unknown_and_revoked_positions_are_ignored_and_counted() -> None:
    """Acknowledgements of a former assignment do no harm."""
    tracker = tracking(0, 1)
    tracker.complete(at(0, 7) + at(0, topic="elsewhere"))
    tracker.complete(at(0))
    tracker.revoke(P)
    tracker.complete(at(1))
    assert tracker.ignored_total == 4
    assert tracker.outstanding() == 0
    assert tracker.committable() == {}


def test_assigning_anew_forgets_what_was_outstanding_but_not_the_commit() -> None:
    """After a seek the records are delivered again."""
    tracker = tracking(0, 1, 2)
    tracker.complete(at(0, 1))
    tracker.committed({P: 2})
    tracker.assign(P, 0)
    tracker.delivered(P, [0, 1])
    tracker.complete(at(0, 1))
    assert tracker.committable() == {}
    assert tracker.position(P) == 2


def test_delivery_out_of_order_is_refused() -> None:
    """Mixing two positions would make gaps look complete."""
    tracker = tracking(5)
    with pytest.raises(OffsetOrderError, match="queries-0: offset 5 delivered after 5"):
        tracker.delivered(P, [5])


def test_records_of_an_unassigned_partition_are_refused_by_name() -> None:
    """The error names the topic and the partition."""
    with pytest.raises(UnassignedError, match="queries-0 is not assigned"):
        OffsetTracker().delivered(P, [5])
    with pytest.raises(UnassignedError, match="queries-0 is not assigned"):
        OffsetTracker().position(P)


def test_it_knows_what_is_outstanding() -> None:
    """A record is outstanding from delivery to completion."""
    tracker = tracking(3, 4)
    tracker.complete(at(3))
    assert [tracker.is_outstanding(position) for position in at(2, 3, 4, 5)] == [False, False, True, False]


def test_a_million_outstanding_records_cost_little() -> None:
    """At most 16 bytes each, also while completed ones wait for the cut."""
    tracker = OffsetTracker()
    tracker.assign(P)
    held = tracker._partitions[P]
    for first in range(0, 1_000_000, 5_000):
        tracker.delivered(P, range(first, first + 5_000))
    size = sys.getsizeof(held.offsets) + sys.getsizeof(held.done)
    assert size / tracker.outstanding() < 16


def test_completed_records_are_cut_off() -> None:
    """A partition that runs for ever holds only what is outstanding."""
    tracker = OffsetTracker()
    tracker.assign(P)
    for first in range(0, 200_000, 500):
        tracker.delivered(P, range(first, first + 500))
        tracker.complete(at(*range(first, first + 499)))
        tracker.complete(at(first - 1))
        assert tracker.committable() == {P: first + 499}
    assert len(tracker._partitions[P].offsets) < 3_000
