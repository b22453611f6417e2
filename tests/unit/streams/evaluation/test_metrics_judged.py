"""What a candidate would have come to by a metric is the mean of a world that is known, in the metric's unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deploy.evaluation import words
from policies.metrics import loss_of
from schemas.records import Decision, Measurement, Metric, MetricValue
from streams.evaluation.candidate import Always, candidate
from streams.evaluation.history import KnownApplication
from streams.evaluation.measured import MetricJudgement, metrics_of
from streams.topology import held_out_state

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


def is_within(judged: MetricJudgement, truth: float) -> bool:
    """Tell whether a difference lies within the bounds of what is known."""
    return judged.low is not None and judged.high is not None and judged.low <= truth <= judged.high


def test_means_and_differences_are_those_of_the_world() -> None:
    """By hand: always `big` sells 20 instead of 13, and takes 60 ms instead of 32; nothing is known of the third."""
    sold, took = metrics_of(world(4_000), Always("big"), 1.0)
    assert (sold.metric, sold.unit, sold.decisions) == ("sold", "EUR", 4_000)
    assert sold.served == pytest.approx(13.0, abs=0.4)
    assert sold.candidate == pytest.approx(20.0, abs=1.2)
    assert is_within(sold, 7.0)
    assert took.served == pytest.approx(32.0, abs=1.0)
    assert took.candidate == pytest.approx(60.0, abs=3.0)
    assert is_within(took, 28.0)


def test_a_guardrail_holds_or_is_broken_or_is_not_shown_yet() -> None:
    """More sales are better, more time is worse."""
    assert [each.verdict for each in metrics_of(world(4_000), Always("big"), 1.0)] == ["holds", "broken"]
    assert [each.verdict for each in metrics_of(world(4_000), Always("small"), 1.0)] == ["broken", "holds"]
    assert [each.verdict for each in metrics_of(world(20), Always("big"), 1.0)] == ["not shown", "not shown"]


def test_nothing_is_said_of_a_candidate_that_would_ask_what_was_never_asked() -> None:
    """Its weights are all 0, which is no cost of 0; JSON has null, and the table says why."""
    known = metrics_of(world(400, share=1.0), Always("small"), 1.0)
    assert [(each.verdict, each.candidate, each.low, each.unsupported) for each in known] == [
        ("not known", None, None, 1.0)
    ] * 2
    assert words.metrics(known)[0][3] == "not known: 100% of what it would ask was never asked"
    assert [each.unsupported for each in metrics_of(world(400), Always("small"), 1.0)] == [0.0, 0.0]


def test_who_is_held_out_and_what_was_forgotten_do_not_count() -> None:
    """The first is not the policy's; of the second only those were told who bought, where silence has a value."""
    known = world(200)
    held_out = Decision((0,), 0, held_out_state("shop"), "single()", ARMS, (1.0, 0.0))
    others = [one._replace(query_id=f"{one.query_id} held out", decision=held_out) for one in known.measurements]
    sold = known.measurements[0]._replace(query_id="forgotten", final_us=9)
    withdrawn = sold._replace(values=())
    both = replace(known, measurements=(*known.measurements, *others, sold, withdrawn))
    assert metrics_of(both, Always("big"), 1.0) == metrics_of(known, Always("big"), 1.0)


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
        held += is_within(sold, 7.0)
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
