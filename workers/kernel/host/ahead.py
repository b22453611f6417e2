"""Which models of a host are loaded before anybody asks them: as many as there is room for, most asked first.

    caught up, a model or a plan comes, a version goes, the process ends ─▶ begin anew
                                                                               │
    nothing is to be loaded ─▶ take the next one that fits what is free ◀──────┘

Nothing makes room for a model that nobody asks. What was loaded so and was never asked makes room before all others,
the least asked first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from workers.kernel.host.plan import PlanFollower
    from workers.kernel.host.profiles import ProfileLog


class Ahead:
    """The models that are still to be looked at.

    Args:
        follower: knows the plan: which models are this host's, and how often each is asked.
        profiles: know which models were asked, and when.

    Attributes:
        is_on: whether everything is known that was published before the start.
    """

    def __init__(self, follower: PlanFollower, profiles: ProfileLog) -> None:
        self._follower = follower
        self._profiles = profiles
        self._left: deque[str] | None = deque()  # None = it is to begin anew
        self.is_on = False

    @property
    def is_over(self) -> bool:
        """Whether all have been looked at."""
        return self._left is not None and not self._left

    def begin_anew(self) -> None:
        """Look at all models once more: there may be more room, or other models are asked."""
        if self.is_on:
            self._left = None

    def next(self, models: Iterable[str], fits: Callable[[str], bool]) -> str | None:
        """Return the next model that is to be loaded; None = there is none.

        Args:
            models: all that there are, in the order in which they were published.
            fits: tells whether one is not in memory and could be without another one making room.
        """
        if self._left is None:
            self._left = deque(self._ordered(models))
        while self._left:
            name = self._left.popleft()
            if fits(name):
                return name
        return None

    def _ordered(self, models: Iterable[str]) -> list[str]:
        """Return models by what is known of how often they are asked: own ones by plan, else by profile, else as given.

        A profile is written whenever what batches take has changed, so that of a busy model was written lately.
        """
        own, per_s = self._follower.own.keys() | self._follower.expected, self._follower.per_s

        def rank(name: str) -> tuple[bool, float, int]:
            return name not in own, -per_s.get(name, 0.0), -self._profiles.written_us(name)

        return sorted(models, key=rank)
