"""Laws of the offset tracker, against a model that remembers everything."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streams.operators.contract import Position, Span
from streams.runtime.offsets import OffsetTracker

P = ("queries", 3)


class TrackerMachine(RuleBasedStateMachine):
    """Delivers with gaps, completes in any order (also nonsense), commits, seeks."""

    @initialize(start=st.integers(0, 5))
    def begin(self, start: int) -> None:
        """Assign the partition."""
        self.tracker = OffsetTracker()
        self.tracker.assign(P, start)
        self.start = start
        self.next = start
        self.open: set[int] = set()
        self.delivered: list[int] = []
        self.committed = 0

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def deliver(self, gaps: list[int]) -> None:
        """A poll brings records; some offsets are missing."""
        offsets = []
        for gap in gaps:
            offsets.append(self.next + gap)
            self.next = offsets[-1] + 1
        self.tracker.delivered(P, offsets)
        self.delivered += offsets
        self.open |= set(offsets)

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        """Any offsets are completed, outstanding or not."""
        offsets = data.draw(st.lists(st.integers(0, self.next + 2), max_size=5))
        self.tracker.complete(Position(*P, offset) for offset in offsets)
        self.open -= set(offsets)

    @rule(data=st.data())
    def complete_spans(self, data: st.DataObject) -> None:
        """Whole spans are completed, delivered or not, across gaps; as if every offset of them was."""
        ends = st.lists(st.tuples(st.integers(0, self.next + 2), st.integers(0, 9)), max_size=3)
        spans = [Span(*P, begin, begin + size) for begin, size in data.draw(ends)]
        ignored = self.tracker.ignored_total
        self.tracker.complete_spans(spans)
        named = [offset for span in spans for offset in range(span.begin, span.end)]
        assert self.tracker.ignored_total - ignored == len(named) - len(self.open & set(named))
        self.open -= set(named)

    @rule(count=st.integers(1, 2_000))
    def deliver_a_batch(self, count: int) -> None:
        """A whole batch comes: a range of offsets."""
        self.tracker.delivered(P, range(self.next, self.next + count))
        self.delivered += range(self.next, self.next + count)
        self.open |= {*range(self.next, self.next + count)}
        self.next += count

    @rule()
    def complete_all(self) -> None:
        """A partition's records all get their outcome at once."""
        self.tracker.complete_spans([Span(*P, self.start, self.next)])
        self.open.clear()

    @rule()
    def commit(self) -> None:
        """The broker accepts what is offered."""
        offsets = self.tracker.committable()
        self.tracker.committed(offsets)
        self.committed = max(self.committed, *offsets.values(), 0)

    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        """The partition starts over, from anywhere up to here."""
        self.start = self.next = data.draw(st.integers(0, self.next))
        self.tracker.assign(P, self.start)
        self.open.clear()
        self.delivered.clear()

    @invariant()
    def never_skips_an_incomplete_record(self) -> None:
        """Whatever is offered lies at or before the first incomplete record, and after the last commit."""
        for offset in self.tracker.committable().values():
            assert offset <= min(self.open, default=self.next)
            assert offset > self.committed

    @invariant()
    def offers_the_whole_prefix(self) -> None:
        """Nothing complete is withheld: the position is the end of the longest completed prefix."""
        prefix = self.start
        for offset in self.delivered:
            if offset in self.open:
                break
            prefix = offset + 1
        assert self.tracker.position(P) == prefix

    @invariant()
    def counts_what_is_outstanding(self) -> None:
        """The count is exact."""
        assert self.tracker.outstanding() == len(self.open)


TrackerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestTracker = TrackerMachine.TestCase


@settings(max_examples=20, deadline=None)
@given(st.permutations(list(range(3_000))[:60]), st.integers(1, 100))
def test_any_order_of_completion_ends_at_the_same_offset(order: list[int], stride: int) -> None:
    """The end depends on what was completed, not on when."""
    tracker = OffsetTracker()
    tracker.assign(P)
    tracker.delivered(P, [index * stride for index in range(60)])
    for index in order:
        tracker.complete([Position(*P, index * stride)])
        tracker.committable()
    assert tracker.committable() == {P: 59 * stride + 1}
