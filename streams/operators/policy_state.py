"""The states that lie under one name: that of the policy which decides, and those of others that learn along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies import registry
from policies.errors import PolicyError
from policies.outside import comes_from_outside
from schemas.records import PolicyState

if TYPE_CHECKING:
    from schemas.records import OtherState

# Beside the policy that decides: its apprentice, and two that decided or learnt along before. Their observations may
# come late, and must not take the place of the others.
MOST_OTHERS: Final = 3
# What another state takes beside its numbers, in numbers: its tuple, its name, its time.
OTHER_NUMBERS: Final = 16


def state_of(state: PolicyState | None, policy: str) -> PolicyState | None:
    """Return what a policy has learnt, alone; None if there is nothing of it.

    Args:
        state: all that lies under a name.
        policy: as `policies.registry.spec()` writes it.
    """
    if state is None:
        return None
    if state.policy == policy:
        return state._replace(others=()) if state.others else state
    known = next((alone(other) for other in state.others if other.policy == policy), None)
    return known or adopted(state, policy)


def alone(other: OtherState) -> PolicyState:
    """Return what lies beside another policy's state, as a state of its own."""
    return PolicyState(*other[:4], confidences=other.confidences, coverage=other.coverage)


def adopted(state: PolicyState | None, policy: str) -> PolicyState | None:
    """Return the state from which a policy goes on whose parameters have changed; None if it starts anew.

    Args:
        state: all that lies under a name, of which that of the policy that decided last counts.
        policy: as `policies.registry.spec()` writes it.
    """
    if state is None or state.policy == policy or state.policy.partition("(")[0] != policy.partition("(")[0]:
        return None
    try:
        now, before = registry.parse(policy), registry.parse(state.policy)
        if not comes_from_outside(now) or not comes_from_outside(before):
            return None
        values = now.adopt(before, state.values, len(state.arms))
    except PolicyError:
        return None
    return None if values is None else state._replace(policy=policy, values=values, others=(), taught_us=0)


def numbers(state: PolicyState | None) -> int:
    """Return how many numbers a state has, those of others included: what its memory follows."""
    if state is None:
        return 0
    learnt = len(state.values) + len(state.confidences) + len(state.coverage)
    return learnt + (_numbers(state.others) if state.others else 0)


def _numbers(others: tuple[OtherState, ...]) -> int:
    return sum(OTHER_NUMBERS + len(its.values) + len(its.confidences) + len(its.coverage) for its in others)
