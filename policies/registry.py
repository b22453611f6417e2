"""The policies by name, and a policy as one line of text, as applications and decisions carry it."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any

from policies.arm_sets import OneArm
from policies.cascade import Cascade
from policies.class_vote import ClassVote
from policies.context_tree import ContextTree
from policies.contract import is_answering
from policies.discounted_ucb import DiscountedUcb
from policies.epsilon_greedy import EpsilonGreedy
from policies.errors import PolicyError, build
from policies.exp3 import Exp3
from policies.exp4 import Exp4
from policies.linear_thompson import LinearThompson
from policies.linucb import LinUcb
from policies.outside import comes_from_outside, is_outside, outside
from policies.ridge import Ridge
from policies.single import Single
from policies.thompson import Thompson
from policies.timely import Timely
from policies.two_speed import TwoSpeed
from policies.ucb1 import Ucb1

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policies.contract import Policy
    from schemas.records import Application

POLICIES: Mapping[str, Callable[..., Policy]] = {
    Single.name: Single,
    EpsilonGreedy.name: EpsilonGreedy,
    Ucb1.name: Ucb1,
    DiscountedUcb.name: DiscountedUcb,
    Thompson.name: Thompson,
    LinUcb.name: LinUcb,
    LinearThompson.name: LinearThompson,
    ContextTree.name: ContextTree,
    Exp3.name: Exp3,
    Exp4.name: Exp4,
    ClassVote.name: ClassVote,
    Timely.name: Timely,
    Cascade.name: Cascade,
    Ridge.name: Ridge,
    TwoSpeed.name: TwoSpeed,
}

_SPEC = re.compile(r"(?P<name>[\w.:-]+)(?:\((?P<parameters>.*)\))?", re.ASCII | re.DOTALL)
_KEY = re.compile(r"\s*(\w+)\s*=\s*", re.ASCII)
_NEXT = re.compile(r"\s*(?:,|$)")
_read_json = json.JSONDecoder().raw_decode
# One entry an application and parameter set that this process has met.
_REMEMBERED = 1024


def create(name: str, parameters: Mapping[str, Any] | None = None) -> Policy:
    """Return the policy of that name, dotted path or entry point; parameters left out have their defaults.

    Raises:
        PolicyError: Unknown name or parameter (the nearest is named), a value out of range, or a policy from outside
            that cannot be imported here.
    """
    if name not in POLICIES and is_outside(name):
        found: Any = outside(name, parameters or {})
        return found  # type: ignore[no-any-return]  # its name is its own, not its class's
    return build("policy", POLICIES, name, parameters or {})


def policy_of(application: Application) -> Policy:
    """Return the policy that decides for an application.

    Raises:
        PolicyError: as `create`.
    """
    return create(application.policy, parameters_of(application))


def parameters_of(application: Application) -> dict[str, Any]:
    """Return the parameters of an application's policy.

    Raises:
        PolicyError: `options` is no JSON object.
    """
    if not application.options:
        return dict(application.parameters)
    try:
        return {**application.parameters, **json.loads(application.options)}
    except (TypeError, ValueError) as error:
        raise PolicyError(f"application {application.name}: its options are no JSON object ({error})") from error


def recorded(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an application's record that say its policy: numbers, and as JSON what is from outside."""
    if name in POLICIES or not is_outside(name):
        numbers = {key: float(value) if type(value) is int else value for key, value in parameters.items()}
        return {"policy": name, "parameters": numbers, "options": ""}
    return {"policy": name, "parameters": {}, "options": json.dumps(parameters) if parameters else ""}


def fields_of(policy: Policy) -> dict[str, Any]:
    """Return the fields of an application's record that say this policy, with all its parameters."""
    return recorded(policy.name, _values(policy))


def _values(policy: Policy) -> dict[str, Any]:
    if comes_from_outside(policy):
        return dict(json.loads(policy.parameters))
    later: frozenset[str] = getattr(policy, "later", frozenset())
    known = signature(type(policy)).parameters
    values = {key: getattr(policy, key) for key in sorted(known)}
    return {key: value for key, value in values.items() if key not in later or value != known[key].default}


@lru_cache(_REMEMBERED)
def spec(policy: Policy) -> str:
    """Write policy and parameters canonically: sorted names, shortest digits that read back to the same number.

    States are found by it. So a parameter that a policy has gained since (`later`) is not written while it has its
    default: what was learnt before goes on.

    Examples:
        >>> spec(Exp3())
        'exp3(eta=0.05,gamma=0.05,share=0.0001)'
    """
    write = json.dumps if comes_from_outside(policy) else repr
    written = ",".join(f"{key}={write(value)}" for key, value in _values(policy).items())
    return f"{policy.name}({written})"


@lru_cache(_REMEMBERED)
def parse(text: str) -> Policy:
    """Read what `spec` wrote; a bare name, or a part of the parameters, leaves the rest at its defaults.

    Raises:
        PolicyError: Not of this form, or no such policy.
    """
    return create(*given(text))


def given(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters that a text names.

    Raises:
        PolicyError: Not of this form.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise PolicyError(f"{text!r} is not a policy; write it as name(parameter=number,...)")
    return match["name"], _parameters(match["parameters"] or "", text)


@lru_cache(_REMEMBERED)
def answers(text: str) -> bool:
    """Tell whether the state of a policy, as `spec` wrote it, answers itself; a policy that there is not does not."""
    try:
        return is_answering(parse(text))
    except PolicyError:
        return False


@lru_cache(_REMEMBERED)
def asks_one(text: str) -> bool:
    """Tell whether a policy, as `spec` wrote it, asks one model a query, whose answer is given as it is.

    A policy that there is not does not.
    """
    try:
        policy = parse(text)
    except PolicyError:
        return False
    own = policy.policy if comes_from_outside(policy) else policy
    return isinstance(own, OneArm) and not hasattr(own, "combine")


def _parameters(written: str, text: str) -> dict[str, Any]:
    """Read name=value, separated by commas; a value is JSON."""
    found: dict[str, Any] = {}
    at = 0
    while written[at:].strip(" ,\n"):
        at += len(written[at:]) - len(written[at:].lstrip(" ,\n"))
        part = written[at:].partition(",")[0]
        key = _KEY.match(written, at)
        try:
            value, at = _read(written, at if key is None else key.end())
        except ValueError:
            raise PolicyError(f"{text!r}: {part.strip()!r} is not parameter=number") from None
        if key is None:
            raise PolicyError(f"{text!r}: {part.strip()!r} is not parameter=number")
        found[key[1]] = value
    return found


def _read(written: str, at: int) -> tuple[Any, int]:
    """Return a value, and where it ends.

    Raises:
        ValueError: it is neither JSON nor a number.
    """
    try:
        value, end = _read_json(written, at)
        if _NEXT.match(written, end):
            return value, end
    except ValueError:
        pass
    end = written.find(",", at) if "," in written[at:] else len(written)
    return float(written[at:end]), end
