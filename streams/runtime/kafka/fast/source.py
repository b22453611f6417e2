"""The fast way to a consumer's records: aiokafka keeps the group and the offsets, and fetches nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.runtime.kafka import private
from streams.runtime.kafka.fast.fetcher import Fetcher
from streams.runtime.kafka.fast.requests import Calls
from streams.runtime.kafka.transport_ports import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Batch, Record
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.transport_ports import FetchSettings


class FastSource:
    """Implements `ways.Source` beside a consumer that fetches nothing itself."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        names: Mapping[str, str],
        connection: KafkaConnection,
        settings: FetchSettings,
        batched: frozenset[str] = frozenset(),
    ) -> None:
        self._consumer = consumer
        client = private.client_of(consumer)
        calls = Calls(client, settings.request_timeout_ms / 1000, connection.client_id)
        self._fetcher = Fetcher(calls, names, settings, connection.rest_s, consumer.beginning_offsets, batched)
        self.position = self._fetcher.position
        self.seek = self._fetcher.seek
        self.stop = self._fetcher.stop
        self.own = self._fetcher.keep

    async def start(self) -> None:
        """Keep aiokafka from fetching; see `ways.Source`."""
        await private.stop_fetching(self._consumer)

    async def poll(
        self, places: Collection[KafkaPartition], timeout_ms: int
    ) -> Mapping[KafkaPartition, list[Record | Batch]]:
        """Return what has come; see `ways.Source`."""
        # The group's errors come out here, and it waits while the group decides who owns what.
        await self._consumer.getmany(NOWHERE, timeout_ms=0)
        return await self._fetcher.poll(places, timeout_ms / 1000)

    def unread(self) -> Iterator[tuple[KafkaPartition, int | None]]:
        """Yield how much is unread; see `ways.Source`."""
        return self._fetcher.unread()
