"""What another policy would have done, decision by decision: its own propensities, its state a fold of the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from policies import registry
from policies.cascade import ASKED
from policies.contract import Situation, is_choosing, is_contextual, is_stepwise
from policies.outside import comes_from_outside
from streams.evaluation.errors import EvaluationError
from streams.evaluation.items import Choosing
from streams.evaluation.replayed_states import fold_along
from streams.operators.cold_start import lesson, started

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policies.contract import Policy, State, Steps
    from policies.estimators.log import Floats
    from schemas.records import Observation, PolicyState

ALWAYS = "always:"
_ROUNDED = 1e-6


class JudgedPolicy(Protocol):
    """A policy that is judged.

    Attributes:
        name: of it.
        is_of_items: whether it chooses among items; None = whatever was decided on.
    """

    name: str
    is_of_items: bool | None

    def propensities(self, decisions: Sequence[Observation], log: Sequence[Observation], arms: Sequence[str]) -> Floats:
        """Return the probability with which it would have asked each arm: (decisions, arms), rows sum to 1.

        Args:
            decisions: that are judged.
            log: all observations in their order: those seen before a decision are what the policy knows by then.
            arms: the columns; a decision's own arms are among them.

        Raises:
            EvaluationError: it cannot be judged by this log.
        """
        ...


def candidate(text: str) -> JudgedPolicy:
    """Return the candidate that a text names: `always:MODEL`, `exp3`, `exp3:eta=0.1,gamma=0.1` or `exp3(eta=0.1)`.

    Raises:
        PolicyError: there is no such policy or parameter.
        EvaluationError: it asks all models, so its answers are not in the log.
    """
    if text.startswith(ALWAYS):
        return Always(text.removeprefix(ALWAYS))
    name, colon, parameters = text.partition(":")
    is_short = colon and name in registry.POLICIES
    policy = registry.parse(f"{name}({parameters})" if is_short else text)
    if is_choosing(policy):
        return Choosing(policy)
    if is_stepwise(policy) and comes_from_outside(policy):
        raise EvaluationError(
            f"{policy.name} asks again by what is answered, which observations do not hold: replay the queries with it"
            f" instead (`skysail replay FOLDER --offline --set policy={policy.name}`)"
        )
    if policy.full_information or (is_contextual(policy) and policy.uses != "features"):
        raise EvaluationError(
            f"{policy.name} asks all models and combines their answers, which observations do not hold: replay the"
            f" queries with it instead (`skysail replay FOLDER --offline --set policy={policy.name}`)"
        )
    return Learning(policy)


def _served(steps: Steps, seen: Observation) -> Sequence[float]:
    """Return how likely each arm's answer would have been served, by the confidences that were logged.

    Raises:
        EvaluationError: they were not.
    """
    if not seen.steps and len(seen.decision.arms) > len(steps.first):
        raise EvaluationError(
            "a policy that asks again goes by the confidence of answers, which the log of another policy does not hold:"
            " replay the queries with it instead (`skysail replay FOLDER --offline --set policy=cascade`)"
        )
    shares, reached = [0.0] * len(seen.decision.arms), 1.0
    last = 0
    for question, step in enumerate(seen.steps):
        last = step.arms[0]
        chance = steps.chance(question, step.confidence) if step.probability else 0.0
        shares[step.arms[0] - 1] += reached * (1.0 - chance)
        reached *= chance
        if step.outcome != ASKED:
            break
    shares[last] += reached
    return shares


class Always:
    """Asks one model, whatever happens."""

    def __init__(self, model: str) -> None:
        self.name = ALWAYS + model
        self.is_of_items: bool | None = None
        self._model = model

    def propensities(self, decisions: Sequence[Observation], log: Sequence[Observation], arms: Sequence[str]) -> Floats:
        """Return 1 for the model."""
        if self._model not in arms:
            raise EvaluationError(f"no decision could have taken {self._model}; there are: {', '.join(arms)}")
        found = np.zeros((len(decisions), len(arms)))
        found[:, list(arms).index(self._model)] = 1.0
        return found


class Learning:
    """One of Skysail's policies, fed with the log as it would have been beside the one that served."""

    def __init__(self, policy: Policy) -> None:
        self.name = registry.spec(policy)
        self.is_of_items: bool | None = False
        self._policy = policy

    def propensities(self, decisions: Sequence[Observation], log: Sequence[Observation], arms: Sequence[str]) -> Floats:
        """Fold the log up to each decision, and return what the policy would have done in its situation."""
        found = np.zeros((len(decisions), len(arms)))
        columns = {arm: column for column, arm in enumerate(arms)}
        for row, states in fold_along(decisions, [lesson(seen, self.name) for seen in log]):
            decision = decisions[row]
            shares = self._shares(states, decision)
            if sum(shares) > 1.0 + _ROUNDED:
                raise EvaluationError(
                    f"{self.name} asks several models: what they would have answered is not in the log"
                )
            for arm, share in zip(decision.decision.arms, shares, strict=True):
                found[row, columns[arm]] = share
        return found

    def _shares(self, states: Mapping[str, PolicyState | None], seen: Observation) -> Sequence[float]:
        """Return its propensities for one decision's arms."""
        arms, policy = seen.decision.arms, self._policy
        held = states.get(seen.decision.state) or started(states.get(seen.application), self.name)
        state: State = policy.init(len(arms)) if held is None else held.values
        if held is not None and held.arms != arms:
            state = policy.extend(state, held.arms, arms)
        if is_stepwise(policy):
            return _served(policy.steps(state, len(arms)), seen)
        if hasattr(policy, "features_of") and not seen.decision.features:
            raise EvaluationError(
                f"{policy.name} makes its features of the inputs, and the log of another policy has none: replay the"
                f" queries with it instead (`skysail replay FOLDER --offline --set policy={policy.name}`)"
            )
        if is_contextual(policy):
            within: Callable[[Situation], tuple[float, ...]] = policy.propensities_in(state, len(arms))
            return within(Situation(seen.decision.features))
        return policy.propensities(state, len(arms))
