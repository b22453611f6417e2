"""`two_speed`: items by the sum of two log-odds: cold ones that a model computes, warm ones that feedback teaches."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import exp, inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies import linear
from policies.arm_sets import EveryArm
from policies.beliefs import beliefs, in_order
from policies.best_arm import best_of_normals
from policies.contract import Reading
from policies.draw import pick
from policies.errors import require, require_storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from policies.beliefs import Beliefs
    from policies.contract import Ranking, State
    from policies.lessons import Lesson
    from schemas.records import Tensor

    Floats = NDArray[np.float64]

MAX_ITEMS = 4_096
# A group of so many has five numbers where each alone had one, and an observation of it takes 0.1 ms.
_MOST_TOGETHER = 16
# Log-odds beyond these are certain to 13 digits; they are cut, so that no model can bring an item's other terms to 0.
_SURE = 30.0
_LEAST = 1e-9  # of a standard deviation: what is certain still has one
# Items that may be the best, by mean + 2 deviations: an answer takes 0.5 ms for so many, 3 for 32, 20 for 80.
_CONTENDERS = 16
_HALVINGS = 60  # of the interval of a step: to the last digit


@dataclass(frozen=True, slots=True)
class TwoSpeed(EveryArm):
    """Choose one of several items by the log-odds that it is a success: a model's, and those learnt for the item.

    The log-odds of an item at x = (1, features) are cold(x) + w . x. A model computes cold(x), one number an item
    (`output: scores`): a linear model that is trained now and then, and comes as a package. The warm weights w are of
    the item alone. Feedback on the item that was answered moves them within seconds: a logistic regression on top of
    the cold log-odds, from a normal belief with a variance for each weight, and covariances where features go
    `together`. A loss of 0 is a success.

    The answer is an item's index. Thompson sampling draws the weights of every item and answers the best. Only the
    log-odds at x count, and those are independent normal variables. So the probability that each is the highest is
    computed, logged as `first`, and one item is drawn with exactly these probabilities. At most 16 items contend for
    each answer. A little uniform mixing (gamma) keeps the probabilities of all others above a floor. The confidence of
    an answer is the probability of a success that is expected of it. A query's candidates are ids of items: then one of
    these is drawn, and the others follow by what is expected of them.

    Where other places of a ranking teach, too, a success counts whole: somebody has looked there. A failure counts as
    much as it is likely that somebody looked in vain, by what is expected of the item: a step of expectation
    maximisation.

    With several models their log-odds are averaged. The weights stay when models come and go, as long as one is kept.

    The state is, for each item, the means of its weights, then their precisions, then what `policies.beliefs` says of
    those that go together.

    Args:
        features: How many of a query's count: further ones are left out, missing ones are 0. Keep them about 1.
        gamma: Share of the answers drawn uniformly, in [0, 1].
        items: How many there are, and numbers that a model computes.
        ridge: Precision of the belief that the weights are 0; 4 means log-odds within 1 of the cold ones.
        spread: What the deviations are multiplied with before the draw; more explores longer, 0 hardly.
        together: How many neighbours among the features go together, at most 16: 4 = the first four, the next four, and
            so on. The weights' covariances are known within each group, and to the constant within the first. 1 = none.

    Examples:
        >>> from policies.lessons import Lesson
        >>> from schemas.records import Tensor
        >>> policy, cold = TwoSpeed(features=0, items=2, ridge=1.0), Tensor.of(np.array([0.0, 0.5]))
        >>> lesson = Lesson((0,), (1.0,), (0.0,), answers=(0,), scores=(cold,))
        >>> before, state = policy.init(1), policy.init(1)
        >>> for _ in range(5):
        ...     state = policy.observe(state, 1, lesson)
        >>> [round(policy.reading(each, 1)({0: cold}).first[0], 2) for each in (before, state)]
        [0.36, 0.7]

    References:
        Agarwal et al., LASER: a scalable response prediction platform for online advertising, WSDM 2014. The steps:
        Chapelle and Li, An empirical evaluation of Thompson sampling, NIPS 2011, algorithm 3. Places: Wang et al.,
        Position bias estimation for unbiased learning to rank in personal search, WSDM 2018.
    """

    name: ClassVar[str] = "two_speed"
    chooses: ClassVar[bool] = True
    places: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"together"})

    features: int = 8
    gamma: float = 0.01
    items: int = 2
    ridge: float = 4.0
    spread: float = 1.0
    together: int = 1

    def __post_init__(self) -> None:
        """Check the parameters."""
        linear.check(self.name, self.features, self.ridge, self.gamma)
        require(0.0 <= self.spread < inf, f"two_speed: spread is {self.spread}; it must not be negative, 1 is usual")
        require(1 <= self.items <= MAX_ITEMS, f"two_speed: items is {self.items}; there may be 1 to {MAX_ITEMS}")
        require(
            1 <= self.together <= _MOST_TOGETHER,
            f"two_speed: together is {self.together}; 1 to {_MOST_TOGETHER} features may go together",
        )
        kept = f"two_speed: a state of {self.items} items of {self.features} features"
        require_storable(self.items * self._form.size, kept, "give it fewer features, or let fewer go together")

    def init(self, arms: int) -> State:
        """Return weights of 0, believed as the ridge says."""
        return self._form.empty(self.ridge) * self.items

    def weights(self, state: State, arms: int) -> tuple[float, ...]:
        """Return equal weights: the models' log-odds are averaged."""
        return (1.0 / arms,) * arms

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Move the weights of the item that was answered, if it is known which, and what it has cost."""
        self._checked(state)
        found = self._answered(lesson)
        cold = self.cold(one for one in lesson.scores or () if one is not None)
        if found is None or cold is None:
            return state
        item, loss = found
        start, end = item * self._form.size, (item + 1) * self._form.size
        x, belief, weight = self._x(lesson), state[start:end], lesson.weight
        at = float(cold[item]) + in_order([mean * value for mean, value in zip(belief, x, strict=False)])
        if lesson.examined < 1.0:
            weight *= 1.0 - loss * (1.0 - _looked_at(_chance(at), lesson.examined))
        return state[:start] + _moved(self._form, belief, x, at, 1.0 - loss, weight) + state[end:]

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Keep the weights while a model is kept: they say what items have beyond their models' log-odds."""
        return state if {*old_arms} & {*new_arms} else self.init(len(new_arms))

    def start(self, state: State, arms: int) -> State:
        """Return the weights of all contexts, believed as little as any at first."""
        self._checked(state)
        size, width = self._form.size, self._form.width
        means = (state[start : start + width] for start in range(0, len(state), size))
        return tuple([value for its in means for value in self._form.empty(self.ridge, its)])

    def reading(self, state: State, arms: int) -> Items:
        """Return the weights, which answer from the log-odds that the models have computed."""
        self._checked(state)
        width = self._form.width
        means, precisions, factors = np.split(np.array(state).reshape(self.items, -1), (width, 2 * width), axis=1)
        return Items(self, means, 1.0 / precisions, factors)

    def cold(self, computed: Iterable[Tensor]) -> Floats | None:
        """Return the mean (items,) of what models have computed; None where none has as many finite numbers."""
        known = [one.numpy().ravel() for one in computed]
        fitting = [one.astype(np.float64) for one in known if len(one) == self.items and np.isfinite(one).all()]
        if not fitting:
            return None
        return np.asarray(np.clip(sum(fitting) / len(fitting), -_SURE, _SURE))

    @property
    def _form(self) -> Beliefs:
        return beliefs(self.features, self.together)

    def _x(self, lesson: Lesson) -> list[float]:
        """Return (1, features) of a lesson."""
        found: list[float] = linear.vector(lesson.features, self.features).tolist()
        return found

    def _answered(self, lesson: Lesson) -> tuple[int, float] | None:
        """Return the item that was answered, and its loss."""
        for arm, loss in enumerate(lesson.losses):
            item = None if lesson.answers is None else lesson.answers[arm]
            if loss is not None and type(item) is int and 0 <= item < self.items:
                return item, loss
        return None

    def _checked(self, state: State) -> None:
        expected = self.items * self._form.size
        require(len(state) == expected, f"the stored state has {len(state)} values, not {expected}")


