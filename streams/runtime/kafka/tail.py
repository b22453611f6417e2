"""Follows topics from their present end, outside any group: every reader sees every record from now on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from streams.runtime.corrupt import readable
from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError
from streams.runtime.kafka.fast.fetcher import DirectFetcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Record
    from streams.runtime.kafka.connection import KafkaConnection

_log = logging.getLogger(__name__)

_CONNECT_S = 5.0
_STOP_S = 3.0
_FETCH_WAIT_MS = 200  # as the group consumer: latency does not depend on it, what idling costs does


class KafkaTail:
    """Reads all partitions of `topics` from where they end when it starts.

    Args:
        connection: where Kafka is.
        topics: logical names.
    """

    def __init__(self, connection: KafkaConnection, topics: Sequence[str]) -> None:
        self._connection = connection
        self._topics = tuple(topics)
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> dict[str, int]:
        """Connect and note every partition's end; a record produced after this returned is read.

        Returns:
            the number of partitions of each topic.

        Raises:
            MisconfiguredError: a topic does not exist, or nobody may read it.
            BrokerUnavailableError: no broker answered.
        """
        names = {self._connection.real(topic): topic for topic in self._topics}
        consumer = self._consumer = AIOKafkaConsumer(
            *names, auto_offset_reset="earliest", fetch_max_wait_ms=_FETCH_WAIT_MS, **self._connection.options()
        )
        try:
            async with asyncio.timeout(_CONNECT_S):
                await consumer.start()
                await DirectFetcher.install(consumer, names)
                ends = await consumer.end_offsets(list(consumer.assignment()))
        except (TimeoutError, UnknownTopicOrPartitionError) as fault:
            await self.stop()
            where = f"{', '.join(names)} on {self._connection.bootstrap}"
            raise MisconfiguredError(f"cannot find {where}; create the topics (`skysail topics create`)") from fault
        except KafkaError as fault:
            await self.stop()
            where = f"no broker answers at {self._connection.bootstrap}"
            raise BrokerUnavailableError(
                f"{where}: start one (`skysail kafka start`) or name another; {fault!r}"
            ) from fault
        for partition, end in ends.items():
            consumer.seek(partition, end)
        return {topic: sum(p.topic == name for p in ends) for name, topic in names.items()}

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return everything fetched, waiting up to `timeout_ms` if there is nothing.

        Batches that cannot be unpacked are logged and left out.

        Raises:
            BrokerUnavailableError: reading failed; a record may have been missed, so start a new tail.
        """
        assert self._consumer is not None
        try:
            fetched = await self._consumer.getmany(timeout_ms=timeout_ms)
        except KafkaError as fault:
            raise BrokerUnavailableError(repr(fault)) from fault
        return readable(record for records in fetched.values() for record in records)

    async def stop(self) -> None:
        """Disconnect."""
        if self._consumer is None:
            return
        try:
            async with asyncio.timeout(_STOP_S):
                await self._consumer.stop()
        except (TimeoutError, KafkaError) as fault:
            _log.warning("the reader did not stop cleanly: %r", fault)
        self._consumer = None
