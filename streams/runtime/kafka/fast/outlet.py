"""The fast way out: batches go through `produce_queue`, on an aiokafka client that only finds brokers and connects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import LeaderNotAvailableError
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams.runtime.kafka.fast.produce_queue import Requests
from streams.runtime.kafka.fast.requests import Calls
from streams.runtime.kafka.mends import mend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Emit
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.outlet import ProducerSettings

# aiokafka's numbers for compression, as they stand in a batch's attributes.
_COMPRESSION = {None: 0, "snappy": 2, "zstd": 4}
_NO_HEADERS: list[tuple[str, bytes]] = []


class FastOutlet:
    """Implements `outlet.Outlet`."""

    def __init__(self, connection: KafkaConnection, clock: Clock, settings: ProducerSettings) -> None:
        self._clock = clock
        self._batch_bytes = settings.batch_bytes
        self._compression = _COMPRESSION[settings.compression]
        timeout_ms = settings.request_timeout_ms
        self.client = AIOKafkaClient(request_timeout_ms=timeout_ms, **connection.options())
        mend(self.client, connection.rest_s)
        self._calls = Calls(self.client, timeout_ms / 1000, connection.client_id)
        self._requests = Requests(
            self._calls, self._calls.refresh, settings.in_flight, timeout_ms, settings.request_bytes
        )
        self.abandon = self._requests.abandon

    async def start(self) -> None:
        """Connect; see `outlet.Outlet`."""
        await self.client.bootstrap()

    def batch(self, emits: Sequence[Emit]) -> tuple[bytes, int]:
        """Build one record batch; see `outlet.Outlet`."""
        now_ms = self._clock.now_us() // 1000
        batch = DefaultRecordBatchBuilder(2, self._compression, 0, -1, -1, 0, self._batch_bytes)
        append = batch.append
        count = 0
        for _, _, key, value, _, headers in emits:
            if append(count, now_ms, key, value, [*headers] if headers else _NO_HEADERS) is None:
                break
            count += 1
        return batch.build(), count

    async def send(self, place: KafkaPartition, batch: bytes) -> None:
        """Send a batch; see `outlet.Outlet`."""
        leader = self._calls.leader(place)
        if leader is None:
            raise LeaderNotAvailableError(str(place))
        await self._requests.send(leader, place.topic, place.partition, batch)

    async def close(self) -> None:
        """Disconnect; see `outlet.Outlet`."""
        await self.client.close()
