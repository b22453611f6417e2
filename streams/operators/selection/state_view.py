"""The selection role's bounded view of the policy states that the learners keep in Redis.

Once its state has been seen, a query never waits for Redis: a stale entry is used, and read again meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate
from sys import maxsize
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from policies import calibration, registry
from policies.arm_sets import systematic
from policies.contract import (
    PLAIN,
    OwnAnswer,
    has_shared_prior,
    is_answer_aware,
    is_answering,
    is_contextual,
    is_stepwise,
    most_features,
)
from policies.draw import pick
from policies.errors import PolicyError
from policies.outside import comes_from_outside
from schemas.inputs import MAX_FEATURES
from schemas.records import Decision
from streams.operators.cold_start import started
from streams.operators.contract import StateKey
from streams.operators.fair_cache import FairCache
from streams.operators.policy_state import numbers, state_of
from streams.operators.promises import aim_of
from streams.topology import application_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.conformal import Aim
    from policies.contract import Policy, Read, Situation, State, Steps, VoteWeights
    from policies.intervals import Margin
    from policies.outside import Outside
    from schemas.records import Application, Input, PolicyState
    from streams.operators.configuration import Deployed

# Memory of an entry beside its name and its state's numbers, and of each number: in the state, in the values worked out
# from it, and in the decision.
ENTRY_BYTES, NUMBER_BYTES = 1_536, 48
# A state this old is read again: most of what delays a lesson where joiner and learner are quick. It costs twenty reads
# a second for each active state.
STALE_US = 50_000


class ArmChoice(NamedTuple):
    """A decision, and the models that it asks."""

    decision: Decision
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Arms:
    """A policy with one state of it, ready to decide: values that do not depend on the query are worked out once.

    Attributes:
        policy: whose arms they are.
        names: of the arms.
        cumulative: of the propensities, one for each arm.
        weights: how much each arm's answer counts.
        votes: the weights by answer, for a policy that judges answers; else the weights.
        choices: one for each arm that can be asked alone, or the one that asks them all.
        propensities_in: the propensities in a situation, for a policy that uses it.
        most_features: that a query may have; a policy that uses no features only logs them.
        apprentice: a policy that learns from what is decided; empty = none.
        steps: what may be asked after the first models; None = nothing.
        read: what the state answers, for a policy whose state does; else None.
        confidences: how often each arm is right, for a policy that asks one; else None. See `policies.calibration`.
        aim: how sets of labels or intervals are made, for an application that promises coverage; else None.
        features_of: makes features of an input, for a policy that sees it; None = it goes by those that clients send.
    """

    policy: Policy
    names: tuple[str, ...]
    cumulative: tuple[float, ...]
    weights: tuple[float, ...]
    votes: tuple[float, ...] | VoteWeights
    choices: tuple[ArmChoice, ...]
    propensities_in: Callable[[Situation], tuple[float, ...]] | None = None
    most_features: int = MAX_FEATURES
    apprentice: str = ""
    steps: Steps | None = None
    read: Read | None = None
    confidences: State | None = None
    aim: Aim | Margin | None = None
    features_of: Callable[[Input], tuple[float, ...]] | None = None

    @property
    def any_decision(self) -> Decision:
        """A decision in this state; who has chosen what otherwise than by it says so in its place."""
        return self.choices[0].decision

    @property
    def goes_by_query(self) -> bool:
        """Whether what is decided depends on the query's situation or input."""
        return self.propensities_in is not None or self.features_of is not None

    def decide(self, u: float) -> ArmChoice:
        """Return the choice for a uniform draw in [0, 1): ask all arms, or one by inverse CDF."""
        if len(self.choices) == 1:
            return self.choices[0]
        return self.choices[min(bisect_right(self.cumulative, u * self.cumulative[-1]), len(self.choices) - 1)]

    def decide_in(self, situation: Situation, u: float) -> tuple[ArmChoice, tuple[float, ...] | VoteWeights]:
        """Return the choice in a situation, with its features, and the weights for that choice."""
        features = situation.features
        if self.propensities_in is None:
            choice = self.decide(u)
            return choice._replace(decision=choice.decision._replace(features=features)), self.votes
        shares = self.propensities_in(situation)
        known = self.choices[0].decision
        if not self.policy.full_information:
            arm = pick(shares, u)
            decision = known._replace(chosen=(arm,), propensities=shares, features=features)
            return self.choices[arm]._replace(decision=decision), shares
        if shares == known.propensities and not features:
            return self.choices[0], self.votes
        chosen = tuple([arm for arm, share in enumerate(shares) if share])
        return _choice(known._replace(chosen=chosen, propensities=shares, features=features)), self.votes


