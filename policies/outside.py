"""Policies from outside the package, by a dotted path or by the name of an entry point.

    policy: my_pkg.mine:MyPolicy      package.module:Class, installed or in the folder where a role starts
    policy: mine                      the entry point `mine` of the group `skysail.policies` of an installed package

`Outside` holds one and fulfils `policies.contract.Policy`. Whatever a stranger's code returns is checked here, and
whatever it raises is a `PolicyError`. So it can spoil its own application's decisions, and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from inspect import Parameter, signature
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from policies import dotted, guarded
from policies.dotted import DottedPathError
from policies.errors import MOST_VALUES, PolicyError
from policies.foreign import pass_on_interrupt, told
from schemas.inputs import MAX_FEATURES
from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeGuard

    from policies.contract import Situation, State, VoteWeights
    from policies.lessons import Lesson
    from schemas.records import Input, ModelOutput, Value

GROUP: Final = "skysail.policies"
NEEDED: Final = ("init", "propensities", "select", "observe")
_MOST_REFUSED: Final = 1_000
_allowed: list[str] | None = None
_known: set[str] = set()
_refused: dict[str, str] = {}


def allow(code: Iterable[str] | None) -> None:
    """Say which modules and packages may be named by a path in this process; None = any (`policy_code`)."""
    global _allowed  # noqa: PLW0603 - of the process, as what it has imported is
    _allowed = None if code is None else [*code]


def is_known(name: str) -> bool:
    """Tell whether a policy from outside has been imported here."""
    return name in _known


def forbidden(name: str, what: str = "policy") -> str:
    """Return why a policy, or a loss, must not even be imported here; empty = it may be."""
    path, colon, _ = name.partition(":")
    if not colon:
        return ""
    try:
        dotted.check(path, name)
    except DottedPathError as error:
        return f"{what} {error}"
    if _allowed is None or (_allowed and dotted.is_within(name, _allowed)):
        return ""
    within = f"is not within {', '.join(_allowed)}" if _allowed else "is named by a path, which nothing allows here"
    return f"{what} {name} {within}: add {path} to policy_code"


def refuse(name: str, fault: str) -> None:
    """Have a policy refused without importing anything, until it is refused for nothing: an empty fault."""
    _refused.pop(name, None)
    if fault:
        _refused[name] = fault
    if len(_refused) > _MOST_REFUSED:
        del _refused[next(iter(_refused))]


def fault_of(name: str) -> str:
    """Import a policy from outside; return what speaks against it, empty = nothing."""
    try:
        _class(name)
    except PolicyError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Outside:
    """A policy of somebody's own: equal to another one of the same name and parameters.

    Attributes:
        name: under which it was found.
        parameters: all of them, as JSON, by name.
        policy: itself.
    """

    name: str
    parameters: str
    policy: Any = field(compare=False, repr=False)

    @property
    def full_information(self) -> bool:
        """Whether every arm is asked about every query; so it says itself."""
        return getattr(self.policy, "full_information", False) is True

    @property
    def adopts(self) -> bool:
        """Whether it may keep what was learnt when a parameter changes."""
        return hasattr(self.policy, "adopt")

    def init(self, arms: int) -> State:
        """Return the state before any observation."""
        return self._state("init", arms)

    def propensities(self, state: State, arms: int) -> tuple[float, ...]:
        """Return the probability that each arm is asked."""
        return self._shares("propensities", self._call("propensities", state, arms), arms)

    def select(self, state: State, arms: int, u: float) -> tuple[int, ...]:
        """Return the arms to ask, rising."""
        return self._arms(self._call("select", state, arms, u), arms)

    def floor(self, arms: int) -> float:
        """Return the least propensity of an arm; 0.0 if it does not say."""
        return float(self._call("floor", arms)) if hasattr(self.policy, "floor") else 0.0

    def weights(self, state: State, arms: int) -> tuple[float, ...]:
        """Return how much each answer counts; its propensities if it does not say, made to sum to 1."""
        if hasattr(self.policy, "weights"):
            return self._shares("weights", self._call("weights", state, arms), arms)
        shares = self.propensities(state, arms)
        total = sum(shares) or 1.0
        return tuple([share / total for share in shares])

    def observe(self, state: State, arms: int, lesson: Lesson) -> State:
        """Return the state after one observation."""
        after = self._state("observe", state, arms, lesson)
        if len(after) != len(state):
            raise PolicyError(
                f"{self.name}.observe made {len(after)} numbers of {len(state)}; the state has one length"
            )
        return after

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Return the state for other arms; without an `extend` of its own it starts anew."""
        if tuple(old_arms) == tuple(new_arms):
            return state
        if hasattr(self.policy, "extend"):
            return self._state("extend", state, tuple(old_arms), tuple(new_arms))
        return self.init(len(new_arms))

    def adopt(self, before: Outside, state: State, arms: int) -> State | None:
        """Return the state to go on from when parameters have changed; None: it starts anew."""
        if not self.adopts or self._call("adopt", before.policy, state, arms) is None:
            return None
        return self._state("adopt", before.policy, state, arms)

    def __getattr__(self, name: str) -> Any:
        """Return what it can do beyond that, if it can."""
        found = _MORE.get(name)
        if found is None or not hasattr(self.policy, name):
            raise AttributeError(name)
        return found(self)

    def _call(self, method: str, *given: object) -> Any:
        return guarded.called(self._of(method), lambda: getattr(self.policy, method)(*given))

    def _of(self, method: str) -> str:
        return f"{self.name}.{method}"

    def _state(self, method: str, *given: object) -> State:
        values, what = self._call(method, *given), self._of(method)
        state = guarded.read(what, values, "a tuple of floats", lambda found: tuple([float(one) for one in found]))
        if len(state) > MOST_VALUES or not all(map(isfinite, state)):
            raise PolicyError(f"{what}: a state has at most {MOST_VALUES} numbers, all finite")
        return state

    def _shares(self, method: str, values: object, arms: int) -> tuple[float, ...]:
        return guarded.shares_of(self._of(method), values, arms)

    def _arms(self, values: object, arms: int) -> tuple[int, ...]:
        what, should = self._of("select"), f"at least one of 0 to {arms - 1}"
        chosen = guarded.read(what, values, should, lambda found: tuple(sorted({int(arm) for arm in found})))
        if not chosen or chosen[0] < 0 or chosen[-1] >= arms:
            raise PolicyError(f"{what} returned {guarded.short(values)}; it is {should}")
        return chosen


