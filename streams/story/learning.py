"""What an observation taught: its state's own log, folded up to it, as the learner folds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.errors import PolicyError
from streams.operators.cold_start import states_of
from streams.operators.ids import SeenIds
from streams.operators.learn.fold import taught
from streams.story.values import StateChange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Observation, PolicyState


def teaches(seen: Observation, name: str, application: str, *, is_shared: bool) -> bool:
    """Tell whether an observation has to be folded for a state.

    Args:
        seen: the observation.
        name: of the state.
        application: that it belongs to.
        is_shared: whether new contexts start from what all of the application's have taught.
    """
    return seen.application == application if is_shared or name == application else seen.decision.state == name


def is_shared(seen: Observation) -> bool:
    """Tell whether an observation teaches a state of all contexts, too; no policy of that name: it teaches nothing."""
    try:
        return len(states_of(seen)) > 1
    except PolicyError:
        return False


def change(log: Iterable[tuple[int, Observation]], observed: Observation, window_us: int) -> StateChange | None:
    """Fold a state's log up to an observation; None = the log does not have it.

    Args:
        log: with its records' timestamps: in order, all that teaches the state (`teaches`).
        observed: the observation.
        window_us: the learner's window of query ids.
    """
    seen_ids, states = SeenIds(window_us), dict[str, "PolicyState | None"]()
    decision, folded, decided = observed.decision, 0, None
    for timestamp_us, seen in log:
        if not seen_ids.add(seen.query_id, timestamp_us):
            continue
        is_it = seen.query_id == observed.query_id and seen.application == observed.application
        before = states.get(decision.state)
        if _has_decided(before, observed):
            decided = before
        try:
            after = taught(states, seen, timestamp_us, window_us)
        except PolicyError as fault:
            if is_it:
                return StateChange(decision.state, decided, before, None, folded, str(fault))
            continue
        folded += 1
        if is_it:
            return StateChange(decision.state, decided, before, after[decision.state], folded)
        states.update(after)
    return None


def _has_decided(state: PolicyState | None, observed: Observation) -> bool:
    decision = observed.decision
    return state is not None and (state.policy, state.version) == (decision.policy, decision.state_version)
