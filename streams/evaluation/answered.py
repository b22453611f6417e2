"""What the outputs in a log tell: what another answer made of them costs, and what another policy had asked of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.cascade import ASKED
from policies.draw import uniform
from policies.errors import LossError
from policies.loss_rules import rule
from schemas.records import Outcome, Step, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import ModelOutput, Observation, Value
    from streams.evaluation.history import KnownApplication
    from streams.evaluation.walk import AskedInTurn


def cost_of(answer: Value | None, answers: Mapping[int, Value], seen: Observation, kind: str) -> float | None:
    """Return what an answer has cost: as much as the same answer of a model, else what the label says."""
    alike = [seen.losses[arm] for arm, one in answers.items() if type(one) is type(answer) and one == answer]
    if alike and alike[0] is not None:
        return alike[0]
    if answer is None or seen.label is None:
        return None
    try:
        scores = answer if isinstance(answer, Tensor) and rule(kind).of_scores else None
        return rule(kind).loss(answer, seen.label, scores, (), 1.0 if seen.span is None else seen.span)
    except LossError:
        return None


def by_arm(seen: Observation, history: KnownApplication) -> Mapping[int, ModelOutput]:
    """Return what came in time, by arm."""
    places = {model: arm for arm, model in enumerate(seen.decision.arms)}
    made = (history.outputs or {}).get(seen.query_id, ())
    return {places[one.model]: one for one in made if one.model in places and one.outcome is not Outcome.MISSING}


def simulated(questions: AskedInTurn, seen: Observation, known: Mapping[int, ModelOutput]) -> Observation | None:
    """Return a query about which everything was asked as if the policy had asked, by the draws that it would have had.

    None where it would have asked what the log has not.
    """
    steps: list[Step] = []
    asked, reached = questions.first, 1.0
    shares = [1.0 if arm in asked else 0.0 for arm in range(len(seen.losses))]
    while True:
        if not all(arm in seen.decision.chosen for arm in asked):
            return None
        ask = questions.after(asked, {arm: known[arm] for arm in asked if arm in known})
        if ask is None:
            break
        is_asked = uniform(seen.query_id, f"step {len(steps) + 1}") < ask.probability
        its = ask.arms, seen.predicted_us, ask.probability, ASKED if is_asked else "kept"
        steps.append(Step("escalate", *its, ask.confidence, ask.threshold))
        reached *= ask.probability
        for arm in ask.arms:
            shares[arm] = reached
        if not is_asked:
            break
        asked += ask.arms
    losses = tuple([loss if arm in asked else None for arm, loss in enumerate(seen.losses)])
    decision = seen.decision._replace(chosen=asked, propensities=tuple(shares))
    return seen._replace(decision=decision, losses=losses, steps=tuple(steps))
