"""Decisions among items as decisions among arms, by the logged `first`: so every estimator judges them.

first, the item that was answered, its loss ─▶ propensities by item, chosen, losses ─▶ the estimators as they are
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies import registry
from policies.contract import chooses_among, is_answering, is_choosing
from policies.errors import PolicyError
from streams.evaluation.errors import EvaluationError
from streams.evaluation.replayed_states import fold_along
from streams.operators.cold_start import started

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.contract import Policy
    from policies.estimators.log import Floats
    from schemas.records import Observation, PolicyState


def as_arms(seen: Observation) -> Observation | None:
    """Return a decision whose arms are its policy's items; None if it did not answer one.

    Items are called by their indices, which stay when candidates come and go.
    """
    items, loss = _items_of(seen), seen.loss
    item = next((answer for answer in seen.answers or () if type(answer) is int), None)
    known = [one for one in _known(seen, items) if one >= 0]
    if len({*known}) < len(known) or max(known, default=-1) >= items:
        return None  # somebody wrote into the log
    shares = [0.0] * items
    for one, share in zip(_known(seen, items), seen.first, strict=False):
        if one >= 0:
            shares[one] = share
    if item is None or not 0 <= item < items or not shares[item] > 0.0:
        return None
    losses = tuple([loss if one == item else None for one in range(items)])
    names = tuple(map(str, range(items)))
    decision = seen.decision._replace(chosen=(item,), arms=names, propensities=tuple(shares))
    return seen._replace(decision=decision, losses=losses)


def are_of_items(log: Sequence[Observation]) -> bool:
    """Tell whether policies that choose among items have decided all of these."""
    return bool(log) and all(map(_items_of, log))


class Choosing:
    """A policy that chooses among items, fed with the log as it would have been beside the one that served.

    It goes by the features and the models' log-odds that were logged, and chooses among the same candidates.
    """

    def __init__(self, policy: Policy) -> None:
        self.name = registry.spec(policy)
        self.is_of_items: bool | None = True
        self._policy = policy
        self._count = int(getattr(policy, "items", 0))

    def propensities(self, decisions: Sequence[Observation], log: Sequence[Observation], arms: Sequence[str]) -> Floats:
        """Fold the log up to each decision, and return how likely the policy would have chosen each item.

        Raises:
            EvaluationError: it has other items, or what the models computed is not logged.
        """
        if len(arms) != self._count:
            raise EvaluationError(
                f"{self.name} chooses among {self._count} items, and the log's decisions among {len(arms)}: set items"
            )
        found = np.zeros((len(decisions), len(arms)))
        told = [seen._replace(decision=seen.decision._replace(policy=self.name, apprentice="")) for seen in log]
        for row, states in fold_along(decisions, told):
            found[row] = self._shares(states, decisions[row])
        return found

    def _shares(self, states: Mapping[str, PolicyState | None], seen: Observation) -> Floats:
        """Return its probabilities for one decision, by item."""
        scores, policy = seen.scores or (), self._policy
        assert is_answering(policy)
        held = states.get(seen.decision.state) or started(states.get(seen.application), self.name)
        values = policy.init(len(scores)) if held is None else held.values
        read = policy.reading(values, len(scores))
        items = [one for one in _known(seen, self._count) if one >= 0]
        computed = {arm: one for arm, one in enumerate(scores) if one is not None}
        assert chooses_among(read)
        reading, best = read.among(items, computed, seen.decision.features, 1, 0.0)
        if not best:
            raise EvaluationError("the log does not hold what the models computed for these items")
        shares = np.zeros(self._count)
        shares[items] = reading.first
        return shares


def _items_of(seen: Observation) -> int:
    """Return how many items the policy that decided chooses among; 0 = it does not."""
    try:
        policy = registry.parse(seen.decision.policy)
    except PolicyError:
        return 0
    return int(getattr(policy, "items", 0)) if is_choosing(policy) else 0


def _known(seen: Observation, items: int) -> Sequence[int]:
    """Return the items that could have been answered, in the order of `first`; -1 for a candidate that is none."""
    return range(items) if seen.ranked is None else seen.ranked.items
