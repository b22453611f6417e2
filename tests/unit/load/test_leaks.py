"""Growth over time: one line for all lives of a process, each from its own height."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from load.matrix.leaks import Held, Leaks, per_hour, settled
from load.scenarios.operation.soak import steady_per_hour

if TYPE_CHECKING:
    from collections.abc import Iterable


def life(pid: int, from_s: float, mib: float, *, mib_per_s: float = 0.0, handles_per_s: float = 0.0) -> list[Held]:
    """Return a process that is looked at every ten seconds for two minutes."""
    return [Held(from_s + s, pid, mib + mib_per_s * s, int(10 + handles_per_s * s)) for s in range(0, 120, 10)]


def test_a_process_that_holds_as_much_as_ever_has_no_slope_though_its_successor_holds_more() -> None:
    """A restart is no leak."""
    assert per_hour([life(1, 0, 70), life(2, 200, 90)]) == (0.0, 0.0)


def test_what_grows_in_every_life_is_seen() -> None:
    """A MiB in a hundred seconds is 36 an hour; a handle in ten is 360."""
    lives = [life(1, 0, 70, mib_per_s=0.01, handles_per_s=0.1), life(2, 200, 60, mib_per_s=0.01, handles_per_s=0.1)]
    assert per_hour(lives) == (pytest.approx(36), pytest.approx(360))


def test_the_first_seconds_of_each_life_do_not_count() -> None:
    """A process that has just started grows."""
    growing = [Held(float(s), 1, min(70.0, 60 + s), 10) for s in range(100)]
    assert per_hour(settled(growing, 20)) == (0.0, 0.0)
    assert per_hour(settled(growing, 0))[0] > 0


def test_a_process_is_looked_at_and_one_that_is_gone_is_left_out() -> None:
    """By its number."""
    leaks = Leaks()
    leaks.look({"me": os.getpid(), "nobody": 2**22 + 1}, 0.0)
    assert [*leaks.seen] == ["me"]
    assert leaks.seen["me"][0].mib > 1


def a_life(heights: Iterable[float], process: str = "worker", pid: int = 7) -> list[dict[str, Any]]:
    """Return what a process held, a row a minute."""
    return [{"process": process, "pid": pid, "minute": at, "mib": mib} for at, mib in enumerate(heights)]


def test_a_step_is_no_slope_and_a_leak_is_one() -> None:
    """Stretches of ten minutes behind the first ten: a step is in one of them, a leak in all."""
    step = a_life([50.0] * 25 + [54.0] * 25)
    leak = a_life([50.0 + minute / 10 for minute in range(50)], "leaking")
    young = a_life([50.0 + minute for minute in range(19)], "young")
    assert steady_per_hour([*step, *leak, *young]) == {"worker": "0.0", "leaking": "6.0", "young": ""}
