"""Everything that calls a kernel: with records, at its deadlines, and with a guard around each call.

records                  ─▶ KernelCaller ─▶ Guard.attempt ─▶ a fault goes back to the reader, which finds the culprit
deadlines                ─▶ Timer ─┬──────▶ Guard.call    ─▶ no record can be blamed: `failed`, and the reader
states, models' answers  ──────────┘                         starts the kernel over

The guard performs the effects of each call. An exception of the kernel ends here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import TYPE_CHECKING, cast

from streams.runtime.corrupt import parted
from streams.runtime.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streams.operators.contract import Batch, Effects, Needs, Operator, Record, Unread
    from streams.runtime.clock import Clock
    from streams.runtime.role.definition import Ports

_log = logging.getLogger(__name__)

# A deadline that passed once does not pass again: a call that fails more often than this always fails.
FAILURES = 3
WITHIN_US = 60_000_000

# asyncio and uvloop round timers to a millisecond and may fire early; waiting at least half of one avoids spinning.
MIN_S = 0.0005
# Event loops refuse timers of years; whoever is called too early says again when it is due.
MAX_S = 3600.0


class Guard:
    """Stands between one kernel and everything that calls it.

    Args:
        name: of the role.
        clock: says how often it has failed lately.
        perform: takes the effects.

    Attributes:
        failed: the kernel's memory is not to be trusted; it is called no more until it has been started over.
    """

    def __init__(self, name: str, clock: Clock, perform: Callable[[Effects], None]) -> None:
        self._name = name
        self._clock = clock
        self._perform = perform
        self._lately: deque[int] = deque()
        self.failed = False
        self.counters: Counter[str] = Counter()

    def attempt(self, decide: Callable[[], Effects]) -> Exception | None:
        """Let the kernel decide; its exception is returned.

        This is the process's one broad `except`: whatever a kernel stumbles over must not stop its partitions.
        """
        try:
            effects = decide()
        except Exception as fault:  # noqa: BLE001  # the kernel's boundary: see the module's picture
            self.counters["kernel_failures_total"] += 1
            return fault
        self._perform(effects)
        return None

    def call(self, what: str, decide: Callable[[], Effects]) -> Exception | None:
        """Let the kernel decide where no record can be blamed, unless it has to be started over; returns its exception.

        Raises:
            KernelError: it fails again and again.
        """
        if self.failed:
            return None
        fault = self.attempt(decide)
        if fault is not None:
            self._note(what, fault)
        return fault

    def _note(self, what: str, fault: Exception) -> None:
        now_us = self._clock.now_us()
        self._lately.append(now_us)
        while self._lately[0] < now_us - WITHIN_US:
            self._lately.popleft()
        if len(self._lately) > FAILURES:
            raise KernelError(
                f"{self._name} failed {len(self._lately)} times within a minute, now on {what}: {fault!r}; this process"
                " ends so that it is started again: report it with the traceback in the log"
            ) from fault
        self.failed = True
        _log.error("%s failed on %s; it starts over from what is not complete", self._name, what, exc_info=fault)


class KernelCaller:
    """Gives records to a kernel and performs what it wants done."""

    def __init__(self, kernel: Operator, ports: Ports, guard: Guard) -> None:
        self._kernel = kernel
        self._clock = ports.clock
        self._guard = guard

    @property
    def needs(self) -> Needs:
        """What the kernel needs."""
        return self._kernel.needs()

    def __call__(self, records: Sequence[Record | Batch]) -> Exception | None:
        """Let the kernel decide; an exception of the kernel is returned. Who gets batches has asked for them."""
        return self._guard.attempt(lambda: self._decide(records))

    def _decide(self, records: Sequence[Record | Batch]) -> Effects:
        """Return what the kernel wants done, and a dead letter for each batch that could not be unpacked."""
        records, letters = parted(records)
        given = cast("Sequence[Record]", records)
        effects = self._kernel.on_records(given, self._clock.now_us()) if records else []
        return [*letters, *effects] if letters else effects


class Timer:
    """One timer, set to the kernel's next deadline after everything that may have changed it.

    Args:
        kernel: whose `on_timer` is called.
        clock: says when.
        guard: calls it; what performs its effects calls `set` again.
        unread: returns what is still to be read: a kernel may wait for it before it ends what that belongs to.
    """

    def __init__(self, kernel: Operator, clock: Clock, guard: Guard, unread: Callable[[], Unread]) -> None:
        self._kernel = kernel
        self._clock = clock
        self._guard = guard
        self._unread = unread
        self._due = asyncio.Event()
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_us: int | None = None

    async def run(self) -> None:
        """Call the kernel whenever it is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            self._deadline_us = None
            self.fire()
            await asyncio.sleep(0)  # an event that is set is not waited for: others would have no turn till none is due

    def fire(self) -> None:
        """Call the kernel now."""
        self._guard.call("its timer", lambda: self._kernel.on_timer(self._clock.now_us(), self._unread()))

    def set(self, deadline_us: int | None) -> None:
        """Be due at the kernel's next deadline."""
        if deadline_us == self._deadline_us:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._deadline_us = deadline_us
        if deadline_us is None:
            return
        now_us = self._clock.now_us()
        if deadline_us <= now_us:
            self._due.set()
        else:
            delay_s = min(max((deadline_us - now_us) / 1_000_000, MIN_S), MAX_S)
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._due.set)
