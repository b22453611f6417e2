"""Which batches run on the event loop's own thread. Pure.

Those that are quick: they take less than the way to a thread and back, or so little that nobody waits for them. And
those of a model that keeps Python's lock: beside its thread the event loop would get nothing done anyway.
"""

from __future__ import annotations

from collections import deque

from workers.estimates import SAMPLES, ServiceTimes

# What the event loop may be kept from its other work at a time. A thread would not free it for so long either: a model
# that is mostly Python holds the lock, for which the loop's thread waits up to 5 ms; and to hand a batch to a thread
# and its results back takes 100 to 150 us of CPU and two changes of threads, each of which a busy machine may put off.
QUICK_US = 1_000
# The same where more rows wait: the least that handing over costs, as the loop writes the last answers meanwhile.
HAND_OVER_US = 100
# The same of a model that keeps the lock: a batch within half of 100 ms. A forest of scikit-learn (6 ms a call) lets
# the lock go for microseconds at a time, less than another thread needs to wake up: beside it the loop's waited
# up to 23 ms for it at the median and 214 at the 99th percentile (2 cores), and its queries with it.
LOCKED_US = 50_000
# Batches before a model can count as quick, and after one that was not what it seemed.
PROOFS = 32
PROOFS_AGAIN = 1_000
# At once, or bit by bit where quick batches do not make up for it. A process that is not given a core for a while,
# where there are more of them than cores, seldom waits half as long.
SURPRISE_US = 50_000


class Lock:
    """Tells whether a model keeps Python's lock: whether the event loop waits while a thread predicts."""

    # Of the time, so that a machine with too few cores alone does not look like it.
    _SHARE = 0.5
    # Below it chance decides; above twenty times as much the past counts half.
    _EVIDENCE_US = 50_000

    def __init__(self) -> None:
        self._predicted_us = self._waited_us = 0

    @property
    def is_kept(self) -> bool:
        """Whether it is."""
        return self._predicted_us >= self._EVIDENCE_US and self._waited_us >= self._SHARE * self._predicted_us

    def observe(self, duration_us: int, waited_us: int) -> None:
        """Take how long a batch took in a thread, and how long of that the event loop was ready and did not run."""
        self._predicted_us += duration_us
        self._waited_us += min(waited_us, duration_us)
        if self._predicted_us > 20 * self._EVIDENCE_US:
            self._predicted_us //= 2
            self._waited_us //= 2


class Quickness:
    """Tells which batches are predicted on the event loop's own thread.

    What counts is what the model keeps a thread for: the CPU time that it uses, and what it always waits for besides,
    as for a disk. What it waits for only now and then is a core, or Python's lock: the machine's doing.

    None is before the model has been timed, nor for a good while after it has kept the loop for 50 ms too long.
    """

    def __init__(self) -> None:
        self._times = ServiceTimes()
        self._waits: dict[int, deque[int]] = {}
        self._proofs = PROOFS
        self._excess_us = 0  # CPU time over what is allowed, less what the batches since have taken less
        self._lock = Lock()

    @property
    def keeps_lock(self) -> bool:
        """Whether the event loop gets nothing done beside this model's thread."""
        return self._lock.is_kept

    def expects(self, rows: int, *, more: bool = False) -> bool:
        """Whether a batch of `rows` should not go to a thread, even beside what is to be done for `more`."""
        if self._proofs:
            return False
        return self._times.usual(rows) <= (HAND_OVER_US if more and not self.keeps_lock else self._allowed_us)

    @property
    def _allowed_us(self) -> int:
        return LOCKED_US if self.keeps_lock else QUICK_US

    def observe(self, rows: int, duration_us: int, cpu_us: int, waited_us: int = 0) -> None:
        """Take how long a batch took in a thread of its own, the CPU time in it, and how long the loop waited."""
        self._proofs = max(0, self._proofs - 1)
        self._learn(rows, duration_us, cpu_us)
        if duration_us > QUICK_US:
            self._lock.observe(duration_us, waited_us)

    def observe_expected(self, rows: int, duration_us: int, cpu_us: int) -> None:
        """Take how long a batch took, and the CPU time in it, that was expected to do without a thread."""
        self._learn(rows, duration_us, cpu_us)
        allowed_us = self._allowed_us
        self._excess_us = max(0, self._excess_us + cpu_us - allowed_us)
        over_us = duration_us - (allowed_us if self.keeps_lock else 0)
        if self._excess_us > SURPRISE_US or over_us > SURPRISE_US:
            self.doubt()

    def doubt(self) -> None:
        """Expect no batch to do without a thread for a good while."""
        self._proofs, self._excess_us = PROOFS_AGAIN, 0

    def _learn(self, rows: int, duration_us: int, cpu_us: int) -> None:
        waits = self._waits.setdefault(rows.bit_length(), deque(maxlen=SAMPLES))
        waits.append(max(0, duration_us - cpu_us))
        self._times.observe(rows, cpu_us + min(waits))
