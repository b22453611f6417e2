"""What an observation taught: its state's own log, folded up to it, as the learner folds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.errors import PolicyError
from streams.operators.cold_start import states_of
from streams.operators.ids import SeenIds
from streams.operators.learn.bounds import LessonCounts, Reach
from streams.operators.learn.fold import taught
from streams.story.values import StateChange

if TYPE_CHECKING:
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


class StateFold:
    """Folds a state's log up to an observation, as the learner does.

    Args:
        observed: the observation.
        window_us: the learner's window of query ids.

    Attributes:
        change: what the observation made of its state; None = it has not come yet.
    """

    def __init__(self, observed: Observation, window_us: int) -> None:
        self._observed = observed
        self._window_us = window_us
        self._seen_ids = SeenIds(window_us)
        self._counts = LessonCounts()
        self._states: dict[str, PolicyState | None] = {}
        self._decided: PolicyState | None = None
        self._folded = 0
        self.change: StateChange | None = None

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Take the next observation of the log that teaches the state (`teaches`), with its record's timestamp."""
        reach = self._counts.reach(seen, timestamp_us)
        if self.change is not None or not self._seen_ids.add(seen.query_id, timestamp_us):
            return
        wanted, name = self._observed, self._observed.decision.state
        before = self._states.get(name)
        if _has_decided(before, wanted):
            self._decided = before
        refused, after = "", dict[str, "PolicyState"]()
        try:
            after = taught(self._states, seen, timestamp_us, self._window_us, reach)
        except PolicyError as fault:
            refused = str(fault)
        if reach is Reach.NOTHING:
            refused = "its teacher or context had given as many lessons in that minute as the application takes"
        self._folded += name in after and seen.decision.state == name
        if (seen.query_id, seen.application) == (wanted.query_id, wanted.application):
            self.change = StateChange(name, self._decided, before, after.get(name), self._folded, refused)
        self._states.update(after)


def _has_decided(state: PolicyState | None, observed: Observation) -> bool:
    decision = observed.decision
    return state is not None and (state.policy, state.version) == (decision.policy, decision.state_version)
