"""`ridge`: the state answers itself, with a linear function of what the models compute: Velox's user weights."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, isfinite, log, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies import linear
from policies.arm_sets import EveryArm
from policies.contract import Ranking, Reading
from policies.draw import pick
from policies.errors import require
from policies.exp4 import Exp4
from policies.logweights import check_rates, log_sum, normalised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.contract import State
    from policies.lessons import Lesson
    from policies.linear import Floats
    from schemas.records import Tensor

# An arm keeps (D + 1) (D + 2) / 2 + D + 1 numbers for D features: 2,210 for 64, or 18 KB for each user and model.
MAX_COMPUTED = 64
_LARGEST = 1_000.0  # the widest range of answers, as that of a feature
_NEWCOMER = 0.01  # weight of a model that comes to others: its regression knows nothing yet


@dataclass(frozen=True, slots=True)
class Ridge(EveryArm):
    """Ask every model for features, and answer with a number: a regression of the labels on those features.

    A model computes features f(x; theta) of the query (`output: scores`). The state has a ridge regression of the
    label on (1, f) for each model. Its weights w give the answer w . f, and how little is known there gives the
    confidence: 1 - sqrt(f' inverse(A) f / f' f * ridge), from 0 before the first observation to 1.

    With a state for each context, these are the weights of a user. A user who is met for the first time has those of
    the average user, which all users teach. Several models have a regression each. Their answers are averaged, with
    weights that fall exponentially with each one's loss, as in `exp4`. So a model whose features were trained anew can
    learn beside the old one, and takes over when its answers are better. Features of another training are another
    model, not another version: the weights for one set of features mean nothing for another.

    Where other places of a ranking teach, too, a place that is looked at with probability p adds its label to the sum
    of labels, and p of an observation to how much is known. That is unbiased where what nobody sees earns nothing.

    The state is the logarithms of the models' weights, then one block of `policies.linear` for each.

    Args:
        alpha: Of candidates to rank, how many standard deviations of optimism the first place gets; not negative.
        eta: Learning rate of the models' weights, positive; 0.5 is right for squared losses.
        features: How many numbers a model computes, at most 64: an update takes features^2 steps.
        gamma: Share of the rankings whose first is drawn uniformly, in [0, 1].
        high: The largest label and answer, at most 1000; a larger label counts as this.
        low: The smallest, at least -1000. Set both: they bound what one false label can do.
        ridge: How many observations the belief in the first weights is worth, for features of 1.
        share: Part of the models' weight spread evenly, at each step, in [0, 1].

    Examples:
        >>> import numpy as np
        >>> from policies.lessons import Lesson
        >>> from schemas.records import Tensor
        >>> policy, features = Ridge(features=1), Tensor.of(np.array([2.0]))
        >>> lesson = Lesson((0,), (1.0,), (0.0,), scores=(features,), label=3.0)
        >>> state = policy.observe(policy.init(1), 1, lesson)
        >>> reading = policy.reading(state, 1)({0: features})
        >>> round(reading.answer, 2), round(reading.confidence, 2)
        (2.5, 0.59)

    References:
        Crankshaw et al., The missing piece in complex analytics: low latency, scalable model management and serving
        with Velox, CIDR 2015. The average of several answers: Kivinen and Warmuth, Averaging expert predictions,
        EuroCOLT 1999. Places: Lagree, Vernade and Cappe, Multiple-play bandits in the position-based model, NIPS 2016.
    """

    name: ClassVar[str] = "ridge"
    places: ClassVar[bool] = True
    weighs: ClassVar[bool] = True

    alpha: float = 0.5
    eta: float = 0.5
    features: int = 8
    gamma: float = 0.01
    high: float = _LARGEST
    low: float = -_LARGEST
    ridge: float = 1.0
    share: float = 1e-3

    def __post_init__(self) -> None:
        """Check the parameters."""
        require(
            1 <= self.features <= MAX_COMPUTED,
            f"ridge: features is {self.features}; a state for each user has room for 1 to {MAX_COMPUTED}",
        )
        linear.check(self.name, self.features, self.ridge, self.gamma)
        require(0.0 <= self.alpha < inf, f"ridge: alpha is {self.alpha}; it must not be negative, 0.5 is usual")
        check_rates(self.name, self.eta, self.share, "0.5", "0.001")
        require(
            -_LARGEST <= self.low < self.high <= _LARGEST,
            f"ridge: low is {self.low} and high {self.high}; labels lie between them, within [-1000, 1000]",
        )

    def init(self, arms: int) -> State:
        """Return equal weights, and regressions without observations."""
        return _votes(self).init(arms) + linear.empty(arms, self.features, self.ridge)

    def weights(self, state: State, arms: int) -> tuple[float, ...]:
        """Return how much each model's answer counts."""
        return tuple([exp(value) for value in state[:arms]])

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Move the models' weights by their losses, and each regression towards the label, if there is a number."""
        votes, label = _votes(self).observe(state[:arms], arms, lesson), lesson.label
        blocks = state[arms:]
        if isinstance(label, int | float) and isfinite(label):
            target = min(max(float(label), self.low), self.high)
            for arm, computed in enumerate(lesson.scores or ()):
                x = None if computed is None else self.vector(computed)
                if x is not None:  # of a place that few look at: the sum of labels, by how often it was looked at
                    share = lesson.examined
                    blocks = linear.towards(blocks, arms, arm, x, target / share, lesson.weight * share)
        return votes + blocks

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Re-map by name; a new model has little weight until its answers, of which it knows none, are better."""
        arms, size = len(old_arms), (len(state) - len(old_arms)) // len(old_arms)
        known = {name: arm for arm, name in enumerate(old_arms)}
        if not any(name in known for name in new_arms):
            return self.init(len(new_arms))
        kept = [state[known[name]] for name in new_arms if name in known]
        newcomer = log_sum(kept) + log(_NEWCOMER)
        extended = normalised([state[known[name]] if name in known else newcomer for name in new_arms])
        fresh = linear.empty(1, self.features, self.ridge)
        for name in new_arms:
            start = arms + known.get(name, 0) * size
            extended += state[start : start + size] if name in known else fresh
        return extended

    def start(self, state: State, arms: int) -> State:
        """Return the average user: the common weights as an expectation, which the user's own labels soon outweigh."""
        return state[:arms] + linear.started(state[arms:], arms, self.features, self.ridge)

    def reading(self, state: State, arms: int) -> Weights:
        """Return the weights, which answer from the features that the models have computed."""
        inverses, weights = linear.unpacked(state[arms:], arms, self.features)
        return Weights(self, self.weights(state, arms), inverses, weights)

    def vector(self, computed: Tensor) -> Floats | None:
        """Return (1, features) of what a model computed; None where it is not as many finite numbers."""
        values = computed.numpy().ravel()
        if len(values) != self.features or not np.isfinite(values).all():
            return None
        return linear.vector(values.tolist(), self.features)


