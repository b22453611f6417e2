"""Which batches run on the event loop's own thread. Pure.

Quick batches do: they take less than the way to a thread and back, or so little that no query is delayed. So do batches
of a model that keeps Python's lock while it computes. The event loop could do nothing beside its thread.
"""

from __future__ import annotations

from collections import deque

from policies.clockwork import SAMPLES
from workers.kernel.model.service_times import QUICK_US, ServiceTimes

# Where more rows wait, this replaces `QUICK_US`. It is the least that handing over costs, because the loop writes the
# last answers meanwhile.
HAND_OVER_US = 100
# The same for a model that keeps the lock: half of an objective of 100 ms. A forest of scikit-learn releases the lock
# for microseconds at a time, less than another thread needs to wake up. Beside its thread the loop was late by 3 ms at
# p50 and 124 at p99, and the forest took 1.8 times as long. Under ONNX the loop was late by 3 ms at p99, and the forest
# took 1.03 times as long (`skysail load run lock`, two cores).
LOCKED_US = 50_000
# At least this share of a batch is CPU time. A model that waits for something else does not keep the lock.
_WORKS = 0.5
# Batches that are timed before a model can count as quick, at first and after one that took longer than expected.
PROOFS = 32
PROOFS_AGAIN = 1_000
# A batch of another size is tried where the largest known one takes no more than this part of a millisecond.
_TRIED = 4
# A model that exceeds its allowance by this is no longer quick: in one batch, or added up where quick batches do not
# make up for it. A process that waits for a core, as there are more processes than cores, seldom waits half as long.
SURPRISE_US = 50_000


class Quickness:
    """Tells which batches are predicted on the event loop's own thread.

    It counts the time for which the model keeps a thread: its CPU time, and waits that come every time, as for a disk.
    A wait that comes now and then does not count: it is for a core, or for Python's lock.

    No batch is, before the model has been timed, nor for a good while after it has kept the loop for 50 ms too long.

    Args:
        keeps_lock: whether the model keeps Python's lock for most of the time that it computes.
    """

    def __init__(self, *, keeps_lock: bool = True) -> None:
        self._keeps_lock = keeps_lock
        self._times, self._work = ServiceTimes(), ServiceTimes()
        self._waits: dict[int, deque[int]] = {}
        self._proofs = PROOFS
        self._excess_us = 0  # CPU time over the allowance, less the time by which later batches stayed under it

    def expects(self, rows: int, *, more: bool = False) -> bool:
        """Whether a batch of `rows` should run on the event loop, even if `more` rows wait."""
        return not self._proofs and self._times.usual(rows) <= self._allowed_us(rows, more=more)

    def instant(self, rows: int) -> int:
        """Return how many of `rows` to ask at once, as they are known to take less than a millisecond; 0 = none.

        Fewer than all where so many were never asked, and fewer took so little that more are worth a try.
        """
        if self._proofs:
            return 0
        if self._times.usual(rows) <= QUICK_US:
            return rows
        known, took_us = self._times.largest
        if known >= rows or took_us > QUICK_US // _TRIED:
            return 0
        return known * QUICK_US // took_us

    def observe(self, rows: int, duration_us: int, cpu_us: int) -> None:
        """Take how long a batch took in a thread of its own, and the CPU time in it."""
        self._proofs = max(0, self._proofs - 1)
        self._learn(rows, duration_us, cpu_us)

    def observe_expected(self, rows: int, duration_us: int, cpu_us: int) -> None:
        """Take the same of a batch that ran on the event loop."""
        allowed_us = self._allowed_us(rows)
        self._learn(rows, duration_us, cpu_us)
        self._excess_us = max(0, self._excess_us + cpu_us - allowed_us)
        if self._excess_us > SURPRISE_US or duration_us > max(SURPRISE_US, 2 * allowed_us):
            self.doubt()

    def doubt(self) -> None:
        """Send every batch to a thread for a good while."""
        self._proofs, self._excess_us = PROOFS_AGAIN, 0

    def _allowed_us(self, rows: int, *, more: bool = False) -> int:
        if self._keeps_lock and self._work.usual(rows) >= _WORKS * self._times.usual(rows):
            return LOCKED_US
        return HAND_OVER_US if more else QUICK_US

    def _learn(self, rows: int, duration_us: int, cpu_us: int) -> None:
        waits = self._waits.setdefault(rows.bit_length(), deque(maxlen=SAMPLES))
        waits.append(max(0, duration_us - cpu_us))
        self._times.observe(rows, cpu_us + min(waits))
        self._work.observe(rows, cpu_us)