def arms_of(policy: Policy, names: tuple[str, ...], name: str, state: PolicyState | None, apprentice: str = "") -> Arms:
    """Return the policy in this state; other arms are re-mapped by name, and a policy without a state starts anew.

    Args:
        policy: that decides.
        names: of the arms, the application's models.
        name: of the state.
        state: as stored, None if nothing is.
        apprentice: a policy that learns from what is decided.
    """
    if comes_from_outside(policy):
        return outside_arms(policy, names, name, state, apprentice)
    spec, count = registry.spec(policy), len(names)
    values, version = policy.init(count), 0
    state = state_of(state, spec)
    if state is not None:
        version = state.version
        values = state.values if state.arms == names else policy.extend(state.values, state.arms, names)
    shares, weights = policy.propensities(values, count), policy.weights(values, count)
    steps = policy.steps(values, count) if is_stepwise(policy) else None
    asked = [tuple(range(count))] if policy.full_information else [(arm,) for arm in range(count)]
    votes = policy.vote_weights(values, count) if is_answer_aware(policy) else weights
    if steps is not None:
        asked, votes = [steps.first], steps.votes
    return Arms(
        policy,
        names,
        tuple(accumulate(shares)),
        weights,
        votes,
        tuple(_choice(Decision(chosen, version, name, spec, names, shares, (), apprentice)) for chosen in asked),
        policy.propensities_in(values, count) if is_contextual(policy) else None,
        MAX_FEATURES if (most := most_features(policy)) is None else most,
        apprentice,
        steps,
        policy.reading(values, count) if is_answering(policy) else None,
        _confidences(spec, names, state),
    )


def _confidences(spec: str, names: tuple[str, ...], state: PolicyState | None) -> State | None:
    """Return how often each arm is right, as a state has it; None: the policy does not ask one."""
    if not registry.asks_one(spec):
        return None
    return () if state is None else calibration.extended(state.confidences, state.arms, names)


def with_aim(arms: Arms, application: Application, state: PolicyState | None = None) -> Arms:
    """Return arms that make sets of labels or intervals, if the application promises coverage.

    Args:
        arms: of its policy.
        application: that decides.
        state: of the policy; None = nothing is known.
    """
    if not application.coverage:
        return arms
    return replace(arms, aim=aim_of(application, () if state is None else state.coverage))


UNDECIDED = ArmChoice(cast("Decision", None), ())  # a policy of somebody's own has failed
_NO_DECISION = Decision((), 0, "", "", (), ())


