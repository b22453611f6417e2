"""Apprentices: what is compared, what is learnt, and that nothing is promised that the log cannot tell."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import pytest

from policies import registry
from policies.draw import pick
from policies.errors import PolicyError
from schemas.records import (
    Decision,
    JoinStatus,
    Measurement,
    MetricValue,
    Observation,
    Step,
    TeachingBound,
    WatchedMetric,
)
from streams.operators.learn.fold import fold, taught
from streams.operators.policy_state import state_of
from streams.promotion.apprentice import ApprenticeEvidence
from streams.topology import held_out_state
from tests.comparisons import WINDOW_US

ARMS = ("good", "bad")
SERVING = registry.spec(registry.create("epsilon_greedy", {"epsilon": 0.5}))
UNIFORM = registry.spec(registry.create("epsilon_greedy", {"epsilon": 1.0}))
THOMPSON = registry.spec(registry.create("thompson"))


def log(policy: str, count: int, seed: int = 0, context: str | None = None) -> list[Observation]:
    """Play a policy: `good` errs in a tenth, `bad` in four tenths of the queries."""
    random, states, found = np.random.default_rng(seed), {}, []
    name = "app" if context is None else f"app/{context}"
    deciding = registry.parse(policy)
    for number in range(count):
        state = states.get(name)
        values = deciding.init(2) if state is None else state.values
        shares = deciding.propensities(values, 2)
        arm = pick(shares, float(random.random()))
        loss = float(random.random() < (0.1, 0.4)[arm])
        losses = tuple(loss if other == arm else None for other in range(2))
        decision = Decision((arm,), number, name, policy, ARMS, shares)
        seen = Observation(f"q{number}", "app", context, decision, losses, loss, None, JoinStatus.JOINED, 0, 0)
        states |= taught(states, seen, 0, WINDOW_US)
        found.append(seen)
    return found


def folded(observations: list[Observation], policy: str = THOMPSON, incumbent: str = SERVING) -> ApprenticeEvidence:
    """Let an apprentice learn along."""
    fold = ApprenticeEvidence("app", policy, incumbent, WINDOW_US)
    for seen in observations:
        fold.take(seen, 0)
    return fold


def test_one_teacher_judges_an_apprentice_no_further_than_he_may_teach() -> None:
    """Of a hundred that he tells within a minute, five."""
    fold = ApprenticeEvidence("app", THOMPSON, SERVING, WINDOW_US)
    for seen in log(SERVING, 100):
        fold.take(seen._replace(bound=TeachingBound("foe", 5, 0)), 0)
    assert fold.evidence(0.05).pairs == 5


def test_a_better_apprentice_is_shown_to_be_better() -> None:
    """Thompson hardly ever asks the bad model, where the serving policy asks it every fourth time."""
    found = folded(log(SERVING, 4_000)).evidence(0.05)
    assert found.is_better
    assert found.difference == pytest.approx(0.25 * 0.3, abs=0.02)
    assert found.candidate_loss == pytest.approx(0.1, abs=0.02)
    assert 1_000 < found.effective < 4_000
    assert found.cost == 0.0


def test_a_worse_apprentice_is_shown_to_be_worse() -> None:
    """One that asks both equally often."""
    assert folded(log(SERVING, 4_000), policy=UNIFORM).evidence(0.05).upper < 0.0


def test_an_apprentice_like_the_incumbent_makes_no_difference() -> None:
    """It learns the same from the same, so it would do the same."""
    observations = log(THOMPSON, 500)
    found = folded(observations, policy=THOMPSON, incumbent=THOMPSON).evidence(0.05)
    assert found.difference == pytest.approx(0.0, abs=1e-9)
    assert found.lower < 0.0 < found.upper


def test_contexts_have_states_of_their_own() -> None:
    """A user's observations teach that user's state and the one of all."""
    assert folded(log(SERVING, 3_000, context="ann")).evidence(0.05).is_better


def test_decisions_of_other_policies_teach_and_do_not_judge() -> None:
    """Before the incumbent there was another one."""
    found = folded(log(UNIFORM, 300)).evidence(0.05)
    assert found.pairs == 0


def test_what_is_never_asked_speaks_against_an_apprentice() -> None:
    """A log of one model alone cannot show that another is better."""
    single = registry.spec(registry.create("single"))
    found = folded(log(single, 1_000), policy=UNIFORM, incumbent=single).evidence(0.05)
    assert found.lower < 0.0


def test_a_model_that_is_never_asked_is_taken_to_cost_one() -> None:
    """The serving policy asks `good` alone, which errs in a tenth. Half of the apprentice's questions would be unknown.

    So it counts as 0.5 * 0.1 + 0.5 * 1, and looks 0.45 worse; left out, the unknown half would look free.
    """
    single = registry.spec(registry.create("single"))
    found = folded(log(single, 2_000), policy=UNIFORM, incumbent=single).evidence(0.05)
    assert found.candidate_loss == pytest.approx(0.55, abs=0.03)
    assert found.difference == pytest.approx(-0.45, abs=0.03)
    assert found.upper < 0.0


HEDGED = (Step("hedge", (0,), 0, 1.0, "asked"),)


def test_a_query_that_was_hedged_judges_like_any_other() -> None:
    """It was asked the same again; hedged queries are the slow ones, and without them the slow model looks quick."""
    random, plain, hedged = np.random.default_rng(1), [], []
    for seen in log(SERVING, 4_000):
        is_slow = seen.decision.chosen == (1,) and random.random() < 0.3
        loss = 1.0 if is_slow else seen.loss
        losses = tuple(None if known is None else loss for known in seen.losses)
        plain.append(seen._replace(loss=loss, losses=losses))
        hedged.append(plain[-1]._replace(steps=HEDGED if is_slow else ()))
    assert folded(hedged).evidence(0.05) == folded(plain).evidence(0.05)
    assert folded(hedged).evidence(0.05).left_out == 0


def test_an_answer_that_was_decoded_counts_as_what_was_served() -> None:
    """Nothing is known of the model itself; whoever asks it is served the same."""
    plain = log(SERVING, 2_000)
    decoded = [
        seen._replace(losses=(None, None)) if number % 3 == 0 and seen.decision.chosen == (1,) else seen
        for number, seen in enumerate(plain)
    ]
    assert folded(decoded).evidence(0.05).pairs == 2_000
    assert folded(decoded).evidence(0.05).difference == pytest.approx(folded(plain).evidence(0.05).difference, abs=0.02)


def test_what_cannot_be_told_is_counted_and_bounded() -> None:
    """A tenth of the queries has no loss at all: each may have been 1 better or worse."""
    plain = log(SERVING, 4_000)
    some = [seen._replace(losses=(None, None), loss=None) if n % 10 == 0 else seen for n, seen in enumerate(plain)]
    found, without = folded(some).evidence(0.05), folded([seen for n, seen in enumerate(some) if n % 10]).evidence(0.05)
    assert (found.pairs, found.left_out) == (3_600, 400)
    assert found.lower == pytest.approx((3_600 * without.lower - 400) / 4_000)
    assert found.upper == pytest.approx((3_600 * without.upper + 400) / 4_000)


def test_what_a_cascade_asked_tells_nothing_of_another_policy() -> None:
    """It asks by the answers, and so what is known goes by them: no query counts, not even one that asked once."""
    cascade = registry.spec(registry.create("cascade"))
    asked = [seen._replace(decision=seen.decision._replace(policy=cascade)) for seen in log(SERVING, 500)]
    found = folded(asked, incumbent=cascade).evidence(0.05)
    assert (found.pairs, found.left_out, found.lower, found.upper) == (0, 500, -1.0, 1.0)


def test_no_answer_and_no_default_is_an_answer_that_costs() -> None:
    """Where all models vote and all are silent, the user had nothing."""
    voting = registry.spec(registry.create("exp4"))
    decision = Decision((0, 1), 0, "app", voting, ARMS, (1.0, 1.0))
    silent = Observation("q", "app", None, decision, (1.0, 1.0), None, 1, JoinStatus.JOINED, 0, 0)
    found = folded([silent._replace(query_id=f"q{n}") for n in range(10)], incumbent=voting).evidence(0.05)
    assert (found.pairs, found.left_out, found.incumbent_loss) == (10, 0, 1.0)


def test_a_policy_that_lets_all_models_vote_is_refused() -> None:
    """What a vote would have cost is not in the log."""
    with pytest.raises(PolicyError, match="asks all models"):
        folded([], policy="exp4()")


@pytest.mark.parametrize(
    "changes",
    [
        {"chosen": (7,)},
        {"arms": (), "chosen": (), "propensities": ()},
        {"propensities": (1.0,)},
        {"chosen": (0,), "propensities": (5e-324, 1.0)},
    ],
)
def test_what_is_no_lesson_does_not_judge_either(changes: dict[str, Any]) -> None:
    """Anybody may write observations: what fits no decision of ours changes nothing and ends nothing."""
    observations = log(SERVING, 500)
    wrong = observations[7]._replace(decision=observations[7].decision._replace(**changes), losses=(1.0, 1.0))
    found = folded([*observations, wrong, wrong._replace(losses=(1e300, None))]).evidence(0.05)
    known = folded(observations).evidence(0.05)
    assert found.pairs <= known.pairs + 1
    assert found.difference == pytest.approx(known.difference, abs=0.01)
    assert isfinite(found.effective)


def test_lessons_before_the_apprentice_came_count_towards_a_bound() -> None:
    """The learner counts all lessons of a teacher, whoever learns from them: so its states are the apprentice's."""
    bound = TeachingBound("teacher", 5, 0)
    seen = [
        one._replace(decision=one.decision._replace(apprentice=THOMPSON if number >= 3 else ""), bound=bound)
        for number, one in enumerate(log(SERVING, 10))
    ]
    judged = ApprenticeEvidence("app", THOMPSON, SERVING, WINDOW_US, learns_along=True)
    for one in seen:
        judged.take(one, 0)
    learnt = fold([(0, one) for one in seen], WINDOW_US)
    assert judged.states == {name: state_of(state, THOMPSON) for name, state in learnt.items()}
    (state,) = judged.states.values()
    assert state is not None
    assert state.version == 2


@pytest.mark.parametrize("learns_along", [True, False])
def test_who_is_held_out_judges_no_apprentice(*, learns_along: bool) -> None:
    """Nor teaches it: the first model answers them whatever the policy, also where the policy is that model."""
    incumbent = registry.spec(registry.create("single"))
    metric = WatchedMetric("app", "latency", 200.0, "ms", 2.0)
    fold = ApprenticeEvidence("app", UNIFORM, incumbent, WINDOW_US, learns_along=learns_along, metrics=(metric,))
    for seen in log(incumbent, 40, context="ann"):
        decision = seen.decision._replace(state=held_out_state("app"), apprentice=UNIFORM)
        fold.take(seen._replace(decision=decision), 0)
        value = MetricValue("latency", 100.0, 0.5)
        fold.measure(Measurement(seen.query_id, "app", "ann", decision, (value,)), 0)
    assert fold.evidence(0.05).pairs == 0
    assert [found.pairs for found in fold.measured(0.05)] == [0]
    assert not fold.states
