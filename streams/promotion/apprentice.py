"""Evidence on a policy that learns along and answers nothing: an apprentice.

Each observation first judges the apprentice, then teaches it, as the learner does. Where the serving policy asked one
model, the apprentice's loss is estimated (`policy_difference`). Where nothing is known of the model itself, as its
answer was decoded or an input refused, the served answer's loss is taken: it would have been served all the same.
Queries of which nothing can be told are counted, and the bounds allow for them: each may have been anything. Those of
contexts that are held out are none of either policy's: they judge and teach nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from policies import registry
from policies.assignment import arm_unit
from policies.contract import Situation, is_contextual, is_stepwise
from policies.errors import PolicyError
from streams.operators.cold_start import lesson, started
from streams.operators.configuration import HEDGE, apprentice
from streams.operators.learn.bounds import LessonCounts, Reach
from streams.operators.learn.fold import checked, taught
from streams.operators.weighing import weighed
from streams.promotion.persons import Units
from streams.promotion.policy_difference import PolicyDifference, UnitComparison
from streams.promotion.serving_losses import served_loss
from streams.topology import is_held_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Decision, Measurement, Observation, PolicyState, WatchedMetric
    from streams.promotion.evidence import Evidence

# States of contexts that are kept; those used longest ago start anew.
_STATES = 100_000


class _PeopleDifference:
    """The comparison by the loss, or by one metric: what one context costs under one draw is one value (`persons`).

    Attributes:
        difference: of all queries, and of the units that are closed.
        unit: gathers what the last query tells; None = it counts by itself.
    """

    __slots__ = ("_units", "difference", "unit")

    def __init__(self) -> None:
        self.difference = PolicyDifference()
        self.unit: UnitComparison | None = None
        self._units = Units(UnitComparison)

    def is_counted(self, seen: Observation | Measurement, now_us: int) -> bool:
        """Find the unit of the next query; tell whether it is open still, or there is none."""
        self.unit = None
        if not arm_unit(seen):
            return True
        self.until(now_us)
        self.unit = self._units.of(seen, now_us)
        return self.unit is not None

    def until(self, now_us: int) -> None:
        """Count whose hour has ended by a time."""
        for closed in self._units.close(now_us):
            self.difference.add_unit(closed)

    def evidence(self, alpha: float) -> Evidence:
        """Return what is known, and whether all who have asked are counted."""
        units = self._units
        return replace(self.difference.evidence(alpha), is_spent=units.is_spent, waiting=units.waiting)


class ApprenticeEvidence:
    """Folds observations of an application into the states of an apprentice, and into the evidence on it.

    Args:
        application: name.
        policy: of the apprentice, as `policies.registry.spec()` writes it.
        incumbent: what is compared with: decisions of other policies teach, and do not judge.
        window_us: how long states of other policies are kept beside one; the learner's.
        learns_along: whether it is the application's apprentice. Then what teaches it in the learner counts, and its
            states are those that the learner stores, bit for bit. Else all counts, as if it had learnt along.
        metrics: by which it is compared, too. What it would have done is kept as it was before its query had taught it.

    Raises:
        PolicyError: there is no such policy, or it asks all models and lets them vote.
    """

    def __init__(
        self,
        application: str,
        policy: str,
        incumbent: str,
        window_us: int,
        *,
        learns_along: bool = False,
        metrics: Sequence[WatchedMetric] = (),
    ) -> None:
        self._application = application
        self._incumbent = incumbent
        self._policy = apprentice(policy)
        self._spec = registry.spec(self._policy)
        self._learns_along = learns_along
        self._window_us = window_us
        self._states: OrderedDict[str, PolicyState | None] = OrderedDict()
        self._counts = LessonCounts()
        self._by_loss = _PeopleDifference()
        self._metrics = {one.metric: _PeopleDifference() for one in metrics}
        self._wanted: OrderedDict[str, tuple[float, ...]] = OrderedDict()  # by query, where there are metrics

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Judge the apprentice by one observation, then teach it; those of an application are in one partition."""
        if seen.application != self._application:
            return
        reach = self._counts.reach(seen, timestamp_us)  # of every lesson, as the learner counts them
        if not self._learns_from(seen.decision):
            return
        its = lesson(seen, self._spec)
        try:
            if self._metrics:
                self._would(seen.query_id, seen.decision)
            checked(its)
            if seen.decision.policy == self._incumbent and reach is Reach.ALL:
                self._judge(weighed(seen), 1.0 if seen.weight is None else seen.weight, timestamp_us)
            states = taught(self._states, its, timestamp_us, self._window_us, reach)
        except PolicyError:
            return  # it is no lesson for the learner either
        for name, state in states.items():
            self._states[name] = state
            self._states.move_to_end(name)
        while len(self._states) > _STATES:
            self._states.popitem(last=False)

    def measure(self, seen: Measurement, timestamp_us: int) -> None:
        """Judge the apprentice by what metrics came to on one query; one that asked several models tells nothing."""
        decision = seen.decision
        if seen.application != self._application or decision.policy != self._incumbent:
            return
        if not self._learns_from(decision):
            return
        try:
            wanted = self._would(seen.query_id, decision)
        except PolicyError:
            return
        is_known = len(decision.chosen) == 1 and len(wanted) == len(decision.propensities)
        for value in seen.values:
            own = self._metrics.get(value.metric)
            if own is None or not own.is_counted(seen, timestamp_us):
                continue
            if is_known:
                about = wanted, decision.propensities
                own.difference.estimate(decision.chosen[0], value.loss, *about, unit=own.unit)
            else:
                own.difference.leave_out()

    def until(self, now_us: int) -> None:
        """Count whose hour has ended by a time, by the loss and by each metric: nobody may ask any more."""
        for own in (self._by_loss, *self._metrics.values()):
            own.until(now_us)

    def _learns_from(self, decision: Decision) -> bool:
        """Tell whether a decision is one of those along which the apprentice learns."""
        return not is_held_out(decision.state) and (not self._learns_along or decision.apprentice == self._spec)

    def _would(self, query_id: str, decision: Decision) -> tuple[float, ...]:
        """Return what the apprentice would have done before a query's label had taught it anything."""
        found = self._wanted.get(query_id)
        if found is None:
            found = self._wanted[query_id] = self._propensities(decision)
            if len(self._wanted) > _STATES:
                self._wanted.popitem(last=False)
        return found

    @property
    def states(self) -> Mapping[str, PolicyState | None]:
        """What the apprentice has learnt, by name."""
        return self._states

    def _judge(self, seen: Observation, part: float, now_us: int) -> None:
        """Compare both policies on one query; what cannot be told is counted."""
        decision, losses, wanted = seen.decision, seen.losses, self._propensities(seen.decision)
        if len(losses) != len(wanted) or len(wanted) != len(decision.propensities):
            return
        own = self._by_loss
        if not own.is_counted(seen, now_us):
            return
        arm = decision.chosen[0] if len(decision.chosen) == 1 else None
        served = served_loss(seen)
        loss = served if arm is None or losses[arm] is None else losses[arm]
        if _depends_on_answers(seen) or loss is None:  # what is known goes by the answers, or nothing is
            own.difference.leave_out()
        elif arm is None:
            own.difference.compare(loss, losses, wanted, part, own.unit)
        else:
            own.difference.estimate(arm, loss, wanted, decision.propensities, part, own.unit)

    def _propensities(self, decision: Decision) -> tuple[float, ...]:
        """Return what the apprentice would do, from its own state."""
        count, name = len(decision.arms), decision.state
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
        return self._by_loss.evidence(alpha)

    def measured(self, alpha: float) -> list[Evidence]:
        """Return what is known by each metric, in their order."""
        return [one.difference.evidence(alpha) for one in self._metrics.values()]


def _depends_on_answers(seen: Observation) -> bool:
    """Tell whether what was asked depends on answers; that a model was asked the same again (a hedge) does not."""
    return _is_stepwise(seen.decision.policy) or any(step.kind != HEDGE for step in seen.steps)


@lru_cache(maxsize=1024)
def _is_stepwise(policy: str) -> bool:
    try:
        return is_stepwise(registry.parse(policy))
    except PolicyError:
        return False
