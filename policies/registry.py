"""The policies by name, and a policy as one line of text, as applications and decisions carry it."""

from __future__ import annotations

import re
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING

from policies.class_vote import ClassVote
from policies.contract import is_answering
from policies.discounted_ucb import DiscountedUcb
from policies.epsilon_greedy import EpsilonGreedy
from policies.errors import PolicyError, build
from policies.exp3 import Exp3
from policies.exp4 import Exp4
from policies.linear_thompson import LinearThompson
from policies.linucb import LinUcb
from policies.ridge import Ridge
from policies.single import Single
from policies.thompson import Thompson
from policies.timely import Timely
from policies.ucb1 import Ucb1

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policies.contract import Policy

POLICIES: Mapping[str, Callable[..., Policy]] = {
    Single.name: Single,
    EpsilonGreedy.name: EpsilonGreedy,
    Ucb1.name: Ucb1,
    DiscountedUcb.name: DiscountedUcb,
    Thompson.name: Thompson,
    LinUcb.name: LinUcb,
    LinearThompson.name: LinearThompson,
    Exp3.name: Exp3,
    Exp4.name: Exp4,
    ClassVote.name: ClassVote,
    Timely.name: Timely,
    Ridge.name: Ridge,
}

_SPEC = re.compile(r"(?P<name>\w+)(?:\((?P<parameters>[^()]*)\))?", re.ASCII)
# One entry an application and parameter set that this process has met.
_REMEMBERED = 1024


def create(name: str, parameters: Mapping[str, float] | None = None) -> Policy:
    """Return the policy of that name; parameters left out have their defaults.

    Raises:
        PolicyError: Unknown name or parameter (the nearest is named), or a value out of range.
    """
    return build("policy", POLICIES, name, parameters or {})


@lru_cache(_REMEMBERED)
def spec(policy: Policy) -> str:
    """Write policy and parameters canonically: sorted names, shortest digits that read back to the same number.

    Examples:
        >>> spec(Exp3())
        'exp3(eta=0.05,gamma=0.05,share=0.0001)'
    """
    written = ",".join(f"{key}={getattr(policy, key)!r}" for key in sorted(signature(type(policy)).parameters))
    return f"{policy.name}({written})"


@lru_cache(_REMEMBERED)
def parse(text: str) -> Policy:
    """Read what `spec` wrote; a bare name, or a part of the parameters, leaves the rest at its defaults.

    Raises:
        PolicyError: Not of this form, or no such policy.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise PolicyError(f"{text!r} is not a policy; write it as name(parameter=number,...)")
    parts = [part for part in (match["parameters"] or "").split(",") if part.strip()]
    return create(match["name"], dict(_pair(part, text) for part in parts))


@lru_cache(_REMEMBERED)
def answers(text: str) -> bool:
    """Tell whether the state of a policy, as `spec` wrote it, answers itself; a policy that there is not does not."""
    try:
        return is_answering(parse(text))
    except PolicyError:
        return False


def _pair(part: str, text: str) -> tuple[str, float]:
    key, _, value = part.partition("=")
    try:
        return key.strip(), float(value)
    except ValueError:
        raise PolicyError(f"{text!r}: {part.strip()!r} is not parameter=number") from None