@dataclass(frozen=True, slots=True)
class OutsideArms(Arms):
    """Those of a policy from outside, whose `select` is called for each query; it may fail, and a query has no answer.

    Attributes:
        values: the state.
        known: a decision of it, without the arms.
        fault: why it cannot decide in this state; empty = it can.
    """

    values: State = ()
    known: Decision = _NO_DECISION
    fault: str = ""

    @property
    def any_decision(self) -> Decision:
        """A decision in this state."""
        return self.known

    def decide(self, u: float) -> ArmChoice:
        """Return the choice for a uniform draw; of no model, if the policy fails."""
        return self.decide_in(PLAIN, u)[0]

    def decide_in(self, situation: Situation, u: float) -> tuple[ArmChoice, tuple[float, ...] | VoteWeights]:
        """Return the choice in a situation, and the weights for that choice."""
        policy, shares = self.policy, self.known.propensities
        weights: Any = self.votes
        if self.fault:
            return UNDECIDED, weights
        try:
            if self.steps is not None:
                chosen = self.steps.first
            elif self.propensities_in is not None:
                shares = self.propensities_in(situation)
                chosen = systematic(shares, u)
            else:
                chosen = policy.select(self.values, len(self.names), u)
        except PolicyError:
            return UNDECIDED, weights
        if situation.features and isinstance(weights, OwnAnswer):
            weights = OwnAnswer(partial(cast("Any", weights.combine), features=situation.features))
        decision = self.known._replace(chosen=chosen, propensities=shares, features=situation.features)
        return _choice(decision), weights


def outside_arms(
    policy: Outside, names: tuple[str, ...], name: str, state: PolicyState | None, apprentice: str
) -> OutsideArms:
    """Return the arms of a policy from outside; arguments are those of `arms_of`."""
    spec, count = registry.spec(cast("Policy", policy)), len(names)
    state = state_of(state, spec)
    values: State = ()
    shares = weights = (1.0 / count,) * count
    in_situation, steps, read, votes, fault, version = None, None, None, None, "", 0
    try:
        values = policy.init(count) if state is None else state.values
        if state is not None:
            values, version = policy.extend(values, state.arms, names), state.version
        shares, weights = policy.propensities(values, count), policy.weights(values, count)
        in_situation = policy.propensities_in(values, count) if is_contextual(cast("Policy", policy)) else None
        steps = policy.steps(values, count) if is_stepwise(cast("Policy", policy)) else None
        read = policy.reading(values, count) if is_answering(cast("Policy", policy)) else None
        votes = _own_votes(policy, values, count, steps)
    except PolicyError as error:
        fault = str(error)
    known = Decision((), version, name, spec, names, shares, (), apprentice)
    most = most_features(cast("Policy", policy)) if in_situation is not None else None
    return OutsideArms(
        cast("Policy", policy), names, (), weights, weights if votes is None else votes, (), in_situation,
        MAX_FEATURES if most is None else most, apprentice, steps, read, _confidences(spec, names, state),
        None, getattr(policy, "features_of", None), values, known, fault,
    )  # fmt: skip


def _own_votes(policy: Outside, values: State, count: int, steps: Steps | None) -> Any:
    """Return what else than weights of arms makes an answer: itself, or weights by what is answered; None = nothing."""
    if hasattr(policy, "combine"):
        return OwnAnswer(partial(policy.combine, values, count))
    if steps is not None:
        return steps.votes
    return policy.vote_weights(values, count) if is_answer_aware(cast("Policy", policy)) else None


def _choice(decision: Decision) -> ArmChoice:
    return ArmChoice(decision, _asked(decision.arms, decision.chosen))


@lru_cache(4_096)  # contexts are many, and each has a state with the same arms
def _asked(arms: tuple[str, ...], chosen: tuple[int, ...]) -> tuple[str, ...]:
    """Return the chosen models."""
    return tuple([arms[arm] for arm in chosen])


class _CachedState:
    """One state of the view: when it was read and asked for, the arms worked out from it, and its rough size.

    Attributes:
        is_begun: whether the arms come from the common state, as the policy has learnt nothing under this name.
    """

    __slots__ = ("arms", "asked_us", "is_begun", "read_us", "size", "state")

    def __init__(self, state: PolicyState | None, read_us: int) -> None:
        self.state = state
        self.read_us = read_us
        self.asked_us = read_us
        self.arms: Arms | None = None
        self.is_begun = False
        self.size = 0


