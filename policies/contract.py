"""The contract of selection policies: stateless objects whose state is a value.

A state is a flat tuple of floats. Its length depends on the number of arms alone, so one Avro schema stores all states.
A fold over the log gives the same bytes each time. Late, doubled or reordered observations do no harm. Nothing here
draws random numbers: the one uniform draw of a decision is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeGuard

    from policies.lessons import Lesson
    from schemas.records import ModelOutput, Tensor, Value

State: TypeAlias = tuple[float, ...]
# How much each asked arm's answer counts, positive, by what each has answered; None = nothing has come.
VoteWeights: TypeAlias = "Callable[[Mapping[int, Value | None]], Mapping[int, float]]"


class OwnAnswer(NamedTuple):
    """What makes the answer of a query instead of weights: a policy from outside that has its own `combine`.

    It is given the outputs of the arms that were asked, by arm. At least one has the outcome OK, and may have scores.
    The answer of another one is None, or its substitute (`missing: running_mean`). It returns the answer and its
    confidence in [0, 1]; None = the application's default output.
    """

    combine: Callable[[Mapping[int, ModelOutput]], tuple[Value | None, float]]


class Situation(NamedTuple):
    """What a decision may depend on beside the state: the query, and the moment at which it is asked."""

    features: tuple[float, ...] = ()  # the query's; what is missing counts as 0
    left_us: float = inf  # until its answer has to be made
    latencies_us: tuple[float, ...] = ()  # one for each arm: what it takes at a high quantile; empty = not known


PLAIN: Final = Situation()  # nothing is known


class Policy(Protocol):
    """Chooses arms (models) of one application and learns from their losses.

    Every method is pure. `arms` is the number of arms, at least 1; arms are named by index. Losses lie in [0, 1].
    """

    name: ClassVar[str]
    full_information: ClassVar[bool]  # every arm is asked about every query

    def __hash__(self) -> int:
        """Policies are values: equal parameters, equal policy."""
        ...

    def init(self, arms: int) -> State:
        """Return the state before any observation.

        Raises:
            PolicyError: These parameters do not fit this number of arms.
        """
        ...

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return the exact probability that each arm is asked, none below `floor(arms)`.

        They sum to 1, or are all 1.0 under full information.
        """
        ...

    def floor(self, arms: int) -> float:
        """Return the declared lower bound of every propensity; 0.0 if an arm may never be asked."""
        ...

    def select(self, state: State, arms: int, u: float) -> tuple[int, ...]:
        """Return the arms to ask; `u` in [0, 1) is the only randomness (inverse CDF over the propensities)."""
        ...

    def weights(self, state: State, arms: int) -> tuple[float, ...]:
        """Return how much each arm's answer counts when answers are combined; sums to 1."""
        ...

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Return the state after one observation."""
        ...

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Return the state for another list of arms: what is known of an arm follows its name.

        An arm that is new starts as the average of those kept; where none is kept, everything starts anew.
        """
        ...


class LessonWeighing(Policy, Protocol):
    """A policy that counts a lesson of weight w, in (0, 1], as that part of one.

    So n lessons of weight 1 / n teach nearly as one whole lesson, in what they forget as in what they add. Whatever
    holds for losses in [0, 1] holds with weights: no lesson counts more than one, and sums of weights are counts that
    are too small at most.
    """

    weighs: ClassVar[bool]  # True


class Contextual(Policy, Protocol):
    """A policy whose decisions depend on the situation, too; without one, on the state alone.

    Its propensities are those of the situation in force; they are logged with the decision, and so are the features. A
    lesson has both.
    """

    uses: ClassVar[Literal["features", "latencies"]]  # what it goes by

    def propensities_in(self, state: State, arms: int) -> Callable[[Situation], tuple[float, ...]]:
        """Return the propensities as a function of the situation; what depends on the state alone is worked out once.

        One arm is drawn with them; under full information every arm is asked whose propensity is not 0.0.
        `propensities(state, arms)` are those of `PLAIN`.
        """
        ...


class AnswerAware(Policy, Protocol):
    """A policy of full information whose weights depend on what is answered, too.

    The answers are logged with the observation.
    """

    def vote_weights(self, state: State, arms: int) -> VoteWeights:
        """Return the weights as a function of the answers; what depends on the state alone is worked out once.

        `weights(state, arms)` are those of arms whose answers are not known, made to sum to 1.
        """
        ...


class Ask(NamedTuple):
    """A question that a policy may put after the answers to the one before."""

    arms: tuple[int, ...]
    probability: float  # that it is put, in [0, 1]
    confidence: float  # of the answers so far, in [0, 1]
    threshold: float  # below this confidence it is put for certain


class Steps(Protocol):
    """What a policy asks about one query, question after question, in one state.

    Attributes:
        first: the arms that are asked first.
    """

    first: tuple[int, ...]

    def after(self, asked: tuple[int, ...], outputs: Mapping[int, ModelOutput]) -> Ask | None:
        """Return what may be asked next; None = everything has been.

        Args:
            asked: the arms that have been asked, in order.
            outputs: what they have answered, without those whose outputs have not come.
        """
        ...

    def chance(self, question: int, confidence: float) -> float:
        """Return how likely a question is, counted from 0, after answers of that confidence."""
        ...

    def votes(self, answers: Mapping[int, Value | None]) -> Mapping[int, float]:
        """Return how much each asked arm's answer counts, in all 1, by what each has answered; None = not yet."""
        ...

    def confidence(self, outputs: Mapping[int, ModelOutput]) -> float | None:
        """Return the confidence of the answer made of these outputs; None = it is not known."""
        ...


