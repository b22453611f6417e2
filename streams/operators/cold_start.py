"""What a context (user, session, region) starts from when it is met for the first time.

If the policy has a `start`, an observation of a context also teaches the application's own state. That state holds what
is true of all contexts, and a new context starts from it. Both states lie in one partition of the log, so each is a
fold over one partition. Where an application spreads its contexts, each partition has a common state of its own.

Where an application forgets contexts, one that was taught nothing for so long starts as a new one. Times are those of
the lessons in the log, so the fold is the same on every reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies import registry
from policies.contract import has_shared_prior
from policies.errors import PolicyError

if TYPE_CHECKING:
    from schemas.records import Observation, PolicyState


def is_forgotten(state: PolicyState, at_us: int, forget_us: int) -> bool:
    """Tell whether a context's state is forgotten by then; what was taught before times were kept never is.

    Args:
        state: of the context.
        at_us: event time of a lesson, or the time of a query.
        forget_us: how long it may go without a lesson; 0 = for ever.
    """
    return bool(forget_us and state.taught_us) and at_us - state.taught_us > forget_us


def states_of(seen: Observation) -> tuple[str, ...]:
    """Return the states that an observation teaches: its decision's, then the common one if there is one.

    Raises:
        PolicyError: there is no such policy.
    """
    own, application = seen.decision.state, seen.application
    if seen.context is None or own == application or not has_shared_prior(registry.parse(seen.decision.policy)):
        return (own,)
    return own, application


def started(common: PolicyState | None, spec: str) -> PolicyState | None:
    """Return the first state of a context, given the common one; None if that is of no use to the policy `spec`.

    Raises:
        PolicyError: the policy cannot begin from the common state's numbers.
    """
    policy = registry.parse(spec)
    if common is None or common.policy != spec or not has_shared_prior(policy):
        return None
    try:
        values = policy.start(common.values, len(common.arms))
    except (ArithmeticError, IndexError, ValueError) as error:
        raise PolicyError(f"{spec} cannot begin from the state of all contexts: {error!r}") from error
    return common._replace(version=0, values=values)