class StateView:
    """Least-recently-used view of policy states; if there are too many, the application with the most loses some.

    Args:
        capacity: of states.
        capacity_bytes: that they may take, estimated.
    """

    __slots__ = ("_shelves",)

    def __init__(self, capacity: int, capacity_bytes: int = maxsize) -> None:
        self._shelves: FairCache[str, StateKey, _CachedState] = FairCache(
            lambda _, entry: entry.size, capacity, capacity_bytes
        )

    def __len__(self) -> int:
        return len(self._shelves)

    @property
    def size(self) -> int:
        """The bytes that the states take, estimated."""
        return self._shelves.size

    def __contains__(self, key: StateKey) -> bool:
        return self._find(key) is not None

    def arms(self, key: StateKey, deployed: Deployed, forgotten_us: int = 0) -> Arms | None:
        """Return the arms in the state last read, None if it was never read.

        If none of the policy is stored, they are those of the application's state if the policy has a `start`, else the
        initial ones.

        Args:
            key: of the state.
            deployed: the application that decides.
            forgotten_us: a state that was taught last before then is as none; 0 = however long ago.
        """
        application, policy = deployed.application, deployed.policy
        shelf = self._shelves.find(application.name)
        entry = None if shelf is None else shelf.entries.get(key)
        if shelf is None or entry is None:
            return None
        shelf.entries.move_to_end(key)
        if forgotten_us and entry.state is not None and 0 < entry.state.taught_us < forgotten_us:
            entry.state = entry.arms = None
        arms, names = entry.arms, application.models
        if (
            arms is None
            or arms.policy is not policy
            or arms.names is not names
            or arms.apprentice != deployed.apprentice
            or (0.0 if arms.aim is None else arms.aim.coverage) != application.coverage
        ):
            state = state_of(entry.state, registry.spec(policy))
            entry.is_begun = state is None
            state = state or self._started(key, policy, application.name)
            arms = arms_of(policy, names, key.name, state, deployed.apprentice)
            arms = entry.arms = with_aim(arms, application, state)
        return arms

    def is_new(self, key: StateKey, policy: Policy) -> bool:
        """Tell whether the store is known to hold nothing of a policy under a key."""
        entry = self._find(key)
        return entry is None or state_of(entry.state, registry.spec(policy)) is None

    def _started(self, key: StateKey, policy: Policy, application: str) -> PolicyState | None:
        name = StateKey(key.partition, application)
        shelf = self._shelves.find(application)
        common = shelf.entries.get(name) if shelf is not None and has_shared_prior(policy) else None
        if shelf is None or common is None:
            return None
        shelf.entries.move_to_end(name)  # however many contexts come, the state that they start from stays in the view
        try:
            return started(common.state, registry.spec(policy))
        except PolicyError:  # of a policy from outside: it starts anew
            return None

    def is_stale(self, key: StateKey, now_us: int) -> bool:
        """Tell whether a state that is in the view should be read again now; true once for each reading."""
        entry = self._find(key)
        if entry is None or now_us - entry.read_us < STALE_US or now_us - entry.asked_us < STALE_US:
            return False
        entry.asked_us = now_us
        return True

    def is_due(self, key: StateKey, now_us: int) -> bool:
        """Tell whether a state is not in the view, or should be read again now."""
        return key not in self or self.is_stale(key, now_us)

    def put(self, key: StateKey, state: PolicyState | None, now_us: int) -> None:
        """Store a state that was read."""
        entry = self._find(key)
        if entry is None:
            entry = _CachedState(state, now_us)
        elif entry.is_begun or state is None or state != entry.state:  # the common state may have changed
            entry.state, entry.arms = state, None
        entry.read_us = now_us
        more = _size(key, state) - entry.size
        entry.size += more
        self._shelves.put(application_of(key.name), key, entry, more)
        self._shelves.trim()

    def _find(self, key: StateKey) -> _CachedState | None:
        shelf = self._shelves.find(application_of(key.name))
        return None if shelf is None else shelf.entries.get(key)


def _size(key: StateKey, state: PolicyState | None) -> int:
    return ENTRY_BYTES + 4 * len(key.name) + NUMBER_BYTES * numbers(state)
