"""Pacing in virtual time: what is sent when, whatever the other side does."""

from __future__ import annotations

from load.harness.openloop import IDLE_S, pace


class VirtualSide:
    """Time passes only in `turn`, and by `stall_us` in the turn that starts at or after `stall_at_us`."""

    def __init__(self, stall_at_us: int | None = None, stall_us: int = 0) -> None:
        self.time_us = 0
        self.sent: list[tuple[int, int, int]] = []
        self.waits: list[float] = []
        self._stall_at_us = stall_at_us
        self._stall_us = stall_us

    def now_us(self) -> int:
        """Return the virtual time."""
        return self.time_us

    def send(self, index: int, intended_us: int) -> None:
        """Note number, intended and real time."""
        self.sent.append((index, intended_us, self.time_us))

    def turn(self, wait_s: float) -> None:
        """Let the time pass that may be waited."""
        self.waits.append(wait_s)
        self.time_us += round(wait_s * 1e6)
        if self._stall_at_us is not None and self.time_us >= self._stall_at_us:
            self.time_us += self._stall_us
            self._stall_at_us = None


def test_everything_is_sent_at_its_intended_time() -> None:
    """As long as nothing stalls."""
    side = VirtualSide()
    assert pace(side, [0, 10_000, 25_000], 1_000, side.now_us, lambda: False) == 3
    assert side.sent == [(0, 1_000, 1_000), (1, 11_000, 11_000), (2, 26_000, 26_000)]


def test_what_a_stall_held_up_goes_out_at_once_with_its_intended_time() -> None:
    """The rate is kept and the lateness shows: no coordinated omission."""
    side = VirtualSide(stall_at_us=10_000, stall_us=100_000)
    pace(side, [10_000, 20_000, 30_000, 200_000], 0, side.now_us, lambda: False)
    assert side.sent == [
        (0, 10_000, 110_000),
        (1, 20_000, 110_000),
        (2, 30_000, 110_000),
        (3, 200_000, 200_000),
    ]


def test_a_long_gap_is_waited_in_short_turns() -> None:
    """So that a stop is noticed soon."""
    side = VirtualSide()
    pace(side, [1_000_000], 0, side.now_us, lambda: False)
    assert max(side.waits) <= IDLE_S


def test_a_stop_ends_the_sending() -> None:
    """Also in the middle of an endless stream."""
    side = VirtualSide()
    sent = pace(side, iter(lambda: len(side.sent) * 10_000, None), 0, side.now_us, lambda: len(side.sent) >= 5)
    assert sent == len(side.sent) == 5


def test_no_arrivals_send_nothing() -> None:
    """And end at once."""
    side = VirtualSide()
    assert pace(side, [], 0, side.now_us, lambda: False) == 0
    assert not side.waits
