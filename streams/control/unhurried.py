"""Faust's way to Kafka, in less of a hurry: reports are fetched a few times a second, not one by one.

A fetch costs Faust 2 ms of CPU, whatever it brings, on its two event loops in two threads; a report a second from each
of a dozen processes would have a fetch of its own, and were most of what an idle deployment costs.
"""

from __future__ import annotations

from typing import Any

from faust.transport.drivers import aiokafka as driver

from streams.runtime.kafka import private
from streams.runtime.kafka.mends import mend

# The page asks once a second, and shows steps of five.
WAIT_MS = 500
# More than reports come to in that time, so that it passes; a table that is read again at start has as much at once.
ENOUGH_BYTES = 1 << 16


REST_S = 0.1  # between two attempts to connect


class _Thread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        consumer = super()._create_worker_consumer(transport)
        if private.supported() is None:  # no setting of Faust's leads there
            private.fetch_seldom(consumer, WAIT_MS, ENOUGH_BYTES)
            mend(private.client_of(consumer), REST_S)
        return consumer


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class _Producer(driver.Producer):
    def _new_producer(self, transactional_id: str | None = None) -> Any:
        producer = super()._new_producer(transactional_id)
        mend(producer.client, REST_S)
        return producer


class Transport(driver.Transport):
    """For `app.transport`."""

    Consumer = _Consumer
    Producer = _Producer
