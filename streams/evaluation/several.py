"""A policy that asks several models, or asks again: judged where the log has the outputs that it would have needed.

ensembles ask everything at once; cascades, and policies of somebody's own with `steps`, go on by what is answered
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies import registry
from policies.combine import combine
from policies.contract import Situation, is_answer_aware, is_contextual, is_stepwise
from policies.outside import comes_from_outside
from schemas.records import Outcome
from streams.evaluation.answered import by_arm, cost_of, simulated
from streams.evaluation.errors import EvaluationError
from streams.evaluation.replayed_states import fold_along
from streams.evaluation.walk import (
    AskedInTurn,
    WalkEnd,
    ends,
    ends_by_confidence,
    follows,
    may_go_on,
    time_for,
    together,
)
from streams.operators.cold_start import lesson, started

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.contract import Policy, State, Steps
    from policies.estimators.log import Floats
    from schemas.records import ModelOutput, Observation, PolicyState, Value
    from streams.evaluation.history import KnownApplication


class WalkEnds(NamedTuple):
    """What a policy would have come to, a row a decision and a column for each of its ends.

    Attributes:
        logged: probability that the log asked what the policy asks until there.
        target: that the policy ends there.
        losses: NaN where not known.
        unsupported: the share of what it would do that the log can never know.
    """

    logged: Floats
    target: Floats
    losses: Floats
    unsupported: float


class _AskedAtOnce:
    """Asks some arms at once."""

    def __init__(self, first: tuple[int, ...], votes: Mapping[int, float] | object) -> None:
        self.first, self._votes = first, votes

    def after(self, _: tuple[int, ...], __: Mapping[int, ModelOutput]) -> None:
        """Return nothing: everything has been asked."""

    def votes(self, answers: Mapping[int, Value | None]) -> Mapping[int, float]:
        """Return the weight of each answer."""
        return self._votes(answers) if callable(self._votes) else self._votes  # type: ignore[return-value]


class Several:
    """One of Skysail's policies, or one of somebody's own, that asks several models about a query."""

    reads_outputs = True

    def __init__(self, policy: Policy) -> None:
        self.name = registry.spec(policy)
        self.is_of_items: bool | None = False
        self._policy = policy
        self._is_own = comes_from_outside(policy)

    def ends(self, decisions: Sequence[Observation], history: KnownApplication) -> WalkEnds:
        """Fold the log up to each decision, and return where the policy would have ended.

        Raises:
            EvaluationError: the log holds neither outputs nor what a cascade has logged of them.
        """
        if not history.outputs and not any(seen.steps for seen in decisions):
            raise EvaluationError(
                f"{self.name} goes by what several models answer, and the log has no outputs: record the topic"
                " predictions with the observations"
            )
        walked: list[tuple[list[WalkEnd], list[float | None]]] = [([], [])] * len(decisions)
        taught: dict[str, Observation] = {}
        unknown = 0
        outputs = {seen.query_id: by_arm(seen, history) for seen in history.observations}
        told = partial(self._lesson, taught, outputs)
        for row, states in fold_along(decisions, history.observations, told):
            seen = decisions[row]
            known, (values, questions) = outputs.get(seen.query_id, {}), self._asked(states, seen)
            found = self._ends(questions, seen, known)
            costs = [self._loss(seen, known, values, questions, end, history) for end in found]
            unknown += any(end.is_known and cost is None for end, cost in zip(found, costs, strict=True))
            walked[row] = found, costs
            if self._is_simulated(seen) and (its := simulated(questions, seen, known)) is not None:
                taught[seen.query_id] = lesson(its, self.name)
        if unknown:
            raise EvaluationError(
                f"in {unknown:,} of {len(decisions):,} decisions nobody knows what the answer of {self.name} would have"
                " cost: feedback has to be labels, from which the loss of any answer follows"
            )
        return _arrays(decisions, walked)

    def _is_simulated(self, seen: Observation) -> bool:
        """Tell whether it is to learn what it would have asked, of all that was asked at once."""
        return is_stepwise(self._policy) and not seen.steps and len(seen.decision.chosen) > 1

    def _asked(self, states: Mapping[str, PolicyState | None], seen: Observation) -> tuple[State, AskedInTurn]:
        """Return its state for one decision, and what it asks in it."""
        arms, policy = seen.decision.arms, self._policy
        held = states.get(seen.decision.state) or started(states.get(seen.application), self.name)
        values: State = policy.init(len(arms)) if held is None else held.values
        if held is not None and held.arms != arms:
            values = policy.extend(values, held.arms, arms)
        if is_stepwise(policy):
            return values, policy.steps(values, len(arms))
        shares = (
            policy.propensities_in(values, len(arms))(Situation(seen.decision.features))
            if is_contextual(policy)
            else policy.propensities(values, len(arms))
        )
        votes: object = dict(enumerate(policy.weights(values, len(arms))))
        if is_answer_aware(policy):
            votes = policy.vote_weights(values, len(arms))
        return values, _AskedAtOnce(tuple([arm for arm, share in enumerate(shares) if share > 0.0]), votes)

    def _ends(self, questions: AskedInTurn, seen: Observation, known: Mapping[int, ModelOutput]) -> list[WalkEnd]:
        policy = self._policy
        if is_stepwise(policy) and not self._is_own:
            steps: Steps = questions  # type: ignore[assignment]
            if not known or (seen.steps and follows(steps, seen)):
                return [*ends_by_confidence(steps, seen)]
        there = seen.decision.chosen if known else ()
        return [*ends(questions, known, there, time_for(seen))]

    def _lesson(
        self, taught: Mapping[str, Observation], outputs: Mapping[str, Mapping[int, ModelOutput]], seen: Observation
    ) -> Observation | None:
        """Return what an observation teaches it: of everything that an ensemble asked, what it would have asked."""
        if self._is_simulated(seen):
            return taught.get(seen.query_id)
        told = lesson(seen, self.name)
        if not is_answer_aware(self._policy):
            return told
        known = outputs.get(seen.query_id, {})
        answers = [known[arm].answer if arm in known else None for arm in range(len(seen.decision.arms))]
        return told._replace(answers=tuple([one if isinstance(one, int | str) else None for one in answers]))

    def _loss(
        self, seen: Observation, known: Mapping[int, ModelOutput], values: State, questions: AskedInTurn, end: WalkEnd,
        history: KnownApplication,
    ) -> float | None:  # fmt: skip
        """Return what the answer made of these arms' outputs has cost; None = it is not known."""
        if not end.is_known:
            return None
        outputs = {arm: known[arm] for arm in end.asked if arm in known and known[arm].outcome is Outcome.OK}
        answers = {arm: one.answer for arm, one in outputs.items() if one.answer is not None}
        if not known:
            return seen.losses[end.asked[-1] if len(end.asked) > len(questions.first) else end.asked[0]]
        if not answers:
            return max([loss for arm in end.asked if (loss := seen.losses[arm]) is not None], default=None)
        if hasattr(self._policy, "combine"):
            answer = self._policy.combine(values, len(seen.losses), outputs, seen.decision.features)[0]
        else:
            votes = questions.votes({arm: answers.get(arm) for arm in end.asked})
            counted = {arm: one for arm, one in answers.items() if votes.get(arm, 0.0) > 0.0} or answers
            answer = combine(votes, counted, history.combine)[0]
        return cost_of(answer, answers, seen, history.loss)


def _arrays(decisions: Sequence[Observation], walked: Sequence[tuple[list[WalkEnd], list[float | None]]]) -> WalkEnds:
    shape = len(decisions), max(len(found) for found, _ in walked)
    logged, target, losses = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan)
    never = 0.0
    for row, (seen, (found, costs)) in enumerate(zip(decisions, walked, strict=True)):
        for column, (end, cost) in enumerate(zip(found, costs, strict=True)):
            share = together(seen, end.asked)
            logged[row, column], target[row, column] = share, end.chance
            if cost is not None and share > 0.0:
                losses[row, column] = cost
            if not share and not may_go_on(seen):
                never += end.chance / (together(seen, end.before) or 1.0)
    return WalkEnds(logged, target, losses, min(1.0, never / len(decisions)))
