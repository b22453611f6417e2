"""What a candidate would have come to by a metric is the mean of a world that is known, in the metric's unit."""

from __future__ import annotations

import numpy as np
import pytest

from policies.metrics import loss_of
from schemas.records import Decision, Measurement, Metric, MetricValue
from streams.evaluation.candidate import Always, candidate
from streams.evaluation.history import KnownApplication
from streams.evaluation.measured import metrics_of

SOLD = Metric("sold", is_higher_better=True, least=0.0, most=50.0, unit="EUR", guardrail=0.5)
TOOK = Metric("took", "latency", most=100.0, unit="ms", guardrail=5.0)
STARS = Metric("stars", most=5.0)
ARMS = ("big", "small")
MEANS = {"big": (20.0, 60.0), "small": (10.0, 20.0)}  # sold, took
HOUR_US = 3_600_000_000
CHOOSING = "two_speed(features=1,items=4)"


def world(count: int, seed: int = 1, share: float = 0.3) -> KnownApplication:
    """Return a history in which `big` was asked with a probability, and sells more, and takes longer."""
    random, found = np.random.default_rng(seed), []
    for number in range(count):
        arm = 0 if random.random() < share else 1
        decision = Decision((arm,), 0, "shop", "single()", ARMS, (share, 1.0 - share))
        sold, took = (mean * random.uniform(0.5, 1.5) for mean in MEANS[ARMS[arm]])
        for metric, value in ((SOLD, sold), (TOOK, took)):
            told = (MetricValue(metric.name, value, loss_of(metric, value)),)
            found.append(Measurement(f"q{number}", "shop", None, decision, told, (), number, number))
    return KnownApplication("shop", (), None, HOUR_US, 1.0, "", (SOLD, TOOK, STARS), tuple(found))


def test_means_and_differences_are_those_of_the_world() -> None:
    """By hand: always `big` sells 20 instead of 13, and takes 60 ms instead of 32; nothing is known of the third."""
    sold, took = metrics_of(world(4_000), Always("big"), 1.0)
    assert (sold.metric, sold.unit, sold.decisions) == ("sold", "EUR", 4_000)
    assert sold.served == pytest.approx(13.0, abs=0.4)
    assert sold.candidate == pytest.approx(20.0, abs=1.2)
    assert sold.low < 7.0 < sold.high
    assert took.served == pytest.approx(32.0, abs=1.0)
    assert took.candidate == pytest.approx(60.0, abs=3.0)
    assert took.low < 28.0 < took.high


def test_a_guardrail_holds_or_is_broken_or_is_not_shown_yet() -> None:
    """More sales are better, more time is worse."""
    assert [each.verdict for each in metrics_of(world(4_000), Always("big"), 1.0)] == ["holds", "broken"]
    assert [each.verdict for each in metrics_of(world(4_000), Always("small"), 1.0)] == ["broken", "holds"]
    assert [each.verdict for each in metrics_of(world(20), Always("big"), 1.0)] == ["not shown", "not shown"]


def test_copies_count_once_and_open_windows_do_not_count() -> None:
    """The first value of a query is the one that counts."""
    known = world(50)
    last = known.measurements[-1]
    again = last._replace(values=(last.values[0]._replace(loss=0.0),))
    late = last._replace(query_id="late", predicted_us=HOUR_US)
    both = KnownApplication("shop", (), None, HOUR_US, 1.0, "", known.metrics, (*known.measurements, again, late))
    assert metrics_of(both, Always("big"), 1.0) == metrics_of(known, Always("big"), 1.0)


def test_intervals_hold_as_often_as_they_say() -> None:
    """In forty worlds, at 90 %."""
    held = 0
    for seed in range(40):
        sold, _ = metrics_of(world(300, seed), Always("big"), 1.0, 0.1)
        held += sold.low <= 7.0 <= sold.high
    assert held >= 36


def test_a_policy_that_asks_several_models_is_not_compared() -> None:
    """Decisions that asked one alone would be those in which it needed no other."""
    assert metrics_of(world(50), candidate("cascade"), 1.0) == ()


def test_by_decisions_among_items_metrics_are_not_compared() -> None:
    """A measurement says which model was asked, and not which item was answered; an item is no arm of it."""
    known = world(50)
    chosen = [one._replace(decision=one.decision._replace(policy=CHOOSING)) for one in known.measurements]
    among = KnownApplication("shop", (), None, HOUR_US, 1.0, "", known.metrics, tuple(chosen))
    assert metrics_of(among, candidate("always:3"), 1.0) == ()
    assert metrics_of(known, candidate(CHOOSING), 1.0) == ()
