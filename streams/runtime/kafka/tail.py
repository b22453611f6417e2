"""Follows topics from their present end, outside any group: every reader sees every record from now on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from streams.runtime.corrupt import readable
from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError
from streams.runtime.kafka.clients import LogReader
from streams.runtime.kafka.ways import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Record
    from streams.runtime.kafka.connection import KafkaConnection

_CONNECT_S = 5.0
_STOP_S = 3.0
# A wait as the group consumer's: latency does not depend on it, what idling costs does.
_FETCHING = FetchSettings(200, request_timeout_ms=40_000)


class KafkaTail:
    """Reads all partitions of `topics` from where they end when it starts.

    Args:
        connection: where Kafka is.
        topics: logical names.
    """

    def __init__(self, connection: KafkaConnection, topics: Sequence[str]) -> None:
        self._connection = connection
        self._topics = tuple(topics)
        self._reader: LogReader | None = None

    async def start(self) -> dict[str, int]:
        """Connect and note every partition's end; a record produced after this returned is read.

        Returns:
            the number of partitions of each topic.

        Raises:
            MisconfiguredError: a topic does not exist, or nobody may read it.
            BrokerUnavailableError: no broker answered.
        """
        names = [self._connection.real(topic) for topic in self._topics]
        reader = self._reader = LogReader(self._connection, self._topics, _FETCHING)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await reader.start()
                ends = await reader.consumer.end_offsets(list(reader.consumer.assignment()))
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
        reader.seek(ends)
        return {topic: sum(p.topic == name for p in ends) for topic, name in zip(self._topics, names, strict=True)}

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return everything fetched, waiting up to `timeout_ms` if there is nothing.

        Batches that cannot be unpacked are logged and left out.

        Raises:
            BrokerUnavailableError: reading failed; a record may have been missed, so start a new tail.
        """
        assert self._reader is not None
        source = self._reader.source
        try:
            fetched = await source.poll((), timeout_ms)
        except KafkaError as fault:
            raise BrokerUnavailableError(repr(fault)) from fault
        if self._reader.has_grown():
            for place in self._reader.consumer.assignment():
                source.seek(place, source.position(place) or 0)  # a new partition is read from its beginning
        return readable(record for records in fetched.values() for record in records)

    async def stop(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            await self._reader.stop(_STOP_S)
            self._reader = None
