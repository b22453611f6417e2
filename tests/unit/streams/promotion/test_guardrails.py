"""A candidate takes over when its loss is better and each guardrail holds, and goes back when one is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import (
    Candidate,
    Decision,
    JoinStatus,
    Measurement,
    MetricValue,
    Observation,
    VersionLoss,
    WatchedMetric,
)
from streams.promotion.apprentice import ApprenticeEvidence
from streams.promotion.guardrails import guardrails, share_of, told
from streams.promotion.lifecycle import Lifecycle, comparison, next_verdict
from streams.promotion.verdict import Action, CandidateStage
from tests.loops import CODEC

if TYPE_CHECKING:
    from streams.promotion.evidence import Comparison
    from streams.promotion.verdict import Verdict

DECISION = Decision((0,), 0, "shop", "single()", ("model",), (1.0,))
LATENCY = WatchedMetric("shop", "latency", 200.0, "ms", 10.0)
SOLD = WatchedMetric("shop", "sold", 50.0, "EUR")
STAGE = CandidateStage(0.5, 0)
WINDOW_US = 60_000_000


def plan(*metrics: WatchedMetric, alpha: float = 0.05) -> Candidate:
    """Return the wish for version 2 of a model over version 1."""
    return Candidate("version", "model", "2", "1", 0, (0.5, 1.0), alpha=alpha, budget=1e9, metrics=metrics)


def told_of(query: int, version: str, **losses: float) -> tuple[Observation, Measurement]:
    """Return what one query has cost, and what its metrics came to."""
    loss = losses.pop("loss")
    versions = (VersionLoss("model", version, loss),)
    seen = Observation(
        f"q{query}", "shop", None, DECISION, (loss,), loss, None, JoinStatus.JOINED, 0, 0, versions=versions
    )
    values = tuple([MetricValue(name, 0.0, value) for name, value in losses.items()])
    return seen, Measurement(f"q{query}", "shop", None, DECISION, values, (f"model@{version}",))


def fed(wish: Candidate, seed: int, count: int, gain: float = 0.0, **worse: float) -> Comparison:
    """Return a comparison after so many queries.

    Args:
        wish: the plan.
        seed: of the draws.
        count: of queries.
        gain: by how much less the candidate's mean loss is than 0.5.
        worse: by metric: by how much more its mean is than 0.3, as a loss.
    """
    found, random = comparison(wish, WINDOW_US), np.random.default_rng(seed)
    is_candidate = random.random(count) < 0.5
    draws = {name: random.random(count) for name in ("loss", *worse)}
    for query in range(count):
        mine = bool(is_candidate[query])
        means = {"loss": 0.5 - gain * mine, **{name: 0.3 + more * mine for name, more in worse.items()}}
        losses = {name: float(draws[name][query] < mean) for name, mean in means.items()}
        seen, measured = told_of(query, "2" if mine else "1", **losses)
        found.measure(measured, 0)
        found.take(seen, 0)
    return found


def verdict(wish: Candidate, found: Comparison) -> Verdict:
    """Return what is to be done at a share of a half."""
    return next_verdict(wish, STAGE, found.evidence(wish.alpha), 1, {}, guardrails(wish, found))


def test_a_better_candidate_without_guardrails_takes_over() -> None:
    """Its metrics are shown alone."""
    wish = plan(replaced(LATENCY, None), SOLD)
    assert verdict(wish, fed(wish, 1, 2_000, 0.2, latency=0.3, sold=0.0)).action is Action.PROMOTE


def test_a_better_candidate_that_may_be_slower_is_held_back_and_one_that_is_goes_back() -> None:
    """20 ms more is no guardrail of 10 ms; the words say which, by how much and in what unit."""
    wish = plan(LATENCY, SOLD)
    held = verdict(wish, fed(wish, 1, 1_200, 0.25, latency=0.05, sold=0.0))
    assert held.action is Action.STAY
    assert held.reason.startswith("latency is not shown to hold its guardrail yet: ")
    assert "at most 10 ms worse" in held.reason
    back = verdict(wish, fed(wish, 1, 4_000, 0.25, latency=0.3, sold=0.0))
    assert back.action is Action.BACK
    assert back.reason.startswith("latency breaks its guardrail: ")


def test_a_candidate_whose_guardrails_are_shown_to_hold_takes_over() -> None:
    """A tenth faster: not worse than by 10 ms for sure."""
    wish = plan(LATENCY)
    assert verdict(wish, fed(wish, 1, 2_000, 0.2, latency=-0.1)).action is Action.PROMOTE


def test_a_metric_that_nobody_measured_holds_a_candidate_back() -> None:
    """Silence is no proof: a shadow, which answers nobody, changes nobody's latency."""
    wish = plan(LATENCY)
    found = verdict(wish, fed(wish, 1, 2_000, 0.3))
    assert found.action is Action.STAY
    assert "0 comparisons" in found.reason


