"""Faust's way to Kafka: credentials in its form; reports fetched a few times a second, and only those of the present.

A fetch costs Faust 2 ms of CPU, whatever it brings, on its two event loops in two threads. A dozen processes report
once a second each. A fetch for each report would be most of an idle deployment's cost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import faust
from faust.transport.drivers import aiokafka as driver
from mode import Service
from mode.threads import ServiceThread, WorkerThread

from streams.control.figures import FORGOTTEN_AFTER_US
from streams.runtime.kafka import private
from streams.runtime.kafka.aiokafka_fixes import mend, taken_error
from streams.runtime.kafka.connection import LOST
from streams.runtime.kafka.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faust.types import TP
    from faust.types.auth import CredentialsT

# The page asks once a second, and shows steps of five.
WAIT_MS = 500
# More than reports amount to in that time; a table that is read at start has as much at once.
ENOUGH_BYTES = 1 << 16
REST_S = 0.1  # between two attempts to connect
JOINING_S = 1.0  # between two looks at what keeps it from its group
# How long answers are waited for: a network may drop a connection without a word. Longer than a join is held back, and
# less than the 90 s of Faust's steps, which it then ends without a word.
ANSWER_S = 30.0
# The page forgets who was silent for so long, so older reports are not read. Faust commits no more once it has missed a
# record, and its next start would go on there: hours ago.
BACK_S = FORGOTTEN_AFTER_US / 1e6
LOOK_UP_S = 5.0
_log = logging.getLogger(__name__)


def credentials(options: Mapping[str, Any]) -> CredentialsT | None:
    """Return what Faust needs to log in, or None for a plain connection.

    Without a TLS context Faust falls back to plain text in silence, so SASL_SSL without one is refused here.

    Args:
        options: of an aiokafka client: `security_protocol`, `sasl_*`, `ssl_context`.

    Raises:
        ValueError: a protocol or mechanism that the page cannot use.
    """
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    context = options.get("ssl_context")
    if protocol == "PLAINTEXT":
        return None
    if protocol.endswith("SSL") and context is None:
        raise ValueError("a TLS connection needs ssl_cafile in kafka.properties")
    if protocol == "SSL":
        return faust.SSLCredentials(context)
    mechanism = options.get("sasl_mechanism", "PLAIN")
    if mechanism not in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}:
        message = f"the control page cannot log in with {mechanism}; run the other roles without it"
        raise ValueError(message)
    return faust.SASLCredentials(
        username=options["sasl_plain_username"],
        password=options["sasl_plain_password"],
        mechanism=mechanism,
        ssl_context=context,
    )


class _Daemon(WorkerThread):
    """Keeps no process alive that wants to end: Faust's consumer waits for a broker that is away without a limit."""

    def __init__(self, service: ServiceThread, **options: object) -> None:
        super().__init__(service, **options)
        self.daemon = True


class _Thread(driver.AIOKafkaConsumerThread):
    Worker = _Daemon

    def _create_worker_consumer(self, transport: driver.Transport) -> object:
        consumer = super()._create_worker_consumer(transport)
        if private.supported() is None:  # no setting of Faust's leads there
            private.fetch_less_often(consumer, WAIT_MS, ENOUGH_BYTES)
            private.answer_within(consumer, int(ANSWER_S * 1e3))
            mend(private.client_of(consumer), REST_S)
        return consumer

    @Service.task
    async def _go_on_joining(self) -> None:
        """Ask for records until there are partitions: aiokafka joins no group after an error that nobody has taken.

        Faust asks for none before, and would wait for ever after one answer of a broker that fails itself.
        """
        while not self.should_stop:
            await self.sleep(JOINING_S)
            if self._consumer is not None and (fault := await taken_error(self._consumer)) is not None:
                _log.warning("control joins its group again: %s", refusal(fault) or repr(fault))

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Go on where the group has committed, but not further back than `BACK_S`; return where that is."""
        found: Mapping[TP, int] = await self.call_thread(self._go_on)
        return found

    async def _go_on(self) -> Mapping[TP, int]:
        consumer = self._ensure_consumer()
        found: dict[TP, int] = await consumer.seek_to_committed()
        since_ms = int((time.time() - BACK_S) * 1e3)
        places = {where: since_ms for where, offset in found.items() if offset}
        try:
            async with asyncio.timeout(LOOK_UP_S):
                ends, recent = await consumer.end_offsets([*places]), await consumer.offsets_for_times(places)
        except (*LOST, TimeoutError) as fault:  # it reads more than it needs
            _log.warning("control goes on where it was: %s", refusal(fault) or repr(fault))
            return found
        for where, its in recent.items():
            begin = ends[where] if its is None else its.offset
            if begin > found[where]:
                consumer.seek(where, begin)
                found[where] = begin
        return found


class _FaustConsumer(driver.Consumer):
    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class _Producer(driver.Producer):
    def _new_producer(self, transactional_id: str | None = None) -> object:
        producer = super()._new_producer(transactional_id)
        mend(producer.client, REST_S)
        return producer


class FaustTransport(driver.Transport):
    """For `app.transport`."""

    Consumer = _FaustConsumer
    Producer = _Producer
