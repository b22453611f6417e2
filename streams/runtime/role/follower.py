"""Keeps a kernel's view of the topics that every member follows (applications, models) up to date."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from streams.runtime.errors import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from streams.operators.contract import Record
    from streams.runtime.ports import Broadcast
    from streams.runtime.role.kernel_calls import KernelCaller

_log = logging.getLogger(__name__)

POLL_MS = 1_000
BACKOFF_S = 0.5


class Follower:
    """Reads from the beginning; records are given to the kernel, and never completed: each start reads them again.

    Attributes:
        caught_up: set when everything that was there at the start has been given to the kernel.
    """

    def __init__(
        self,
        broadcast: Broadcast | None,
        kernel_caller: KernelCaller,
        prepare: Callable[[Sequence[Record]], Awaitable[None]] | None = None,
    ) -> None:
        self._broadcast = broadcast
        self._kernel_caller = kernel_caller
        self._prepare = prepare
        self.caught_up = asyncio.Event()
        if broadcast is None:
            self.caught_up.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        if self._broadcast is None:
            return
        started = False
        while not started:
            started = await self._start(self._broadcast)
        while True:
            records = await self._broadcast.poll(POLL_MS)
            if records and self._prepare is not None:
                await self._prepare(records)
            self._take(records)
            if self._broadcast.caught_up:
                self.caught_up.set()

    async def stop(self, timeout_s: float) -> None:
        """Disconnect."""
        if self._broadcast is not None:
            await self._broadcast.stop(timeout_s)

    async def _start(self, broadcast: Broadcast) -> bool:
        try:
            await broadcast.start()
        except BrokerUnavailableError as fault:
            _log.warning("cannot follow yet: %s", fault)
            await asyncio.sleep(BACKOFF_S)
            return False
        return True

    def _take(self, records: list[Record]) -> None:
        """Give records to the kernel; after a failure one by one, which is harmless since the last value wins."""
        if not records or self._kernel_caller(records) is None:
            return
        for record in records:
            fault = self._kernel_caller([record])
            if fault is not None:
                _log.error("kernel failed on %s-%d@%d", record.topic, record.partition, record.offset, exc_info=fault)
