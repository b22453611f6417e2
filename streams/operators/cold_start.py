"""What a context (user, session, region) starts from when it is met for the first time.

If the policy has a `start`, an observation of a context also teaches the application's own state. That state holds what
is true of all contexts, and a new context starts from it. So does a context that is new to a policy. Both states lie in
one partition of the log, so each is a fold over one partition. Where an application spreads its contexts, each
partition has a common state of its own.

Where an application forgets contexts, one that was taught nothing for so long starts as a new one. Times are those of
the lessons in the log, so the fold is the same on every reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies import calibration, registry
from policies.contract import has_shared_prior
from policies.errors import PolicyError
from schemas.records import PolicyState
from streams.operators.policy_state import state_of

if TYPE_CHECKING:
    from schemas.records import Observation


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
    own, application, apprentice = seen.decision.state, seen.application, seen.decision.apprentice
    if seen.context is None or own == application:
        return (own,)
    has_common = _starts(seen.decision.policy) or (apprentice and _starts_along(apprentice))
    return (own, application) if has_common else (own,)


def for_all(seen: Observation) -> Observation:
    """Return what an observation of a context teaches the common state: policies without a `start` learn nothing there.

    Raises:
        PolicyError: there is no such policy.
    """
    decision = seen.decision
    if not decision.apprentice:
        return seen
    if not _starts_along(decision.apprentice):
        return seen._replace(decision=decision._replace(apprentice=""))
    return seen if _starts(decision.policy) else lesson(seen, decision.apprentice)


def lesson(seen: Observation, policy: str) -> Observation:
    """Return an observation as the lesson of a policy that has not decided it."""
    return seen._replace(decision=seen.decision._replace(policy=policy, apprentice=""), answers=None, scores=None)


def _starts(policy: str) -> bool:
    return has_shared_prior(registry.parse(policy))


def _starts_along(apprentice: str) -> bool:
    try:
        return _starts(apprentice)
    except PolicyError:
        return False  # it learns nothing anywhere


def started(common: PolicyState | None, spec: str) -> PolicyState | None:
    """Return the first state of a context, given the common one; None if that is of no use to the policy `spec`.

    Raises:
        PolicyError: the policy cannot begin from the common state's numbers.
    """
    policy, known = registry.parse(spec), state_of(common, spec)
    if known is None or not has_shared_prior(policy):
        return None
    try:
        values = policy.start(known.values, len(known.arms))
    except (ArithmeticError, IndexError, ValueError) as error:
        raise PolicyError(f"{spec} cannot begin from the state of all contexts: {error!r}") from error
    confidences = calibration.started(known.confidences)
    return PolicyState(spec, known.arms, 0, values, confidences=confidences, coverage=known.coverage)
