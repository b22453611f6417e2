"""Policies that ask several models are judged exactly where all outputs are known, and without bias where some are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies import registry
from policies.cascade import ASKED
from policies.combine import combine
from policies.contract import is_stepwise
from policies.draw import uniform
from policies.estimators.estimate import Estimate
from policies.lessons import Lesson
from schemas.records import ModelOutput, Observation, Step
from streams.evaluation.candidate import candidate
from streams.evaluation.errors import EvaluationError
from streams.evaluation.evaluation import Evaluation, evaluate
from streams.evaluation.history import KnownApplication
from streams.evaluation.walk import WalkEnd, ends_by_confidence, together
from tests.walks import OWN, chance, ensemble, population, row

if TYPE_CHECKING:
    from collections.abc import Sequence


def judged_by(rows: Sequence[tuple[Observation, tuple[ModelOutput, ...]]], policy: str) -> Evaluation:
    """Judge a policy by decisions and what was answered, however few there are."""
    outputs = {seen.query_id: known for seen, known in rows}
    past = KnownApplication("shop", tuple([seen for seen, _ in rows]), {}, 10**13, 60.0, outputs=outputs)
    return evaluate(past, candidate(policy), 60.0, least=0.0)


def exactly(found: Evaluation, true: float, names: Sequence[str]) -> None:
    """Hold estimators against what is true."""
    for name in names:
        each = found.estimates[name]
        assert isinstance(each, Estimate), each
        assert each.value == pytest.approx(true, abs=1e-9), name


@pytest.mark.parametrize("worths", [(None, None), (20.0, 40.0)])
def test_of_an_ensembles_log_a_policy_that_asks_in_turn_has_its_exact_value(worths: tuple[float | None, ...]) -> None:
    """By hand: the loss of each end times its chance, on the scale of the dearest; no weight differs from 1."""
    priced = enumerate(ensemble(400))
    rows, costs = [(seen._replace(worth=worths[number % 2]), known) for number, (seen, known) in priced], []
    for seen, known in rows:
        sure = [float(one.scores.numpy().max()) for one in known if one.scores is not None]
        one, two = chance(sure[0]), chance(sure[1])
        first, second, third = (float(loss or 0.0) for loss in seen.losses)
        cost = (1.0 - one) * first + one * (1.0 - two) * second + one * two * third
        costs.append(cost if seen.worth is None else cost * seen.worth / 40.0)
    found, true = judged_by(rows, OWN), float(np.mean(costs))
    exactly(found, true, ("full_information", "ipw", "snipw", "dr"))
    assert found.candidate.mean == pytest.approx(true)
    assert found.difference.mean == pytest.approx(true - found.served.mean)
    assert found.unsupported == 0.0
    assert found.matched == pytest.approx(1.0)


@pytest.mark.parametrize("policy", ["exp4(eta=0.3)", "class_vote(prior=3.0)"])
def test_of_an_ensembles_log_another_ensemble_has_its_exact_value(policy: str) -> None:
    """By hand: its own state folded beside the log, its own weights, the vote, and whether that is the label."""
    rows, own, costs = ensemble(150), registry.parse(policy), []
    state = own.init(3)
    for seen, known in rows:
        answers = {arm: one.answer for arm, one in enumerate(known) if one.answer is not None}
        votes = own.vote_weights(state, 3)(answers) if hasattr(own, "vote_weights") else own.weights(state, 3)
        answer, _ = combine(votes if isinstance(votes, dict) else dict(enumerate(votes)), answers)
        costs.append(float(answer != 0))
        told = tuple([one if isinstance(one, int) else None for one in answers.values()])
        state = own.observe(state, 3, Lesson((0, 1, 2), (1.0, 1.0, 1.0), seen.losses, answers=told, label=0))
    exactly(judged_by(rows, policy), float(np.mean(costs)), ("full_information", "ipw", "snipw"))
    assert 0.0 < np.mean(costs) < 1.0


def test_of_an_ensembles_log_a_cascade_learns_from_what_it_would_have_asked() -> None:
    """By hand: the same draws as live, the losses of what these asked, and the state that follows."""
    rows, own, costs = ensemble(400), registry.parse("cascade(budget=0.4,risk=0.2)"), []
    state, kept = own.init(3), Counter[int]()
    for seen, known in rows:
        steps, asked, reached, cost = own.steps(state, 3), (0,), 1.0, 0.0  # type: ignore[attr-defined]
        taken: list[Step] = []
        going = True
        while (ask := steps.after(asked, {arm: known[arm] for arm in asked})) is not None:
            cost += reached * (1.0 - ask.probability) * float(seen.losses[asked[-1]] or 0.0)
            reached *= ask.probability
            if going:
                going = uniform(seen.query_id, f"step {len(taken) + 1}") < ask.probability
                outcome = ASKED if going else "kept"
                taken.append(Step("escalate", ask.arms, 0, ask.probability, outcome, ask.confidence, ask.threshold))
            asked += ask.arms
        costs.append(cost + reached * float(seen.losses[2] or 0.0))
        there = 1 + sum(step.outcome == ASKED for step in taken)
        kept[there] += 1
        losses = [loss if arm < there else None for arm, loss in enumerate(seen.losses)]
        state = own.observe(state, 3, Lesson(tuple(range(there)), (1.0, 1.0, 1.0), losses, steps=tuple(taken)))
    exactly(judged_by(rows, "cascade(budget=0.4,risk=0.2)"), float(np.mean(costs)), ("full_information", "ipw"))
    assert len(kept) == 3


def test_of_the_log_of_others_questions_it_has_no_bias_though_weights_are_large() -> None:
    """By enumeration: each case comes as often as it is likely, so inverse propensities give the exact mean.

    So does `dr`, whose model must not know the ends apart, and the paired difference, which no bound may cut.
    """
    rows, true, paid = population()
    found = judged_by(rows, OWN)
    exactly(found, true, ("ipw", "snipw", "dr"))
    assert found.candidate.mean == pytest.approx(true)
    assert found.difference.mean == pytest.approx(true - paid)
    assert found.unsupported == 0.0
    assert found.matched is not None
    assert 0.5 < found.matched < 0.9


def test_a_log_that_asked_one_model_a_time_is_refused_with_the_share_that_matches() -> None:
    """It never asked two together: of what follows the first answer it knows nothing."""
    random = np.random.default_rng(1)
    rows = []
    for number in range(600):
        arm = int(random.choice(3, p=[0.04, 0.48, 0.48]))
        rows.append(row(number, (0.0, 1.0, 0.0), (0.7, 0.7, 0.7), (arm,), (0.04, 0.48, 0.48)))
    outputs = {seen.query_id: known for seen, known in rows}
    past = KnownApplication("shop", tuple([seen for seen, _ in rows]), {}, 10**13, 60.0, outputs=outputs)
    with pytest.raises(EvaluationError, match=r"the outputs for [12]\.\d% of what .*InTurn.* 5% are needed"):
        evaluate(past, candidate(OWN), 60.0)
    found = evaluate(past, candidate(OWN), 60.0, least=0.0)
    assert found.unsupported == pytest.approx(0.5, abs=0.2)
    assert "knows nothing of" in found.recommendation


def test_without_any_output_it_says_what_to_record() -> None:
    """Observations alone do not hold what models have answered."""
    with pytest.raises(EvaluationError, match="record the topic predictions"):
        evaluate(KnownApplication("shop", (ensemble(1)[0][0],), {}, 10**13, 60.0), candidate("exp4"), 60.0)


def test_feedback_without_labels_does_not_tell_what_another_answer_costs() -> None:
    """The loss of what was served says nothing of an answer between two models'."""
    rows = [
        (seen._replace(label=None), tuple([one._replace(answer=float(at)) for at, one in enumerate(known)]))
        for seen, known in ensemble(20)
    ]
    with pytest.raises(EvaluationError, match=r"in \d+ of 20 decisions nobody knows"):
        judged_by(rows, "exp4")


