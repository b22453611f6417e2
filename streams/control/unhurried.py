"""Faust's way to Kafka, in less of a hurry: reports are fetched a few times a second, not one by one.

A fetch costs Faust 2 ms of CPU, whatever it brings, on its two event loops in two threads; a report a second from each
of a dozen processes would have a fetch of its own, and were most of what an idle deployment costs.
"""

from __future__ import annotations

from typing import Any

from faust.transport.drivers import aiokafka as driver
from mode.threads import WorkerThread

# The page asks once a second, and shows steps of five.
WAIT_MS = 500
# More than reports come to in that time, so that it passes; a table that is read again at start has as much at once.
ENOUGH_BYTES = 1 << 16


class _Daemon(WorkerThread):
    """Keeps no process alive that wants to end: Faust's consumer waits for a broker that is away without a limit."""

    def __init__(self, service: Any, **options: Any) -> None:
        super().__init__(service, **options)
        self.daemon = True


class _Thread(driver.AIOKafkaConsumerThread):
    Worker = _Daemon

    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_min_bytes = ENOUGH_BYTES  # noqa: SLF001 - no setting of Faust's leads there
        consumer._fetch_max_wait_ms = WAIT_MS  # noqa: SLF001
        return consumer


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class Transport(driver.Transport):
    """For `app.transport`."""

    Consumer = _Consumer
