"""A consumer outside any group, and where its records come from."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from streams.runtime.kafka.clients import consumer_on, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.source import FetchSettings

_log = logging.getLogger(__name__)


class LogReader:
    """Reads partitions from where `seek` says.

    Args:
        connection: where Kafka is.
        topics: logical names.
        settings: how brokers are asked.
        places: the partitions; by default all of the topics.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Iterable[str],
        settings: FetchSettings,
        places: Sequence[KafkaPartition] | None = None,
    ) -> None:
        topics = tuple(topics)
        self.consumer = consumer_on(connection, topics if places is None else (), settings)
        self.source = source_of(self.consumer, connection, topics, settings)
        self._places = places
        self._assigned: frozenset[KafkaPartition] = frozenset()

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaError: no broker answers, or a topic is not there.
        """
        await self.consumer.start()
        if self._places:
            self.consumer.assign(self._places)
        await self.source.start()
        self._own()

    def has_grown(self) -> bool:
        """Whether there are other partitions than when this was asked before; `seek` says where they begin."""
        if self.consumer.assignment() is self._assigned:
            return False
        self._own()
        return True

    def seek(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Continue from these offsets."""
        for place, offset in offsets.items():
            self.source.seek(place, offset)

    async def stop(self, timeout_s: float) -> None:
        """Disconnect, but wait no longer than this."""
        self.source.stop()
        leaving = asyncio.create_task(self.consumer.stop(), name="reader leaving")
        await asyncio.wait([leaving], timeout=timeout_s)
        if leaving.done() and not leaving.cancelled() and leaving.exception() is not None:
            _log.warning("a reader did not stop cleanly: %r", leaving.exception())

    def _own(self) -> None:
        self._assigned = self.consumer.assignment()
        self.source.own(self._assigned)
