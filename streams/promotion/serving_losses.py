"""What the policies that serve cost: the mean loss of each application's, with bounds that hold at all times at once.

A policy's mean begins with the first of its decisions that is later than any of the policy before. Answers of other
policies, whose feedback is still coming, do not count, nor do those to contexts that are held out of the policy.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from policies.estimators.sequence import ConfidenceSequence
from streams.operators.weighing import weighed
from streams.promotion.trail import Trail
from streams.topology import is_held_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Decision, Observation

# Applications that are followed; of more, those that were heard of longest ago begin anew.
MOST = 1_000
ALPHA = 0.05


def served_loss(seen: Observation) -> float | None:
    """Return what the answer cost; None if that is not known.

    Without an answer, nor a default output for it, a loss is not computed: it is that of models that are silent.
    """
    if seen.loss is not None:
        return seen.loss if 0.0 <= seen.loss <= 1.0 else None
    asked = [seen.losses[arm] for arm in seen.decision.chosen if 0 <= arm < len(seen.losses)]
    return 1.0 if asked and all(loss == 1.0 for loss in asked) else None


class Served:
    """One application's policy that serves.

    Attributes:
        policy: as decisions name it.
        since_us: when the first of its answers was made that counts.
        losses: of its answers, each times its part of a full lesson.
        parts: sum of these.
        trail: how their mean has stood since.
        is_judged: whether its log can tell what other policies would have cost: it may ask any model at any time.
    """

    __slots__ = ("is_judged", "losses", "newest_us", "parts", "policy", "since_us", "trail")

    def __init__(self, policy: str, since_us: int) -> None:
        self.policy = policy
        self.since_us = self.newest_us = since_us
        self.losses = ConfidenceSequence(low=0.0)
        self.parts = 0.0
        self.trail = Trail()
        self.is_judged = False

    def means(self) -> tuple[float, float, float]:
        """Return the mean loss by weight, and its bounds."""
        losses = self.losses
        scale = losses.count / self.parts if self.parts else 1.0
        mean, lower, upper = [scale * each for each in (losses.mean, *losses.bounds(ALPHA))]
        return mean, lower, min(1.0, upper)

    def take(self, decision: Decision, loss: float, predicted_us: int, timestamp_us: int, part: float = 1.0) -> None:
        """Take one answer: its loss times its part of a full lesson."""
        self.parts += part
        self.newest_us = max(self.newest_us, predicted_us)
        self.is_judged = len(decision.arms) > 1 and min(decision.propensities, default=0.0) > 0.0
        self.losses.add(loss)
        if self.trail.is_due(timestamp_us):
            self.trail.add(timestamp_us, *self.means())


class ServingLosses:
    """Folds observations into what the serving policies cost; O(1) each."""

    def __init__(self) -> None:
        self._applications: OrderedDict[str, Served] = OrderedDict()

    @property
    def applications(self) -> Mapping[str, Served]:
        """By name."""
        return self._applications

    def observe(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation, each once."""
        loss, policy, name = served_loss(weighed(seen)), seen.decision.policy, seen.application
        if loss is None or is_held_out(seen.decision.state):
            return
        served = self._applications.get(name)
        if served is None or (served.policy != policy and seen.predicted_us > served.newest_us):
            served = self._applications[name] = Served(policy, seen.predicted_us)
            if len(self._applications) > MOST:
                self._applications.popitem(last=False)
        if served.policy == policy:
            part = 1.0 if seen.weight is None else seen.weight
            served.take(seen.decision, loss, seen.predicted_us, timestamp_us, part)
        self._applications.move_to_end(name)
