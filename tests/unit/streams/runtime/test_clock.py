"""The clock follows the system's, and never goes backwards."""

from __future__ import annotations

import itertools

import pytest

from streams.runtime.clock import SystemClock, off_ms
from tests.virtual import VirtualClock

S_NS = 1_000_000_000
START_NS = 1_700_000_000 * S_NS


class Machine:
    """A machine whose wall clock may be set."""

    def __init__(self) -> None:
        self.monotonic_ns = 5 * S_NS
        self.wall_ns = START_NS
        self.clock = SystemClock(lambda: self.wall_ns, lambda: self.monotonic_ns)

    def let_pass(self, seconds: float) -> None:
        """Let both clocks go on, in steps in which somebody asks for the time."""
        for _ in range(round(seconds * 100)):
            self.monotonic_ns += S_NS // 100
            self.wall_ns += S_NS // 100
            self.clock.now_us()

    @property
    def off_s(self) -> float:
        """How far the clock is ahead of the wall clock."""
        return self.clock.now_us() / 1e6 - self.wall_ns / 1e9


def test_time_passes_as_on_the_wall() -> None:
    """With no step there is nothing to follow, and a little drift is left alone."""
    machine = Machine()
    machine.let_pass(3)
    assert machine.off_s == pytest.approx(0, abs=1e-6)
    machine.wall_ns += S_NS // 10
    machine.let_pass(3)
    assert machine.off_s == pytest.approx(-0.1, abs=1e-6)
    assert off_ms(machine.clock) == pytest.approx(-100)


def test_a_step_forwards_is_followed_within_a_second() -> None:
    """As after a suspended machine has been resumed: what was due is late."""
    machine = Machine()
    machine.wall_ns += 60 * S_NS
    machine.let_pass(1)
    assert machine.off_s == pytest.approx(0, abs=1e-6)


def test_a_step_backwards_is_followed_without_going_backwards() -> None:
    """The clock runs at half speed until it is right."""
    machine = Machine()
    machine.wall_ns -= 60 * S_NS
    times = [machine.clock.now_us()]
    for second in range(125):
        machine.let_pass(1)
        times.append(machine.clock.now_us())
        if second == 30:
            assert off_ms(machine.clock) == pytest.approx(45_000, abs=1_000)
    assert all(1e6 >= later - earlier > 0.4e6 for earlier, later in itertools.pairwise(times))
    assert machine.off_s == pytest.approx(0, abs=0.02)
    assert off_ms(machine.clock) == pytest.approx(0, abs=20)


def test_a_clock_of_tests_is_never_off() -> None:
    """Only the system's clock has a wall to be compared with."""
    assert off_ms(VirtualClock()) == 0.0
