"""One process: any set of roles, one producer, one way to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from typing import TYPE_CHECKING, Protocol

from streams.runtime.errors import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.runtime.kafka_producer import KafkaTransport

_log = logging.getLogger(__name__)

BACKOFF_S = 0.5
# Net allocations before the youngest objects are looked at, and so on. A poll makes thousands that soon go again;
# Python's own 700 costs 5 % of the kernels' time.
THRESHOLDS = (20_000, 20, 100)
# By then modules, models and caches are loaded; what is frozen is not looked at again by the collector.
FREEZE_S = 10.0


class Runnable(Protocol):
    """A role: `loop.RoleLoop`, or something with one inside."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set."""
        ...


async def run_process(loops: Sequence[Runnable], transport: KafkaTransport, stop: asyncio.Event | None = None) -> None:
    """Run roles until SIGTERM, SIGINT or `stop`; returns when all have left their groups.

    Raises:
        ExceptionGroup: of what ended a role; the others are ended with it, so that the supervisor starts all anew.
    """
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()  # modules stay: to look through them once more, later, would take 45 ms out of the first queries' time
    stop = stop or asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.set)
    freezing = running.call_later(FREEZE_S, freeze)
    try:
        if await _connected(transport, stop):
            await _run_all(loops, stop)
    finally:
        freezing.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            running.remove_signal_handler(number)
        await transport.stop()


def freeze() -> None:
    """Take everything that lives now out of the garbage collector's sight: full collections cost 30 ms and more."""
    gc.collect()
    gc.freeze()


async def _run_all(loops: Sequence[Runnable], stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as tasks:
        for loop in loops:
            tasks.create_task(loop.run(stop))


async def _connected(transport: KafkaTransport, stop: asyncio.Event) -> bool:
    while not stop.is_set():
        try:
            await transport.start()
        except BrokerUnavailableError as fault:
            _log.warning("Kafka is not there yet: %s", fault)
            await asyncio.sleep(BACKOFF_S)
        else:
            return True
    return False
