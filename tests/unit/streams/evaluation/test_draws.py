"""Where those who ask draw, a policy is judged by draws: whoever asks four times tells no more than who asks once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from deploy.evaluation import words
from policies.estimators.estimate import Estimate
from streams.evaluation.candidate import Always, candidate
from streams.evaluation.evaluation import Evaluation, evaluate
from streams.evaluation.history import KnownApplication
from streams.evaluation.measured import metrics_of
from tests.histories import observation, served
from tests.unit.streams.evaluation.test_metrics_judged import world
from tests.unit.streams.evaluation.test_several import judged_by
from tests.walks import OWN, population

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Observation

ONCE = served("epsilon_greedy(epsilon=1.0)", 1_000)
TIMES = 4


def judged(observations: Iterable[Observation], policy: str = "always:good") -> Evaluation:
    """Evaluate them when they have ended long ago."""
    return evaluate(KnownApplication("shop", tuple(observations), {}, 10**13, 60.0), candidate(policy), 60.0)


def often(*, draw: str) -> list[Observation]:
    """Return them with each person asking four times, in turns, with the same answer."""
    return [
        one._replace(
            query_id=f"{one.query_id}-{again}",
            context=f"ann-{who}",
            drawn=draw,
            predicted_us=one.predicted_us + again * 2_000_000_000,
            observed_us=one.observed_us + again * 2_000_000_000,
        )
        for again in range(TIMES)
        for who, one in enumerate(ONCE)
    ]


def test_asking_four_times_tells_no_more() -> None:
    """All bounds, errors, intervals and samples are those of asking once."""
    found, once = judged(often(draw="/0")), judged(ONCE)
    for name in ("served", "candidate", "difference"):
        assert getattr(found, name) == pytest.approx(getattr(once, name), abs=1e-9)
    assert (found.decisions, found.draws) == (4_000, 1_000)
    assert found.effective == pytest.approx(once.effective)
    for name in ("ipw", "snipw"):
        each, its = found.estimates[name], once.estimates[name]
        assert isinstance(each, Estimate)
        assert isinstance(its, Estimate)
        for field in ("value", "error", "effective", "largest"):
            assert getattr(each, field) == pytest.approx(getattr(its, field)), field
        assert (each.low, each.high) == pytest.approx((its.low, its.high), abs=0.003)
    assert [one.decisions for one in found.course] == [TIMES * one.decisions for one in once.course]
    assert "those who ask have drawn: 1,000 draws, each of which is one value" in "\n".join(words.story(found))


@pytest.mark.parametrize("state", ["shop/ann", "shop"])
def test_where_queries_draw_for_themselves_each_counts(state: str) -> None:
    """So it is without `assign`, and where each context has a state of its own."""
    draw = "" if state == "shop" else "/0"
    found = judged([one._replace(decision=one.decision._replace(state=state)) for one in often(draw=draw)])
    assert found.draws is None
    assert width(found) < 0.75 * width(judged(ONCE))


def width(found: Evaluation) -> float:
    """Return how far the bounds of the difference are apart."""
    return found.difference.high - found.difference.low


def people(seed: int, count: int = 60, queries: int = 20) -> list[Observation]:
    """Return what people cost who differ, and are alike in all that they ask; both models are as good."""
    found: list[Observation] = []
    random = np.random.default_rng(seed)
    for who in range(count):
        rate, arm = random.beta(0.5, 0.5), int(random.integers(2))
        for _ in range(queries):
            loss = float(random.random() < rate)
            one = observation(len(found), arm, [loss if at == arm else None for at in range(3)], (0.5, 0.5, 0.0))
            found.append(one._replace(context=str(who), drawn="/0"))
    return found


def test_bounds_by_draw_hold_and_those_by_query_do_not() -> None:
    """Both models are the same, so none costs more than what serves: of 20 logs."""
    missed = [
        sum(not low <= 0.0 <= high for _, low, high in [judged(each, "always:fair").difference for each in logs])
        for logs in (
            [people(seed) for seed in range(20)],
            [[one._replace(drawn="") for one in people(seed)] for seed in range(20)],
        )
    ]
    assert missed[0] <= 1
    assert missed[1] >= 3


def test_a_metric_is_judged_by_draws_too() -> None:
    """Four measurements of one draw are one."""
    once = world(600)
    several = tuple(
        [
            one._replace(query_id=f"{one.query_id}-{again}", context=one.query_id, drawn="/0")
            for again in range(TIMES)
            for one in once.measurements
        ]
    )
    again = KnownApplication("shop", (), None, once.until_us, 1.0, "", once.metrics, several)
    for found, its in zip(metrics_of(again, Always("big"), 1.0), metrics_of(once, Always("big"), 1.0), strict=True):
        assert (found.decisions, its.decisions) == (2_400, 600)
        assert found[2:8] == pytest.approx(its[2:8])


def test_a_policy_that_asks_in_turn_is_judged_by_draws_too() -> None:
    """Of the log of one that asks on by a coin: whoever asks twice, with the same answers, tells no more."""
    rows, _, _ = population()
    twice = [
        (seen._replace(query_id=f"{seen.query_id}-{again}", context=seen.query_id, drawn="/0"), outputs)
        for again in range(2)
        for seen, outputs in rows
    ]
    found, once = judged_by(twice, OWN), judged_by(rows, OWN)
    assert (found.decisions, found.draws) == (2 * len(rows), len(rows))
    for name in ("served", "candidate", "difference"):
        assert getattr(found, name) == pytest.approx(getattr(once, name), abs=1e-9)
