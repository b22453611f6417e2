"""Whole ways of candidates, and restarts in the middle of them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from streams.promotion.lifecycle import Lifecycle
from tests.comparisons import SECOND_US, canary, plan

if TYPE_CHECKING:
    from schemas.records import Candidate, Observation, Promotion

KEY = "version/forest"


class Way:
    """One candidate in a deployment that answers a query every 10 ms and looks at it every second."""

    def __init__(self, wanted: Candidate, candidate: float, incumbent: float, seed: int = 0) -> None:
        self.wanted = wanted
        self.rates = candidate, incumbent
        self.seed = seed
        self.log: list[tuple[int, Observation]] = []
        self.steps: list[Promotion] = []
        self.lifecycle = self.started()

    def started(self) -> Lifecycle:
        """Return what a new process makes of the topics."""
        lifecycle = Lifecycle(600_000_000)
        lifecycle.wish(KEY, self.wanted)
        for step in self.steps:
            lifecycle.past(step)
        for timestamp_us, observation in self.log:
            lifecycle.observe(observation, timestamp_us)
        return lifecycle

    @property
    def actions(self) -> list[tuple[str, float]]:
        """What has been done."""
        return [(step.action, step.share) for step in self.steps]

    def run(self, seconds: int) -> None:
        """Let time go by."""
        for _ in range(seconds):
            share = self.steps[-1].share if self.steps else 0.0
            answered = min(share, 1.0 - self.wanted.holdback)
            begin = len(self.log)
            queries = canary(self.seed + begin, answered, *self.rates, first=begin)
            for number, observation in enumerate(islice(queries, 100)):
                now_us = (begin + number) * 10_000
                self.log.append((now_us, observation))
                self.lifecycle.observe(observation, now_us)
            for step in self.lifecycle.steps(len(self.log) * 10_000):
                self.steps.append(step)
                self.lifecycle.past(step)


def test_a_better_version_goes_all_the_way() -> None:
    """From share to share, and it stays while a holdback keeps the baseline measurable."""
    way = Way(plan(holdback=0.05), 0.05, 0.25)
    way.run(100)
    assert way.actions == [("begin", 0.1), ("step", 0.25), ("step", 0.5), ("promote", 1.0)]
    assert KEY in way.lifecycle.courses


def test_a_worse_version_goes_back_and_is_over() -> None:
    """It may be wished for again, and then begins anew."""
    way = Way(plan(), 0.5, 0.1)
    way.run(100)
    assert way.actions == [("begin", 0.1), ("back", 0.0)]
    assert KEY not in way.lifecycle.courses
    way.lifecycle.wish(KEY, plan())  # the same record, read again
    assert KEY not in way.lifecycle.courses
    way.lifecycle.wish(KEY, plan(since_us=1_000 * SECOND_US))
    assert way.lifecycle.courses[KEY].stage is None


def test_what_turns_after_it_took_over_goes_back() -> None:
    """The evidence begins anew when it takes over, so that a good past does not hide a bad present."""
    way = Way(plan(holdback=0.1), 0.05, 0.25)
    way.run(100)
    assert way.actions[-1] == ("promote", 1.0)
    way.rates = 0.5, 0.25
    way.run(100)
    assert way.actions[-1] == ("back", 0.0)


def test_a_restart_continues_where_it_was() -> None:
    """The same steps, byte for byte, whether the process was restarted every 40 s or never."""
    whole, halting = (Way(plan(holdback=0.05), 0.05, 0.2, seed=7) for _ in range(2))
    for _ in range(10):
        whole.run(40)
        halting.lifecycle = halting.started()
        halting.run(40)
    assert whole.steps == halting.steps
    assert len(whole.steps) == 4


def test_steps_may_be_read_before_their_wish() -> None:
    """They stand in another topic: a restart must not begin again with what has got far."""
    way = Way(plan(holdback=0.1), 0.05, 0.25)
    way.run(100)
    assert way.actions[-1] == ("promote", 1.0)
    lifecycle = Lifecycle(600_000_000)
    for step in way.steps:
        lifecycle.past(step)
    lifecycle.wish(KEY, way.wanted)
    stage = lifecycle.courses[KEY].stage
    assert stage == way.lifecycle.courses[KEY].stage
    assert lifecycle.courses[KEY].from_us == way.steps[-1].time_us


def test_a_withdrawn_wish_ends_the_way() -> None:
    """Without a step: who withdraws it says what shall be."""
    way = Way(plan(), 0.1, 0.1)
    way.run(3)
    way.lifecycle.wish(KEY, None)
    way.run(100)
    assert way.actions == [("begin", 0.1)]


def test_every_step_carries_its_evidence() -> None:
    """Enough to see afterwards why it was taken."""
    way = Way(plan(), 0.05, 0.25)
    way.run(100)
    last = way.steps[-1]
    assert last.action == "promote"
    assert last.lower > 0.0
    assert last.lower < last.difference < last.upper
    assert last.pairs > way.steps[1].pairs > 0
    assert last.candidate_loss is not None
    assert last.reason == "it is better"
