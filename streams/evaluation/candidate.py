"""What another policy would have done, decision by decision: its own propensities, its state a fold of the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from policies import registry
from policies.contract import Situation, is_answering, is_choosing, is_contextual, is_stepwise
from streams.evaluation.errors import EvaluationError
from streams.evaluation.items import Choosing
from streams.evaluation.replayed_states import fold_along
from streams.evaluation.several import Several
from streams.operators.cold_start import lesson, started

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeGuard

    from policies.contract import Policy, State
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


def candidate(text: str) -> JudgedPolicy | Several:
    """Return the candidate that a text names: `always:MODEL`, `exp3`, `exp3:eta=0.1,gamma=0.1` or `exp3(eta=0.1)`.

    Raises:
        PolicyError: there is no such policy or parameter.
        EvaluationError: it goes by what no log of observations holds.
    """
    if text.startswith(ALWAYS):
        return Always(text.removeprefix(ALWAYS))
    name, colon, parameters = text.partition(":")
    is_short = colon and name in registry.POLICIES
    policy = registry.parse(f"{name}({parameters})" if is_short else text)
    if is_choosing(policy):
        return Choosing(policy)
    if (is_contextual(policy) and policy.uses != "features") or is_answering(policy):
        goes_by = "what the models compute" if is_answering(policy) else "how long models take"
        raise EvaluationError(
            f"{policy.name} goes by {goes_by}, which observations do not hold: replay the queries with it instead"
            f" (`skysail replay FOLDER --offline --set policy={policy.name}`)"
        )
    return Several(policy) if is_stepwise(policy) or policy.full_information else Learning(policy)


def asks_several(policy: JudgedPolicy | Several) -> TypeGuard[Several]:
    """Tell whether a policy asks several models about a query, so that it is judged by what these have answered."""
    return isinstance(policy, Several)


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
        if hasattr(policy, "features_of") and not seen.decision.features:
            raise EvaluationError(
                f"{policy.name} makes its features of the inputs, and the log of another policy has none: replay the"
                f" queries with it instead (`skysail replay FOLDER --offline --set policy={policy.name}`)"
            )
        if is_contextual(policy):
            within: Callable[[Situation], tuple[float, ...]] = policy.propensities_in(state, len(arms))
            return within(Situation(seen.decision.features))
        return policy.propensities(state, len(arms))
