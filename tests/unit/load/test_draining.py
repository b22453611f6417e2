"""A backlog that nobody reads the answers to before all are written, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from load.harness import flood as backlog
from load.harness.flood import Drained, drain, make
from load.harness.wire import Arrival, Wire
from load.harness.workload import Rows
from schemas import topics
from schemas.codec import Codec
from schemas.records import Prediction, Query, Status
from tests.wires import VirtualWire

if TYPE_CHECKING:
    from collections.abc import Iterator

CODEC = Codec()
EVERY_US = 10_000
WRITING_US = 45_000


class FakeWire(VirtualWire):
    """A system that answers a query every 10 ms, from the first on, though writing them all takes 45."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.held: list[bool] = []
        self._answers, self._made = answers, 0

    def produce(self, topic: str, key: bytes, value: bytes) -> None:
        """Schedule the answer to a query, if there is to be one."""
        assert topic == topics.QUERIES
        query = CODEC.decode(Query, value)
        if self._made < self._answers:
            self._made += 1
            at_us = self._made * EVERY_US
            answer = Prediction(
                query.query_id, query.application, query.context, None, Status.COMPLETE, None, 1, 1.0, (), 0, 0, 0, 0
            )
            self.arrive(Arrival(topics.PREDICTIONS, 0, at_us, key, CODEC.encode(answer)), at_us)

    def flush(self, timeout_s: float = 30.0) -> int:
        """Let the time pass that writing takes."""
        self.time_us = WRITING_US
        return 0

    def hold(self) -> None:
        """Fetch nothing."""
        self.held.append(True)

    def go_on(self) -> None:
        """Fetch again."""
        self.held.append(False)

    def appended(self, *, asking: bool = False) -> int:
        """Return how many answers there are by now, while nothing is fetched."""
        assert asking
        assert self.held == [True]
        return sum(at_us <= self.time_us for at_us, _ in self._due)

    def written(self) -> Iterator[Arrival]:
        """Yield what there is by now."""
        assert self.held == [True, False]
        yield from self.poll(0)


def _drained(monkeypatch: pytest.MonkeyPatch, wire: FakeWire, count: int) -> Drained:
    def sleep(seconds: float) -> None:
        wire.time_us += round(seconds * 1e6)

    monkeypatch.setattr(backlog.time, "sleep", sleep)
    queries = make(Rows("digits", ["a"]), CODEC, count, 0)
    return drain(queries, cast("Wire", wire), wire.now_us, limit_s=1.0)


def test_a_backlog_is_drained_at_the_rate_of_the_answers_after_all_queries_were_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of twenty answers four come before; the rate ends with the nineteenth: 15 in 145 ms."""
    assert _drained(monkeypatch, FakeWire(answers=20), 20) == Drained(pytest.approx(15 / 0.145), 0)


def test_what_has_no_answer_within_the_limit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer that came ends the rate."""
    assert _drained(monkeypatch, FakeWire(answers=10), 12) == Drained(pytest.approx(6 / 0.055), 2)
