"""Evidence by who asks: what one person cost is one value, so bounds hold although a person's losses are alike."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.registry import parse, spec
from schemas.records import Decision, JoinStatus, Measurement, MetricValue, Observation, WatchedMetric
from streams.promotion import persons
from streams.promotion.apprentice import ApprenticeEvidence
from streams.promotion.persons import UNIT_US
from streams.promotion.policy_difference import PolicyComparison, UnitComparison
from streams.promotion.versions import VersionEvidence
from tests.comparisons import seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator

MINUTE_US = 60_000_000
ALPHA = 0.05


@dataclass
class People:
    """Each errs in so many of their queries as they do, and asks as often as they do; half met the candidate.

    Attributes:
        random: draws all.
        better: how much seldomer the candidate errs.
        days: that they ask on.
    """

    random: Generator
    better: float = 0.0
    count: int = 240
    days: int = 1

    def __iter__(self) -> Iterator[tuple[int, Observation]]:
        """Yield observations with their times, in order."""
        rates = self.random.beta(0.6, 0.9, self.count) * (1.0 - self.better) + self.better
        queries = 1 + self.random.geometric(0.05, self.count)
        found: list[tuple[int, Observation]] = []
        for day in range(self.days):
            is_candidate = self.random.random(self.count) < 0.5
            for who in range(self.count):
                rate = rates[who] - (self.better if is_candidate[who] else 0.0)
                begin_us = day * 24 * UNIT_US + int(self.random.integers(20 * UNIT_US))
                for _ in range(queries[who]):
                    at_us = begin_us + int(self.random.integers(UNIT_US // 2))
                    loss = float(self.random.random() < rate)
                    one = seen(str(len(found)), {"2" if is_candidate[who] else "1": loss})
                    found.append((at_us, one._replace(context=str(who), drawn=f"/{day}")))
        yield from sorted(found, key=lambda each: each[0])


def judged(people: People, *, by_person: bool = True) -> tuple[VersionEvidence, bool]:
    """Return the evidence at the end, and whether the bounds ever missed the truth."""
    fold, has_missed = VersionEvidence("forest", "2", "1"), False
    for place, (at_us, one) in enumerate(people):
        fold.take(one if by_person else one._replace(drawn=""), at_us)
        if place % 100 == 99:
            found = fold.evidence(ALPHA)
            has_missed |= not found.lower <= people.better <= found.upper
    return fold, has_missed


def test_bounds_by_person_hold_and_those_by_query_do_not() -> None:
    """Where both versions are the same: of 24 runs, each looked at all the time."""
    missed = [
        [judged(People(np.random.default_rng(seed), count=100), by_person=by_person)[1] for seed in range(24)]
        for by_person in (True, False)
    ]
    assert sum(missed[0]) <= 1
    assert sum(missed[1]) >= 6


def test_a_better_version_is_found_in_some_days_and_by_how_much() -> None:
    """It errs in a fifth of the queries fewer; the next day draws anew."""
    fold, has_missed = judged(People(np.random.default_rng(7), better=0.2, count=400, days=3))
    found = fold.evidence(ALPHA)
    assert found.is_better
    assert not has_missed
    assert found.difference == pytest.approx(0.2, abs=0.06)


def test_a_person_counts_once_in_a_draw_however_often_they_ask() -> None:
    """By hand: a mean of a half and of none; an hour later nothing more is taken of them, with the next draw it is."""
    fold = VersionEvidence("forest", "2", "1")
    for at_us, who, losses in (
        (0, "ann", {"2": 1.0}),
        (1, "ann", {"2": 0.0}),
        (2, "bob", {"1": 0.0}),
        (3, "bob", {"2": 1.0}),  # a share that has grown gives him to the candidate: too late for this draw
        (UNIT_US + 3, "cat", {"1": 1.0}),
        (UNIT_US + 4, "ann", {"2": 1.0}),
    ):
        fold.take(seen(str(at_us), losses)._replace(context=who, drawn="/0"), at_us)
    found = fold.evidence(ALPHA)
    assert (found.pairs, found.difference, found.cost, found.answers) == (1, -0.5, 1.0, 2.0)
    fold.take(seen("later", {"2": 0.0})._replace(context="ann", drawn="/1"), 3 * UNIT_US)
    fold.take(seen("last", {"2": 0.0})._replace(context="dan", drawn="/1"), 5 * UNIT_US)
    assert fold.evidence(ALPHA).pairs == 2


def test_queries_that_draw_for_themselves_are_compared_as_before() -> None:
    """Bit for bit, although people are known."""
    folds = VersionEvidence("forest", "2", "1"), VersionEvidence("forest", "2", "1")
    for at_us, one in People(np.random.default_rng(1), count=60):
        folds[0].take(one._replace(drawn=""), at_us)
        folds[1].take(one._replace(drawn="", context=None), at_us)
    assert folds[0].evidence(ALPHA) == folds[1].evidence(ALPHA)


def test_metrics_are_compared_by_person_too() -> None:
    """Ten answers of each took as long as they take there: that is one comparison, not ten."""
    fold = VersionEvidence("forest", "2", "1", metrics=(WatchedMetric("digits", "took", 1.0),))
    for number in range(22):
        version, loss = ("2", 0.2) if number % 2 else ("1", 0.6)
        one = seen(str(number), {version: loss})
        about = one.query_id, one.application, version, one.decision, (MetricValue("took", loss, loss),)
        at_us = number * MINUTE_US if number < 20 else 2 * UNIT_US
        fold.measure(Measurement(*about, (f"forest@{version}",), drawn="/0" if number < 20 else "/1"), at_us)
    (found,) = fold.measured(ALPHA)
    assert found.pairs == 1
    assert found.difference == pytest.approx(0.4)


def test_an_apprentice_is_judged_by_person_by_its_metrics_too() -> None:
    """Two people ask ten times each: that is two comparisons, as soon as somebody asks an hour later."""
    metrics = (WatchedMetric("digits", "took", 1.0),)
    fold = ApprenticeEvidence("digits", "single(arm=1)", "single()", MINUTE_US, metrics=metrics)
    for number in range(21):
        arm = number % 2
        decision = Decision((arm,), 0, "digits", "single()", ("slow", "quick"), (0.5, 0.5))
        about = str(number), "digits", f"person {arm}", decision, (MetricValue("took", 0.0, 0.2 if arm else 0.6),)
        at_us = number * MINUTE_US if number < 20 else 2 * UNIT_US
        fold.measure(Measurement(*about, drawn="/0" if number < 20 else "/1"), at_us)
    (found,) = fold.measured(ALPHA)
    assert found.pairs == 2
    assert found.difference > 0.0


def test_an_apprentice_is_judged_by_person_too() -> None:
    """Four queries of one person are one comparison, of their mean."""
    policy = spec(parse("exp3"))
    decision = Decision((0,), 0, "digits", policy, ("good", "bad"), (0.5, 0.5))
    fold = ApprenticeEvidence("digits", "single(arm=1)", policy, UNIT_US)
    for number in range(12):
        who = "ann" if number < 4 else f"user-{number}"
        one = Observation(
            str(number), "digits", who, decision, (1.0, None), 1.0, None, JoinStatus.JOINED, 0, 0, drawn="/0"
        )
        fold.take(one, number * MINUTE_US)
    assert fold.evidence(ALPHA).pairs == 0
    fold.take(one._replace(query_id="last", context="zoe"), 2 * UNIT_US)
    assert fold.evidence(ALPHA).pairs == 9


def test_an_apprentice_of_a_state_for_each_context_is_judged_by_the_query() -> None:
    """There the query draws the arm, although the person draws the version; so by the loss, and by metrics."""
    policy, metrics = spec(parse("exp3")), (WatchedMetric("digits", "took", 1.0),)
    decision = Decision((0,), 0, "digits/ann", policy, ("good", "bad"), (0.5, 0.5))
    fold = ApprenticeEvidence("digits", "single(arm=1)", policy, UNIT_US, metrics=metrics)
    for number in range(12):
        one = Observation(
            str(number), "digits", "ann", decision, (1.0, None), 1.0, None, JoinStatus.JOINED, 0, 0, drawn="/0"
        )
        fold.take(one, number * 20 * MINUTE_US)
        about = str(number), "digits", "ann", decision, (MetricValue("took", 0.5, 0.5),)
        fold.measure(Measurement(*about, drawn="/0"), number * 20 * MINUTE_US)
    assert [each.pairs for each in (fold.evidence(ALPHA), *fold.measured(ALPHA))] == [12, 12]


def asked_by_ann(count: int, first: int = 0) -> Iterator[Observation]:
    """Yield observations of one person, whose losses differ."""
    policy = spec(parse("exp3"))
    for number in range(first, first + count):
        decision = Decision((number % 2,), 0, "digits", policy, ("good", "bad"), (0.25, 0.75))
        losses = (number % 5 / 4, None) if number % 2 == 0 else (None, number % 3 / 2)
        loss = losses[number % 2]
        yield Observation(
            str(number), "digits", "ann", decision, losses, loss, None, JoinStatus.JOINED, 0, 0, drawn="/0"
        )


def test_a_person_takes_as_much_memory_however_often_they_ask() -> None:
    """A program that asks ten times a second, for an hour, is one person too."""
    fold = ApprenticeEvidence("digits", "single(arm=1)", spec(parse("exp3")), UNIT_US)
    taken = []
    tracemalloc.start()
    for first in range(0, 6_000, 2_000):
        for at_us, one in enumerate(asked_by_ann(2_000, first)):
            fold.take(one, first + at_us)
        taken.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert taken[2] - taken[0] < 20_000


def test_what_a_person_costs_is_the_mean_of_all_within_the_widest_range() -> None:
    """As if all of it had been kept."""
    unit, kept = UnitComparison(), [PolicyComparison(0.5, -1.0, 0.75, 1.0, 0.5, 0.25, 1.0)]
    assert unit.mean is None
    kept.append(PolicyComparison(-0.25, -0.5, 2.0, 3.0, 1.0, 0.5, 0.5))
    for one in kept:
        unit.add(one)
    assert unit.mean == PolicyComparison(0.125, -1.0, 2.0, 2.0, 0.75, 0.375, 0.75)


def test_of_too_many_who_ask_at_once_those_who_began_first_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count by what they had cost by then, and once."""
    monkeypatch.setattr(persons, "MOST_OPEN", 3)
    fold = VersionEvidence("forest", "2", "1")
    for at_us in range(20):
        losses = {"21"[at_us % 2]: at_us % 2 / 2}
        fold.take(seen(str(at_us), losses)._replace(context=str(at_us), drawn="/0"), at_us)
    found = fold.evidence(ALPHA)
    assert (found.pairs, found.difference) == (8, 0.5)
    fold.take(seen("again", {"2": 1.0})._replace(context="0", drawn="/0"), 20)
    assert replace(fold.evidence(ALPHA), waiting=0) == replace(found, waiting=0)