@pytest.mark.parametrize(
    ("shares", "steps", "arms", "likely"),
    [
        ((1.0, 1.0, 1.0), (), (0, 1, 2), 1.0),
        ((0.2, 0.3, 0.5), (), (1,), 0.3),
        ((0.2, 0.3, 0.5), (), (0, 1), 0.0),
        ((1.0, 0.5, 0.25), (Step("escalate", (1,), 0, 0.5, ASKED),), (0, 1, 2), 0.25),
        ((1.0, 0.5, 0.0), (), (0, 1), 0.5),
    ],
)
def test_how_likely_arms_are_asked_together_follows_from_what_is_logged(
    shares: tuple[float, ...], steps: tuple[Step, ...], arms: tuple[int, ...], likely: float
) -> None:
    """All for certain; one of them; never two of those of which one is drawn; questions in turn."""
    seen, _ = row(0, (0.0, 0.0, 0.0), (0.9, 0.9, 0.9), (0,), shares, steps)
    assert together(seen, arms) == likely


def test_a_cascade_that_begins_with_more_models_goes_by_outputs_and_not_by_the_logs_confidences() -> None:
    """By hand: where no risk is taken it asks all, and the last one errs in one of four cases."""
    rows, _, _ = population()
    found = judged_by(rows, "cascade(first=2,risk=0.0)")
    exactly(found, 0.25, ("ipw", "snipw"))
    assert found.unsupported == 0.0


def test_without_outputs_the_log_of_other_questions_tells_a_cascade_nothing() -> None:
    """It ends where nothing is known, and not in an error; of its own questions it goes by the log's confidences."""
    rows, _, _ = population()
    asked_on = next(seen for seen, _ in rows if len(seen.decision.chosen) == 3)
    one, two = (registry.parse(f"cascade(first={first})") for first in (1, 2))
    assert is_stepwise(one)
    assert is_stepwise(two)
    assert [*ends_by_confidence(two.steps(two.init(3), 3), asked_on)] == [WalkEnd((0, 1), 1.0, is_known=False)]
    assert [*ends_by_confidence(one.steps(one.init(3), 3), asked_on)] == [WalkEnd((0, 1, 2), 1.0)]
