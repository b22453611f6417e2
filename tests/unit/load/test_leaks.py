"""Growth over time: one line for all lives of a process, each from its own height."""

from __future__ import annotations

import os

import pytest

from load.matrix.leaks import Held, Leaks, per_hour, settled


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
