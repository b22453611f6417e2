"""Calls a kernel and performs what it wants done; what it raises ends here.

records  ─▶ attempt ─▶ the fault goes back to the reader, who finds the culprit: a dead letter
timer, states, what models answer ─▶ call ─▶ no record can be blamed ─▶ `failed` ─▶ the reader starts the kernel over
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import TYPE_CHECKING

from streams.runtime.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.operators.contract import Effects
    from streams.runtime.clock import Clock

_log = logging.getLogger(__name__)

# A deadline that passed once does not pass again: whatever fails more often than this fails for ever.
FAILURES = 3
WITHIN_US = 60_000_000


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
