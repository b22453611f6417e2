"""Observations into policy states: a fold whose result depends on the log alone, bit for bit."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from policies import registry
from policies.contract import is_answer_aware, is_contextual
from policies.errors import PolicyError
from schemas.records import PolicyState
from streams.operators.cold_start import is_forgotten, started, states_of
from streams.operators.ids import SeenIds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policies.contract import Policy, State
    from schemas.records import Decision, Observation

# Cached meanings of decisions: more than a poll has of an application and a version of its state.
_MEANINGS = 1024


class Fold:
    """One state during a fold: observations change it one by one; values that they share are looked up once."""

    __slots__ = ("_arms", "_policy", "_taught_us", "_values", "_version", "taken")

    def __init__(self, state: PolicyState | None) -> None:
        self._policy: str | None = None
        self._arms: tuple[str, ...] = ()
        self._version = 0
        self._values: State = ()
        self._taught_us = 0
        if state is not None:
            self._policy, self._arms, self._version, self._values, self._taught_us = state
        self.taken = False  # whether an observation has changed it

    @property
    def state(self) -> PolicyState:
        """The state as it is now; there is one as soon as an observation was taken."""
        assert self._policy is not None
        return PolicyState(self._policy, self._arms, self._version, self._values, self._taught_us)

    def take(self, seen: Observation) -> None:
        """Fold one observation.

        A state of another policy (or parameters) starts anew; of other arms, it is re-mapped by name.

        Raises:
            PolicyError: the decision names a policy that does not exist, or does not fit its arms; the state stays.
        """
        decision = seen.decision
        policy, count, is_plain = _checked(seen)
        version, values = self._version, self._values
        try:
            if decision.policy != self._policy:
                version, values = 0, policy.init(count)
            elif decision.arms != self._arms:
                values = policy.extend(values, self._arms, decision.arms)
            if is_plain:
                values = policy.observe(values, count, decision.chosen, decision.propensities, seen.losses)
            else:
                values = _observed(policy, values, count, seen)
        except IndexError as error:
            raise PolicyError(f"the stored state has {len(values)} values, which do not fit {count} arms") from error
        except PolicyError:
            raise
        except (ArithmeticError, ValueError) as error:  # of a policy's numbers: reading again would not help
            raise PolicyError(f"{decision.policy} cannot learn from it: {error!r}") from error
        # A sum of finite numbers may overflow, one with others is never finite.
        if not isfinite(sum(values)) and not all(map(isfinite, values)):
            raise PolicyError(
                f"{decision.policy} leaves the finite numbers on these losses; make its parameters smaller"
            )
        self._policy, self._arms, self._version, self._values = decision.policy, decision.arms, version + 1, values
        if seen.forget_us:
            self._taught_us = max(self._taught_us, seen.observed_us)
        self.taken = True


class Folding:
    """Folds observations of one partition of the log into its states, by runs of one state.

    Args:
        states: by name; changed by `settle`.

    Attributes:
        changed: what the observations have changed, by name.
        numbers: how many the states in `changed` have.
    """

    __slots__ = ("_fold", "_name", "_states", "changed", "numbers")

    def __init__(self, states: dict[str, PolicyState | None]) -> None:
        self._states = states
        self._name: str | None = None
        self._fold = Fold(None)
        self.changed: dict[str, PolicyState] = {}
        self.numbers = 0

    def take(self, seen: Observation) -> None:
        """Fold one observation; the states that it teaches are there.

        Raises:
            PolicyError: it cannot be; the states stay.
        """
        if seen.context is None:  # one state to teach, as `taught` would say
            name = seen.decision.state
            if name != self._name:
                self.settle()
                self._name, self._fold = name, Fold(self._states[name])
            self._fold.take(seen)
        else:
            self.settle()
            for name, state in taught(self._states, seen).items():
                self._set(name, state)

    def settle(self) -> None:
        """Store the state that the latest run ended in."""
        if self._name is not None and self._fold.taken:
            self._set(self._name, self._fold.state)
        self._name = None

    def _set(self, name: str, state: PolicyState) -> None:
        if name not in self.changed:
            self.numbers += len(state.values)
        self._states[name] = self.changed[name] = state


def apply(state: PolicyState | None, seen: Observation) -> PolicyState:
    """Fold one observation into a state.

    Raises:
        PolicyError: as `Fold.take`.
    """
    under_way = Fold(state)
    under_way.take(seen)
    return under_way.state


def taught(states: Mapping[str, PolicyState | None], seen: Observation) -> dict[str, PolicyState]:
    """Return the states that an observation changes, by name, as they are after it.

    Raises:
        PolicyError: as `Fold.take`.
    """
    own, *others = states_of(seen)
    before = states.get(own)
    if before is not None and seen.context is not None and is_forgotten(before, seen.observed_us, seen.forget_us):
        before = None
    if not others:
        return {own: apply(before, seen)}
    common = states.get(others[0])
    return {own: apply(before or started(common, seen.decision.policy), seen), others[0]: apply(common, seen)}


def fold(log: Iterable[tuple[int, Observation]], window_us: int) -> dict[str, PolicyState]:
    """Fold one partition's log offline; the states equal the learner's bit for bit.

    Args:
        log: every observation of the partition in order, with its record's timestamp (us).
        window_us: the learner's window of query ids.
    """
    seen_ids = SeenIds(window_us)
    states: dict[str, PolicyState] = {}
    for timestamp_us, seen in log:
        if seen_ids.add(seen.query_id, timestamp_us):
            states.update(taught(states, seen))
    return states


def _observed(policy: Policy, values: State, count: int, seen: Observation) -> State:
    """Let a policy learn that may need more than the losses."""
    decision = seen.decision
    if is_contextual(policy):
        return policy.observe(values, count, decision.chosen, decision.propensities, seen.losses, decision.features)
    if seen.answers is not None and is_answer_aware(policy):
        return policy.observe(values, count, decision.chosen, decision.propensities, seen.losses, seen.answers)
    return policy.observe(values, count, decision.chosen, decision.propensities, seen.losses)


class _Meaning(NamedTuple):
    """The meaning of a valid decision."""

    policy: Policy
    arms: int
    is_plain: bool  # the policy learns from losses alone


@lru_cache(_MEANINGS)
def _meaning(decision: Decision) -> _Meaning | None:
    """Return the meaning of a decision; None if its parts do not fit each other, or its policy does not exist."""
    count = len(decision.arms)
    if count == 0 or len(decision.propensities) != count or not all(map(_is_share, decision.propensities)):
        return None
    if decision.chosen and not 0 <= min(decision.chosen) <= max(decision.chosen) < count:
        return None
    try:
        policy = registry.parse(decision.policy)
    except PolicyError:
        return None
    return _Meaning(policy, count, not is_contextual(policy) and not is_answer_aware(policy))


def _checked(seen: Observation) -> _Meaning:
    """Return the meaning of an observation's decision; refuse one whose parts do not fit each other."""
    decision, losses, answers = seen.decision, seen.losses, seen.answers
    # A decision with the query's features belongs to this query alone, so it is not cached.
    meaning = _meaning.__wrapped__(decision) if decision.features else _meaning(decision)
    if meaning is None or len(losses) != meaning.arms or (answers is not None and len(answers) != meaning.arms):
        raise _fault(seen)
    for loss in losses:
        if loss is not None and not 0.0 <= loss <= 1.0:
            raise _fault(seen)
    return meaning


def _fault(seen: Observation) -> PolicyError:
    """Say what is wrong with an observation."""
    decision = seen.decision
    count = len(decision.arms)
    if count == 0 or len(decision.propensities) != count or len(seen.losses) != count:
        return PolicyError(f"{count} arms, {len(decision.propensities)} propensities, {len(seen.losses)} losses")
    if decision.chosen and not 0 <= min(decision.chosen) <= max(decision.chosen) < count:
        return PolicyError(f"chosen arms {decision.chosen} of {count}")
    if not all(map(_is_share, decision.propensities)) or not all(map(_is_share, seen.losses)):
        return PolicyError("propensities and losses lie in [0, 1]")
    if seen.answers is not None and len(seen.answers) != count:
        return PolicyError(f"{count} arms, {len(seen.answers)} answers")
    try:
        registry.parse(decision.policy)
    except PolicyError as error:
        return error
    raise AssertionError(f"{decision} fits")


def _is_share(value: float | None) -> bool:
    return value is None or 0.0 <= value <= 1.0