@dataclass(frozen=True, slots=True)
class Weights:
    """The state of a policy `ridge`, ready to answer.

    Attributes:
        policy: whose state it is.
        shares: (K,) how much each model's answer counts.
        inverses: (K, D, D) inverse(A) of each model's regression.
        weights: (K, D) of each.
    """

    policy: Ridge
    shares: tuple[float, ...]
    inverses: Floats
    weights: Floats

    def __call__(self, computed: Mapping[int, Tensor], features: tuple[float, ...] = (), u: float = 0.0) -> Reading:
        """Return the answer from the features that the models have computed, by arm."""
        found = {arm: x for arm, scores in computed.items() if (x := self.policy.vector(scores)) is not None}
        answers = {arm: float(self._expected(arm, x)) for arm, x in found.items()}
        mass = sum([self.shares[arm] for arm in found])
        if not mass:
            return Reading(None, 0.0, answers)
        answer = sum([self.shares[arm] / mass * answers[arm] for arm in found])
        known = sum([self.shares[arm] * self._known(arm, x) for arm, x in found.items()])
        return Reading(answer, min(1.0, known), answers)

    def rank(self, candidates: Tensor, top: int, u: float) -> Ranking | None:
        """Return the best candidates: the first by its upper confidence bound or, rarely, drawn; then by expectation.

        A share gamma of the queries has any candidate first. So the logged probabilities are exact and have a floor.
        """
        rows = candidates.numpy()
        if rows.ndim != 2 or rows.shape[1] != self.policy.features or not len(rows) or not np.isfinite(rows).all():
            return None
        x = np.column_stack([np.ones(len(rows)), linear.bounded(rows)])
        expected = self._expected(0, x)
        bounds = expected + self.policy.alpha * np.sqrt(np.maximum((x @ self.inverses[0] * x).sum(axis=1), 0.0))
        shares = np.full(len(x), self.policy.gamma / len(x))
        shares[bounds.argmax()] += 1.0 - self.policy.gamma
        first = pick(drawn := tuple(shares.tolist()), u)
        others = (index for index in range(len(x)) if index != first)
        rest = heapq.nlargest(top - 1, others, key=expected.tolist().__getitem__)
        return Ranking((first, *rest), drawn, float(expected[first]), self._known(0, x[first]))

    def _expected(self, arm: int, x: Floats) -> Floats:
        """Return w . x, (D,) or (n, D), within the range of labels."""
        return np.asarray(np.clip(x @ self.weights[arm], self.policy.low, self.policy.high))

    def _known(self, arm: int, x: Floats) -> float:
        """Return which part of the standard deviation at x the observations have taken away."""
        left = max(float(x @ self.inverses[arm] @ x), 0.0) * self.policy.ridge / float(x @ x)
        return 1.0 - sqrt(min(left, 1.0))


@lru_cache(maxsize=64)
def _votes(policy: Ridge) -> Exp4:
    return Exp4(policy.eta, policy.share)
