"""One observation into one state, for tests of what it teaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.learn.fold import Fold

if TYPE_CHECKING:
    from schemas.records import Observation, PolicyState

WINDOW_US = 130_000_000


def apply(state: PolicyState | None, seen: Observation, timestamp_us: int = 0) -> PolicyState:
    """Fold one observation into a state."""
    under_way = Fold(state, WINDOW_US)
    under_way.take(seen, timestamp_us)
    return under_way.state
