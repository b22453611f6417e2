"""Turns of the loop: a call that stalls once in thousands of ids is the longest one, and all of the traffic is real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from load.research.operation import turns
from schemas import topics
from schemas.codec import Codec
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.learn.kernel import Learner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Effects, Record


class Clock:
    """CPU time that passes as it is told to."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        """Return the time."""
        return self.ns


class Moving(Learner):
    """A learner whose calls take 1 ms; that with the call of this number takes 40 more, to move its table."""

    def __init__(self, clock: Clock, call: int) -> None:
        super().__init__(Codec())
        self._clock, self._left = clock, call

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take observations, and some time."""
        self._left -= 1
        self._clock.ns += 1_000_000 if self._left else 41_000_000
        return super().on_records(records, now_us)


def loop(learner: Learner, known: int) -> turns.Loop:
    """Return a loop whose learner is to know so many ids."""
    return turns.Loop(Joiner(Codec(), JoinerSettings(4)), learner, known, seed=5)


@pytest.mark.parametrize(("call", "growing_ms", "traffic_ms"), [(3, 41, 1), (9, 1, 41), (99, 1, 1)])
def test_one_call_that_moves_a_table_is_the_longest(call: int, growing_ms: float, traffic_ms: float) -> None:
    """One of the five that read back, one of those after them, or none."""
    clock = Clock()
    growing, traffic = turns.Turns(clock), turns.Turns(clock)
    moving = loop(Moving(clock, call), 5 * 64)
    moving.read_back(moving.traffic(1, turns.Turns()), growing)
    moving.traffic(500, traffic)
    assert growing.figures("growing_", p50=50) == {"growing_longest_ms": growing_ms, "growing_p50_ms": 1}
    assert traffic.figures()["longest_ms"] == traffic_ms


def test_all_that_is_asked_is_learnt_and_all_that_was_read_back_is_known() -> None:
    """A copy of the log teaches nothing; its last record is shorter."""
    learner = Learner(Codec())
    asked = loop(learner, 100)
    partition = asked.traffic(120, turns.Turns())
    asked.read_back(partition, turns.Turns())
    assert learner.statistics()["applied_total{application=digits}"] == 120
    again = loop(Learner(Codec()), 100)
    again.traffic(120, turns.Turns())
    copies = [again._log(partition, offset)._replace(offset=1_000 + offset) for offset in (0, 1)]
    assert [record.topic for record in copies] == [topics.OBSERVATIONS] * 2
    learner.on_records(copies, turns._NOW_US)
    assert learner.statistics()["duplicate_observations_total{application=digits}"] == 100


def test_figures_are_all_declared() -> None:
    """Of a loop in small."""
    assert set(turns.measure(200, 100, seed=1)) == {figure.name for figure in turns.FIGURES}