class Stepwise(Policy, Protocol):
    """A policy that may ask again when it has an answer: cheap models first, a dear one where they are in doubt.

    Its `propensities` are those of the first question. Those that are logged are of all: the probability that an arm is
    asked, given the answers of the arms before it.
    """

    def steps(self, state: State, arms: int) -> Steps:
        """Return what it asks; what depends on the state alone is worked out once."""
        ...


class Reading(NamedTuple):
    """What a state answers to one query, from what the models have computed."""

    answer: float | None  # a number, or an item's index; None: no model has computed what it takes
    confidence: float  # in [0, 1]: how much is known there
    answers: Mapping[int, float]  # by arm, what each alone would have answered
    first: tuple[float, ...] = ()  # of each item, where one was drawn: its exact probability


class Ranking(NamedTuple):
    """The best of a query's candidates, by one state."""

    best: tuple[int, ...]  # indices, the best first
    shares: tuple[float, ...]  # of each candidate: the exact probability that it stands first
    answer: float  # what is expected of the first
    confidence: float  # in [0, 1]: how much is known of it


class Read(Protocol):
    """A state that answers."""

    def __call__(self, computed: Mapping[int, Tensor], features: tuple[float, ...] = (), u: float = 0.0) -> Reading:
        """Return the answer to a query.

        Args:
            computed: by arm, what its model has computed for the query.
            features: the query's.
            u: in [0, 1), the only randomness.
        """
        ...

    def rank(self, candidates: Tensor, top: int, u: float) -> Ranking | None:
        """Return the best of some candidates.

        Args:
            candidates: rows (n, features), as the first arm's model computes them.
            top: how many of them, at least 1.
            u: in [0, 1), the only randomness.

        Returns:
            None if they are no features of the policy.
        """
        ...


class Choose(Read, Protocol):
    """A state that chooses among items, or among some of them."""

    @property
    def count(self) -> int:
        """How many items there are: so many numbers a model computes."""
        ...

    def among(
        self, items: Sequence[int], computed: Mapping[int, Tensor], features: tuple[float, ...], top: int, u: float
    ) -> tuple[Reading, tuple[int, ...]]:
        """Return the answer, whose `first` is that of each of these items, and the best ones.

        Args:
            items: indices of at least one, each once.
            computed: by arm, what its model has computed for the query.
            features: the query's.
            top: how many of the best, at least 1.
            u: in [0, 1), the only randomness.

        Returns:
            The best as places in `items`, the answer first; none if no model has computed what it takes.
        """
        ...


class Answering(Policy, Protocol):
    """A policy of full information whose state answers: the models compute features, and do not answer themselves.

    The features are logged with the observation, as the scores of each arm.
    """

    def reading(self, state: State, arms: int) -> Read:
        """Return what answers; what depends on the state alone is worked out once."""
        ...


class SharedPrior(Policy, Protocol):
    """A policy with which a context (a user, say) starts from what all contexts of its application have taught.

    Every policy that learns is one.
    """

    def start(self, state: State, arms: int) -> State:
        """Return the state of a context that is met for the first time, from the common one: believed, but little."""
        ...


def has_shared_prior(policy: Policy) -> TypeGuard[SharedPrior]:
    """Tell whether contexts start from a common state; else each starts anew."""
    return hasattr(policy, "start")


def is_weighing(policy: object) -> TypeGuard[LessonWeighing]:
    """Tell whether a policy counts parts of lessons; for others the losses become smaller instead."""
    return getattr(getattr(policy, "policy", policy), "weighs", False) is True


def is_placing(policy: object) -> bool:
    """Tell whether a policy learns from any place of a ranking, not from the first alone."""
    return getattr(getattr(policy, "policy", policy), "places", False) is True


def is_contextual(policy: Policy) -> TypeGuard[Contextual]:
    """Tell whether a policy wants to know the situation."""
    return hasattr(policy, "propensities_in")


def most_features(policy: Policy) -> int | None:
    """Return how many numbers of a query a policy goes by; None = it goes by none of them."""
    if is_contextual(policy) and policy.uses == "features":
        return int(getattr(policy, "features", 0))
    return None


def is_answer_aware(policy: Policy) -> TypeGuard[AnswerAware]:
    """Tell whether an answer's weight depends on what it is."""
    return hasattr(policy, "vote_weights")


def is_stepwise(policy: Policy) -> TypeGuard[Stepwise]:
    """Tell whether a policy may ask again when it has an answer."""
    return hasattr(policy, "steps")


def is_answering(policy: Policy) -> TypeGuard[Answering]:
    """Tell whether the state answers, and the models compute features for it."""
    return hasattr(policy, "reading")


def is_choosing(policy: Policy) -> bool:
    """Tell whether the state's answer is one of several items, and what it has cost is learnt for that item."""
    return bool(getattr(policy, "chooses", False))


def chooses_among(read: Read) -> TypeGuard[Choose]:
    """Tell whether a state can choose among some of its items."""
    return hasattr(read, "among")


def ranks_by(policy: Policy) -> int | None:
    """Return how many numbers of a candidate a policy ranks by; None = it ranks no rows of features."""
    return int(getattr(policy, "features", 0)) if is_answering(policy) and not is_choosing(policy) else None
