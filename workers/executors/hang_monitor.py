"""Ends the process when a model that predicts on the event loop's own thread hangs.

    event loop's thread   begin ─▶ the model ─▶ over            takes milliseconds, unless the model hangs
    another thread        look ···· look ···· look ···· look    the same call at each: it hangs

The event loop cannot notice this, because nothing else runs on it meanwhile. No thread can stop another one. So the
process ends at once, without leaving its groups. When its sessions end, other members take over its partitions and read
the unanswered queries again.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

# A call hangs if this many looks in a row find the same call. Looks are counted rather than time: a process or machine
# that was stopped for an hour has been looked at once.
LOOKS = 10
# The model may hang inside the log, so logging it may hang, too.
_TELL_S = 1.0


def hung(rows: int, patience_s: float) -> str:
    """Return the message about a model that hangs where nothing can stop it."""
    return (
        f"the model did not answer {rows} rows within {patience_s:.1f} s and a thread cannot be killed: "
        "this worker ends so that it is started again; run the model in a process of its own if this recurs"
    )


def end(message: str) -> None:
    """Log the message and end this process with exit code 1, as after a `HungError`."""
    tell = threading.Thread(target=_log.critical, args=("%s", message), daemon=True)
    tell.start()
    tell.join(_TELL_S)
    os._exit(1)


class Sentinel:
    """Watches the calls that one thread makes from another one.

    Attributes:
        look_s: how often `look` is to be called; None = never, there has been no call yet.
    """

    def __init__(self, hangs: Callable[[str], None] = end) -> None:
        """Nothing runs yet; `hangs` is called with what there is to say when a call does not come back."""
        self.look_s: float | None = None
        self._hangs = hangs
        self._calls = 0
        self._running: tuple[int, int, float] | None = None  # number of the call, its rows, patience (s)
        self._found: tuple[int, int, float] | None = None
        self._looks = 0

    def begin(self, rows: int, patience_s: float) -> None:
        """Say that a call begins."""
        self._calls += 1
        self._running = (self._calls, rows, patience_s)
        self.look_s = patience_s / LOOKS

    def over(self) -> None:
        """Say that it has come back."""
        self._running = None

    def look(self) -> None:
        """Look, from the other thread."""
        running = self._running
        if running is None or running is not self._found:
            self._found, self._looks = running, 0
            return
        self._looks += 1
        if self._looks == LOOKS:
            self._hangs(hung(*running[1:]))