def _start(self: Outside) -> Callable[[State, int], State]:
    return lambda state, arms: self._state("start", state, arms)


def _takes_four(policy: Any) -> bool:
    """Tell whether `combine` is given the features, too; one that does not say what it takes is not."""
    try:
        return len(signature(policy.combine).parameters) > 3
    except BaseException as error:  # noqa: BLE001 - whatever a stranger's attribute does
        pass_on_interrupt(error)
        return False


def _combine(self: Outside) -> Callable[..., tuple[Value | None, float]]:
    what, should = self._of("combine"), "an answer and a confidence"
    sees = _takes_four(self.policy)

    def combine(
        state: State, arms: int, outputs: Mapping[int, ModelOutput], features: tuple[float, ...] = ()
    ) -> tuple[Value | None, float]:
        made = self._call("combine", state, arms, outputs, *([features] if sees else []))
        answer, confidence = guarded.read(what, made, should, lambda pair: (pair[0], float(pair[1])))
        if not 0.0 <= confidence <= 1.0 or not isinstance(answer, int | float | str | Tensor | NamedTensors | None):
            raise PolicyError(f"{what} returned {guarded.short(made)}: no answer, or a confidence not in [0, 1]")
        return answer, confidence

    return combine


def _propensities_in(self: Outside) -> Callable[[State, int], Callable[[Situation], tuple[float, ...]]]:
    what = self._of("propensities_in")

    def propensities_in(state: State, arms: int) -> Callable[[Situation], tuple[float, ...]]:
        ask = self._call("propensities_in", state, arms)
        return lambda situation: guarded.shares_of(what, guarded.called(what, ask, situation), arms)

    return propensities_in