@pytest.mark.parametrize("is_policy", [False, True])
def test_evidence_that_nobody_can_add_to_says_so_until_somebody_new_comes(*, is_policy: bool) -> None:
    """Three people ask twice an hour: all count once, whatever the share is later; a new draw counts again."""
    policy = spec(parse("exp3"))
    apprentice = ApprenticeEvidence("digits", "single(arm=1)", policy, UNIT_US)
    fold = apprentice if is_policy else VersionEvidence("forest", "2", "1")
    decision = Decision((0,), 0, "digits", policy, ("good", "bad"), (0.5, 0.5))

    def ask(number: int, who: str, drawn: str = "/0") -> None:
        one = seen(f"{number}{who}", {"21"[number // 5 % 2]: 0.5})._replace(context=who, drawn=drawn)
        fold.take(one._replace(decision=decision, losses=(0.5, None)), number * UNIT_US // 2)

    told = []
    for number in range(20):
        for who in ("ann", "bob", "cat"):
            ask(number, who)
        told.append(fold.evidence(ALPHA).is_spent)
    assert told == [False] * 3 + [True] * 17
    for number, who, drawn in ((20, "dan", "/0"), (23, "ann", "/0"), (24, "ann", "/1"), (25, "ann", "/1")):
        ask(number, who, drawn)
        told.append(fold.evidence(ALPHA).is_spent)
    assert told[20:] == [False, True, False, False]
