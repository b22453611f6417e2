"""Sends when it is time and never waits for anything else: the heart of an open loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# How long a quiet turn may keep `stopped` unnoticed; also the longest a turn is asked to wait.
IDLE_S = 0.05


class Side(Protocol):
    """The two things to do, in turns, in one thread."""

    def send(self, index: int, intended_us: int) -> None:
        """Send number `index`, which was meant for `intended_us`; must not block."""
        ...

    def turn(self, wait_s: float) -> None:
        """Take what has arrived, waiting at most `wait_s` for it."""
        ...


def pace(
    side: Side, arrivals_us: Iterable[int], start_us: int, now_us: Callable[[], int], stopped: Callable[[], bool]
) -> int:
    """Send everything at its intended time; returns how many were sent.

    What is overdue goes out in one go, each with its own intended time.

    Args:
        side: sends and takes.
        arrivals_us: offsets from `start_us`, non-decreasing.
        start_us: time of offset 0.
        now_us: the clock.
        stopped: asked between sends; True ends the pacing.
    """
    index = 0
    for index, offset_us in enumerate(arrivals_us, start=1):
        intended_us = start_us + offset_us
        while (ahead_us := intended_us - now_us()) > 0:
            if stopped():
                return index - 1
            side.turn(min(IDLE_S, ahead_us / 1e6))
        side.send(index - 1, intended_us)
    return index