@dataclass(frozen=True, slots=True)
class Items:
    """The state of a policy `two_speed`, ready to answer.

    Attributes:
        policy: whose state it is.
        means: (items, D) of the weights.
        variances: (items, D): of what each weight has beside those before it in its group.
        factors: (items, f): of those that go together, as `Beliefs` has them.
    """

    policy: TwoSpeed
    means: Floats
    variances: Floats
    factors: Floats

    @property
    def count(self) -> int:
        """How many items there are."""
        return self.policy.items

    def __call__(self, computed: Mapping[int, Tensor], features: tuple[float, ...] = (), u: float = 0.0) -> Reading:
        """Return the item that is drawn, and each one's probability to be."""
        return self.among(range(self.policy.items), computed, features, 1, u)[0]

    def among(
        self, items: Sequence[int], computed: Mapping[int, Tensor], features: tuple[float, ...], top: int, u: float
    ) -> tuple[Reading, tuple[int, ...]]:
        """Return the item that is drawn of some, and places of the best: it, then those of which most is expected."""
        policy = self.policy
        arms = [arm for arm, scores in computed.items() if policy.cold((scores,)) is not None]
        cold = policy.cold(computed[arm] for arm in arms)
        if cold is None:
            return Reading(None, 0.0, {}), ()
        x, its = linear.vector(features, policy.features), np.array(items, np.intp)
        expected = (cold + (self.means * x).sum(axis=1))[its]
        variances = beliefs(policy.features, policy.together).variances(self.variances, self.factors, x)[its]
        deviations = np.maximum(policy.spread * np.sqrt(variances), _LEAST)
        contenders = np.argsort(-(expected + 2.0 * deviations), kind="stable")[:_CONTENDERS]
        shares = np.full(len(its), policy.gamma / len(its))
        shares[contenders] += (1.0 - policy.gamma) * best_of_normals(expected[contenders], deviations[contenders])
        place = pick(drawn := tuple(shares.tolist()), u)
        others = (other for other in range(len(its)) if other != place)
        rest = heapq.nlargest(top - 1, others, key=expected.tolist().__getitem__)
        item = int(its[place])
        return Reading(item, _chance(float(expected[place])), dict.fromkeys(arms, item), drawn), (place, *rest)

    def rank(self, candidates: Tensor, top: int, u: float) -> Ranking | None:
        """Return None: what is chosen among are items by their ids, whose features the models know."""
        return None


def _moved(form: Beliefs, belief: State, x: Sequence[float], at: float, target: float, weight: float) -> State:
    """Return what is believed of an item after so much of an observation at x, where the log-odds have been `at`.

    The new means are the most likely ones: they lie along covariance x, as far as `_step` says. The precision grows by
    the curvature there.
    """
    error = target - _chance(at + _step(at, weight * form.variance(belief, x), target))
    chance = target - error
    return form.moved(belief, x, weight * error, weight * (chance * (1.0 - chance)))


def _looked_at(chance: float, examined: float) -> float:
    """Return the probability that somebody looked at a place in vain: a success there would have been so likely."""
    return examined * (1.0 - chance) / (1.0 - examined * chance)


def _step(at: float, variance: float, target: float) -> float:
    """Return t with t = variance * (target - chance(at + t)): by halving, as the right side falls in t."""
    low, high = min(variance * (target - 1.0), 0.0), max(variance * target, 0.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if middle < variance * (target - _chance(at + middle)):
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _chance(log_odds: float) -> float:
    """Return the logistic function of log-odds of any size."""
    if log_odds >= 0.0:
        return 1.0 / (1.0 + exp(-log_odds))
    grown = exp(max(log_odds, -700.0))
    return grown / (1.0 + grown)