def _features_of(self: Outside) -> Callable[[Input], tuple[float, ...]]:
    """Return what makes features of a query's input, which the policy is given as an array, arrays by name, or text."""
    what, should = self._of("features_of"), f"at most {MAX_FEATURES} finite numbers"

    def features_of(given: Input) -> tuple[float, ...]:
        row = given.arrays() if isinstance(given, NamedTensors) else given
        found = self._call("features_of", row.numpy() if isinstance(row, Tensor) else row)
        features = guarded.read(what, found, should, lambda values: tuple([float(value) for value in values]))
        if len(features) > MAX_FEATURES or not all(map(isfinite, features)):
            raise PolicyError(f"{what} returned {guarded.short(found)}; it is {should}")
        return features

    return features_of


def _vote_weights(self: Outside) -> Callable[[State, int], VoteWeights]:
    return lambda state, arms: guarded.votes(self._of("vote_weights"), self._call("vote_weights", state, arms))


def _steps(self: Outside) -> Callable[[State, int], guarded.GuardedSteps]:
    return lambda state, arms: guarded.GuardedSteps(self._of("steps"), self._call("steps", state, arms), arms)


def _reading(self: Outside) -> Callable[[State, int], guarded.GuardedRead]:
    return lambda state, arms: guarded.reading(self._of("reading"), self._call("reading", state, arms), arms)


_MORE: Final[Mapping[str, Callable[[Outside], Any]]] = {
    "start": _start,
    "combine": _combine,
    "propensities_in": _propensities_in,
    "uses": lambda self: self.policy.uses,
    "features": lambda self: self.policy.features,
    "features_of": _features_of,
    "vote_weights": _vote_weights,
    "steps": _steps,
    "reading": _reading,
    "chooses": lambda self: self.policy.chooses,
    "items": lambda self: self.policy.items,
}


def comes_from_outside(policy: object) -> TypeGuard[Outside]:
    """Tell whether a policy is somebody's own."""
    return isinstance(policy, Outside)


@lru_cache(maxsize=256)
def is_outside(name: str) -> bool:
    """Tell whether a name is that of a policy from outside: a path, or an entry point."""
    return ":" in name or bool(entry_points(group=GROUP, name=name))


def outside(name: str, parameters: Mapping[str, Any]) -> Outside:
    """Return the policy of that path or entry point; parameters left out have their defaults.

    Raises:
        PolicyError: it cannot be imported here or may not be, is no policy, or does not take these parameters.
    """
    maker = _class(name)
    takes = {key: one for key, one in signature(maker).parameters.items() if one.kind is not Parameter.VAR_KEYWORD}
    for key in parameters:
        if key not in takes:
            raise PolicyError(f"policy {name} has no parameter {key!r} (known: {', '.join(takes) or 'none'})")
    try:
        policy = maker(**parameters)
    except PolicyError:
        raise
    except BaseException as error:  # whatever a stranger's code does
        pass_on_interrupt(error)
        raise PolicyError(
            f"policy {name} cannot be made of {guarded.short(dict(parameters))}: {told(error)}"
        ) from error
    defaults = {key: one.default for key, one in takes.items() if one.default is not Parameter.empty}
    try:
        written = json.dumps({**defaults, **parameters}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"policy {name}: its parameters and their defaults must be JSON ({error})") from error
    return Outside(name, written, policy)


@lru_cache(maxsize=256)
def _class(name: str) -> type[Any]:
    if fault := _refused.get(name) or forbidden(name):
        raise PolicyError(fault)
    found = _at(name) if ":" in name else _entry(name)
    if not isinstance(found, type):
        raise PolicyError(f"policy {name} is no class; name the class whose objects are policies")
    lacking = [method for method in NEEDED if not callable(getattr(found, method, None))]
    if lacking:
        raise PolicyError(f"{name} is no policy: it has no method {', '.join(lacking)}; see docs/extending.md")
    _known.add(name)
    return found


def _at(path: str) -> object:
    try:
        return dotted.resolve(path)
    except DottedPathError as error:
        raise PolicyError(
            f"policy {error}. Selection, the learner and every command that replays or evaluates need it"
        ) from error


def _entry(name: str) -> object:
    try:
        return next(iter(entry_points(group=GROUP, name=name))).load()
    except BaseException as error:  # whatever a stranger's module does when it is imported
        pass_on_interrupt(error)
        raise PolicyError(
            f"policy {name}, the entry point of an installed package, cannot be imported: {told(error)}"
        ) from error