def test_a_broken_guardrail_sends_back_what_has_taken_over() -> None:
    """Compared with the holdback."""
    wish = plan(LATENCY)
    found = fed(wish, 1, 4_000, 0.25, latency=0.3)
    over = CandidateStage(1.0, 0)
    beside = guardrails(wish, found)
    assert next_verdict(wish, over, found.evidence(wish.alpha), 1, {}, beside).action is Action.BACK


def test_differences_are_told_in_the_unit() -> None:
    """A difference of losses of -0.1 is 20 ms of a span of 200 ms."""
    wish = plan(LATENCY)
    (found,) = guardrails(wish, fed(wish, 1, 4_000, 0.0, latency=0.1)).metrics
    assert found.lower < -20.0 < found.upper
    assert found.difference == pytest.approx(-20.0, abs=6.0)
    assert told(found).startswith(f"{-found.difference:.4g} ms worse [")


def test_those_that_may_send_back_share_alpha() -> None:
    """The loss and each guardrail; a metric without one sends nobody back."""
    assert share_of(plan(LATENCY, SOLD, replaced(SOLD, 1.0))) == pytest.approx(0.05 / 3)
    assert share_of(plan()) == 0.05


def _ever(wish: Candidate, seed: int, action: Action, **world: float) -> bool:
    """Tell whether a candidate ever gets a verdict, looked at eight times."""
    found, random = comparison(wish, WINDOW_US), np.random.default_rng(seed)
    gain, names = world.pop("gain"), [watched.metric for watched in wish.metrics]
    for query in range(400):
        mine = bool(random.random() < 0.5)
        means = {"loss": 0.5 - gain * mine, **{name: 0.3 + world.get(name, 0.0) * mine for name in names}}
        seen, measured = told_of(
            query, "2" if mine else "1", **{n: float(random.random() < m) for n, m in means.items()}
        )
        found.measure(measured, 0)
        found.take(seen, 0)
        if query % 50 == 49 and verdict(wish, found).action is action:
            return True
    return False


@pytest.mark.parametrize("others", [0, 3])
def test_a_candidate_at_its_guardrail_is_promoted_in_error_no_more_often_than_alpha(others: int) -> None:
    """As much worse as may not be; other guardrails, which hold by far, change nothing: no correction is needed."""
    slack = [WatchedMetric("shop", f"m{number}", 1.0, "", 0.5) for number in range(others)]
    wish = plan(WatchedMetric("shop", "latency", 200.0, "ms", 20.0), *slack, alpha=0.2)
    wrong = sum(_ever(wish, seed, Action.PROMOTE, gain=0.4, latency=0.1) for seed in range(20))
    assert wrong <= 0.2 * 20


def test_candidates_that_are_as_good_go_back_in_error_no_more_often_than_alpha() -> None:
    """Six guardrails of 0, all at their limit: one that fails is enough, so each has a part of alpha."""
    wish = plan(*[WatchedMetric("shop", f"m{number}", 1.0, "", 0.0) for number in range(6)], alpha=0.3)
    wrong = sum(_ever(wish, seed, Action.BACK, gain=0.0) for seed in range(20))
    assert wrong <= 0.3 * 20


