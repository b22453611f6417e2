"""The time by which a stopping process has stopped: one deadline for everything that it waits for meanwhile.

    0 s ── drain, flush ──▶ 3 s ── commit ──▶ 4 s ── leave the group ──▶ 5 s ── disconnect ──▶ 6 s ── exit ──▶ 8 s
  SIGTERM                                                                                                    SIGKILL

A step that is done early leaves its time to those after it. A step that waits for a broker or a store that is away ends
at its own deadline, so that those after it have their turn. The supervisor waits longer than all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# How long a process may take from SIGTERM on: enough for a busy broker, and a short wait for a restart.
STOP_S: Final = 6.0
# What each step leaves to those after it: it has ended so long before the end.
AFTER_WORK_S: Final = 3.0
AFTER_COMMIT_S: Final = 2.0
AFTER_LEAVING_S: Final = 1.0
AFTER_ROLES_S: Final = 0.5  # whatever still runs of a role is cancelled then, so that the producer can disconnect
# What a supervisor waits until SIGKILL: an event loop may notice the signal late, and Python takes a while to exit.
PATIENCE_S: Final = STOP_S + 2.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which something has returned, whatever it waits for.

    Attributes:
        at_s: the moment, by the clock of the event loop (s).
    """

    at_s: float

    @classmethod
    def after(cls, seconds: float, now_s: float) -> Deadline:
        """Return the moment that is so many seconds from now."""
        return cls(now_s + seconds)

    def left_s(self, now_s: float) -> float:
        """Return the time that is left: never less than none."""
        return max(0.0, self.at_s - now_s)

    def before(self, seconds: float) -> Deadline:
        """Return an earlier moment, which leaves so many seconds to what comes after."""
        return Deadline(self.at_s - seconds)
