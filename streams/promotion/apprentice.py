"""Evidence on a policy that learns along and answers nothing: an apprentice.

Each observation first judges the apprentice, then teaches it, as the learner does. Where the serving policy asked one
model, with propensity p, and the apprentice would ask it with q, the apprentice's loss is estimated by w = q / p:

    difference = (1 - w) (loss - b),  b = mean loss so far

Its mean is that of the losses, as 1 - w has a mean of 0; b keeps it small. Where all models' losses are known, nothing
is estimated. A model that the serving policy never asks, but the apprentice would, is taken to cost 1. Where nothing is
known of the model itself, as its answer was decoded or an input refused, the served answer's loss is taken: it would
have been served all the same. Queries of which nothing can be told are counted, and the bounds allow for them: each
may have been anything.

Source of the weights: Dudik, Langford and Li, Doubly robust policy evaluation and learning, ICML 2011.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from policies import registry
from policies.contract import Situation, is_contextual, is_stepwise
from policies.errors import PolicyError
from policies.estimators.sequence import ConfidenceSequence
from streams.operators.cold_start import lesson, started
from streams.operators.configuration import HEDGE, apprentice
from streams.operators.learn.bounds import LessonCounts
from streams.operators.learn.fold import checked, taught
from streams.operators.weighing import weighed
from streams.promotion.evidence import Totals
from streams.promotion.persons import Units
from streams.promotion.serving_losses import served_loss

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Observation, PolicyState
    from streams.promotion.evidence import Evidence

# States of contexts that are kept; those used longest ago start anew.
_STATES = 100_000
# Who is asked more seldom counts as never asked: squares of weights stay finite.
_LEAST_SHARE = 1e-100


class _PolicyComparison(NamedTuple):
    """What one query tells: the difference of the losses, in [least, most], and what it is made of."""

    value: float
    least: float
    most: float
    weight: float
    loss: float
    own: float


def _together(unit: Sequence[_PolicyComparison]) -> _PolicyComparison:
    """Return the comparisons of one unit as one: their mean, within the widest of their ranges."""
    count = len(unit)
    value, _, _, weight, loss, own = [sum(column) / count for column in zip(*unit, strict=True)]
    least, most = min(each.least for each in unit), max(each.most for each in unit)
    return _PolicyComparison(value, least, most, weight, loss, own)


class ApprenticeEvidence:
    """Folds observations of an application into the states of an apprentice, and into the evidence on it.

    Args:
        application: name.
        policy: of the apprentice, as `policies.registry.spec()` writes it.
        incumbent: what is compared with: decisions of other policies teach, and do not judge.
        window_us: how long states of other policies are kept beside one; the learner's.
        learns_along: whether it is the application's apprentice. Then what teaches it in the learner counts, and its
            states are those that the learner stores, bit for bit. Else all counts, as if it had learnt along.

    Raises:
        PolicyError: there is no such policy, or it asks all models and lets them vote.
    """

    def __init__(
        self, application: str, policy: str, incumbent: str, window_us: int, *, learns_along: bool = False
    ) -> None:
        self._application = application
        self._incumbent = incumbent
        self._policy = apprentice(policy)
        self._spec = registry.spec(self._policy)
        self._learns_along = learns_along
        self._window_us = window_us
        self._states: OrderedDict[str, PolicyState | None] = OrderedDict()
        self._counts = LessonCounts()
        self._units: Units[list[_PolicyComparison]] = Units(list)
        self._now_us = 0
        self._difference = ConfidenceSequence()
        self._weights = self._weight_squares = self._loss = self._own_loss = 0.0
        self._left_out = 0

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Judge the apprentice by one observation, then teach it; those of an application are in one partition."""
        if seen.application != self._application:
            return
        reach = self._counts.reach(seen, timestamp_us)  # of every lesson, as the learner counts them
        if self._learns_along and seen.decision.apprentice != self._spec:
            return
        self._now_us = timestamp_us
        for unit in self._units.close(timestamp_us) if seen.drawn else ():
            self._add(_together(unit))
        its = lesson(seen, self._spec)
        try:
            checked(its)
            if seen.decision.policy == self._incumbent:
                self._judge(weighed(seen))
            states = taught(self._states, its, timestamp_us, self._window_us, reach)
        except PolicyError:
            return  # it is no lesson for the learner either
        for name, state in states.items():
            self._states[name] = state
            self._states.move_to_end(name)
        while len(self._states) > _STATES:
            self._states.popitem(last=False)

    @property
    def states(self) -> Mapping[str, PolicyState | None]:
        """What the apprentice has learnt, by name."""
        return self._states

    def _judge(self, seen: Observation) -> None:
        """Compare both policies on one query; what cannot be told is counted."""
        decision, losses, wanted = seen.decision, seen.losses, self._propensities(seen)
        if len(losses) != len(wanted) or len(wanted) != len(decision.propensities):
            return
        arm = decision.chosen[0] if len(decision.chosen) == 1 else None
        served = served_loss(seen)
        loss = served if arm is None or losses[arm] is None else losses[arm]
        if _depends_on_answers(seen) or loss is None:  # what is known goes by the answers, or nothing is
            self._left_out += 1
        elif arm is None:
            self._compare(seen, loss, losses, wanted)
        elif decision.propensities[arm] >= _LEAST_SHARE:
            self._estimate(seen, arm, loss, wanted)
        else:
            self._left_out += 1

    def _compare(
        self, seen: Observation, served: float, losses: Sequence[float | None], wanted: Sequence[float]
    ) -> None:
        """Compare where all models were asked; if none has anything to tell, whoever is asked would cost the same."""
        known = [(q, loss) for q, loss in zip(wanted, losses, strict=True) if q]
        if any(loss is None for _, loss in known) and any(loss is not None for loss in losses):
            self._left_out += 1
            return
        own = sum(q * (served if loss is None else loss) for q, loss in known)
        self._put(seen, _PolicyComparison(served - own, -1.0, 1.0, 1.0, served, own))

    def _estimate(self, seen: Observation, arm: int, loss: float, wanted: Sequence[float]) -> None:
        logged = seen.decision.propensities
        base = self._loss / self._difference.count if self._difference.count else 0.5
        unsupported = sum(q for q, p in zip(wanted, logged, strict=True) if p < _LEAST_SHARE) * (1.0 - base)
        weights = [q / p for q, p in zip(wanted, logged, strict=True) if p >= _LEAST_SHARE]
        ends = [(1.0 - w) * (end - base) for w in weights for end in (0.0, 1.0)]
        weight = wanted[arm] / logged[arm]
        value = (1.0 - weight) * (loss - base) - unsupported
        least, most = min(ends) - unsupported, max(ends) - unsupported
        self._put(seen, _PolicyComparison(value, min(least, 0.0), max(most, 0.0), weight, loss, loss - value))

    def _put(self, seen: Observation, found: _PolicyComparison) -> None:
        """Count a comparison; those under one draw of who asks are one, once it is complete."""
        its = self._units.of(seen, self._now_us) if seen.drawn else None
        if its is not None:
            its.append(found)
        elif not seen.drawn:
            self._add(found)

    def _add(self, found: _PolicyComparison) -> None:
        self._difference.add(found.value, found.least, found.most)
        self._weights += found.weight
        self._weight_squares += found.weight * found.weight
        self._loss += found.loss
        self._own_loss += found.own

    def _propensities(self, seen: Observation) -> tuple[float, ...]:
        """Return what the apprentice would do, from its own state."""
        decision, count = seen.decision, len(seen.decision.arms)
        name = decision.state
        state = self._states.get(name)
        if state is None and name != self._application:
            state = started(self._states.get(self._application), self._spec)
        values = self._policy.init(count) if state is None else state.values
        if state is not None and state.arms != decision.arms:
            values = self._policy.extend(values, state.arms, decision.arms)
        if is_contextual(self._policy):
            return self._policy.propensities_in(values, count)(Situation(decision.features))
        return self._policy.propensities(values, count)

    @property
    def applications(self) -> tuple[str, ...]:
        """Whose losses are compared."""
        return (self._application,)

    def evidence(self, alpha: float) -> Evidence:
        """Return what is known, at confidence 1 - alpha."""
        found = self._difference
        count = found.count
        weights = self._weights, self._weight_squares
        losses = self._own_loss, count, self._loss, count
        return (
            Totals(count, found.below, found.above, *weights, *losses, left_out=self._left_out).evidence(alpha).of_all()
        )


def _depends_on_answers(seen: Observation) -> bool:
    """Tell whether what was asked depends on answers; that a model was asked the same again (a hedge) does not."""
    return _is_stepwise(seen.decision.policy) or any(step.kind != HEDGE for step in seen.steps)


@lru_cache(maxsize=1024)
def _is_stepwise(policy: str) -> bool:
    try:
        return is_stepwise(registry.parse(policy))
    except PolicyError:
        return False