def test_the_step_says_how_it_compared_by_each_metric() -> None:
    """So a page, a person and a replay know why."""
    wish = plan(LATENCY, SOLD)
    lifecycle = Lifecycle(WINDOW_US)
    lifecycle.wish("version/model", wish)
    (begun,) = lifecycle.steps(1)
    lifecycle.past(begun)
    for query in range(3_000):
        mine = query % 2
        losses = {"loss": float(query % 4 < 2 - mine), "latency": 0.2, "sold": 0.4 - 0.2 * mine}
        seen, measured = told_of(query, "2" if mine else "1", **losses)
        lifecycle.measure(measured, 2)
        lifecycle.observe(seen, 2)
    (step,) = lifecycle.steps(10)
    assert step.action == "promote"
    assert [(one.metric, round(one.difference, 6), one.unit) for one in step.metrics] == [
        ("latency", 0.0, "ms"),
        ("sold", 10.0, "EUR"),
    ]
    assert CODEC.decode(type(step), CODEC.encode(step)) == step


def replaced(watched: WatchedMetric, guardrail: float | None) -> WatchedMetric:
    """Return a metric with another guardrail."""
    return watched._replace(guardrail=guardrail)


def test_mean_losses_are_by_weight_and_the_difference_keeps_its_sign() -> None:
    """Nine light losses of 1 and a heavy one of 0: the mean is a half, not nine tenths of a ninth."""
    found = comparison(plan(), WINDOW_US)
    for query in range(20):
        heavy = query >= 18
        seen, _ = told_of(query, "1" if query % 2 else "2", loss=0.0 if heavy else 1.0)
        found.take(seen._replace(weight=0.9 if heavy else 0.1), 0)
    known = found.evidence(0.05)
    assert known.candidate_loss == pytest.approx(0.5)
    assert known.incumbent_loss == pytest.approx(0.5)
    assert known.difference == pytest.approx(0.0)


@pytest.mark.parametrize("is_label_first", [False, True])
def test_an_apprentice_is_judged_by_a_metric_as_it_was_before_its_query_taught_it(*, is_label_first: bool) -> None:
    """Both would have asked either model alike: no difference, whether the label or the metric is told first."""
    spec = "exp3(eta=1,gamma=0.01,share=0)"
    decision = Decision((0,), 0, "shop", "ucb1()", ("one", "other"), (0.5, 0.5))
    seen = Observation("q", "shop", None, decision, (1.0, None), 1.0, None, JoinStatus.JOINED, 0, 0)
    measured = Measurement("q", "shop", None, decision, (MetricValue("latency", 200.0, 1.0),))
    judged = ApprenticeEvidence("shop", spec, "ucb1()", WINDOW_US, metrics=(LATENCY,))
    if is_label_first:
        judged.take(seen, 0)
    judged.measure(measured, 0)
    (found,) = judged.measured(0.05)
    assert (found.pairs, found.difference) == (1, 0.0)
    if not is_label_first:
        judged.take(seen, 0)
    assert judged.evidence(0.05).pairs == 1


def test_an_apprentice_that_asks_what_is_quick_is_shown_to_be_quicker() -> None:
    """Weighted by how likely it would have asked what was asked; a query that asked several tells nothing."""
    judged = ApprenticeEvidence("shop", "single(arm=1)", "single()", WINDOW_US, metrics=(LATENCY,))
    random = np.random.default_rng(1)
    for query in range(3_000):
        arm = int(random.random() < 0.5)
        decision = Decision((arm,), 0, "shop", "single()", ("slow", "quick"), (0.5, 0.5))
        value = MetricValue("latency", 0.0, 0.2 if arm else 0.6)
        judged.measure(Measurement(f"q{query}", "shop", None, decision, (value,)), 0)
    both = Decision((0, 1), 0, "shop", "single()", ("slow", "quick"), (1.0, 1.0))
    judged.measure(Measurement("both", "shop", None, both, (MetricValue("latency", 0.0, 0.5),)), 0)
    (found,) = judged.measured(0.05)
    assert found.lower < 0.2 < found.upper
    assert found.lower > 0.1
    assert found.left_out == 1
