"""The fast way out: what is sent in one turn of the event loop goes in one request a broker.

    accumulator ──send──▶ waiting, by broker ──flush──▶ at most `in_flight` requests ──▶ response ──▶ one result a batch

An aiokafka client only finds brokers and connects. aiokafka's own producer keeps one request in flight a broker and
takes 1.4 times the CPU (221 against 151 us a request, measured): an answer waits for a model query's acknowledgement,
which at 500/s costs a third of the loop's median. Order within a partition is the caller's: it sends a partition's next
batch when it has the result of the last.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, LeaderNotAvailableError
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams.runtime.kafka.aiokafka_fixes import mend
from streams.runtime.kafka.error_codes import fault_of
from streams.runtime.kafka.fast.protocol import PRODUCE, produce_request
from streams.runtime.kafka.fast.requests import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Emit
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.fast.protocol import Place
    from streams.runtime.kafka.transport_ports import ProducerSettings

# aiokafka's numbers for compression, as they stand in a batch's attributes.
_COMPRESSION = {None: 0, "snappy": 2, "zstd": 4}
_NO_HEADERS: list[tuple[str, bytes]] = []
_ALL_REPLICAS = -1


class FastOutlet:
    """Implements `ways.Outlet`."""

    def __init__(self, connection: KafkaConnection, clock: Clock, settings: ProducerSettings) -> None:
        self._clock = clock
        self._batch_bytes = settings.batch_bytes
        self._compression = _COMPRESSION[settings.compression]
        self.takes_finished = not self._compression
        timeout_ms = settings.request_timeout_ms
        self.client = AIOKafkaClient(request_timeout_ms=timeout_ms, **connection.options())
        mend(self.client, connection.rest_s)
        self._calls = Calls(self.client, timeout_ms / 1000, connection.client_id)
        self._requests = Requests(
            self._calls, self._calls.refresh, settings.in_flight, timeout_ms, settings.request_bytes
        )
        self.abandon = self._requests.abandon
        self.depart = self._requests.depart

    async def start(self) -> None:
        """Connect; see `ways.Outlet`."""
        await self.client.bootstrap()

    def batch(self, emits: Sequence[Emit]) -> tuple[bytes, int]:
        """Build one record batch; see `ways.Outlet`."""
        now_ms = self._clock.now_us() // 1000
        batch = DefaultRecordBatchBuilder(2, self._compression, 0, -1, -1, 0, self._batch_bytes)
        append = batch.append
        count = 0
        for _, _, key, value, _, headers, _ in emits:
            if append(count, now_ms, key, value, [*headers] if headers else _NO_HEADERS) is None:
                break
            count += 1
        return batch.build(), count

    async def send(self, place: KafkaPartition, batch: bytes) -> None:
        """Send a batch; see `ways.Outlet`."""
        leader = self._calls.leader(place)
        if leader is None:
            raise LeaderNotAvailableError(str(place))
        await self._requests.send(leader, place.topic, place.partition, batch)

    def post(self, place: KafkaPartition, batch: bytes) -> asyncio.Future[None] | None:
        """Send a batch without waiting; see `ways.Outlet`."""
        leader = self._calls.leader(place)
        return None if leader is None else self._requests.post(leader, place.topic, place.partition, batch)

    async def close(self) -> None:
        """Disconnect; see `ways.Outlet`."""
        await self.client.close()


class _ProduceBatch(NamedTuple):
    """A built record batch on its way, and who waits for it."""

    place: Place
    records: bytes
    result: asyncio.Future[None]


@dataclass(slots=True)
class _BrokerLane:
    waiting: list[_ProduceBatch]
    in_flight: int = 0
    connecting: asyncio.Task[None] | None = None


class Requests:
    """Sends built record batches to partition leaders; one event loop, one client."""

    def __init__(
        self, calls: Calls, refresh: Callable[[], object], in_flight: int, timeout_ms: int, request_bytes: int
    ) -> None:
        """Nothing is sent yet.

        Args:
            calls: to the brokers.
            refresh: asks for new metadata.
            in_flight: requests to one broker that may be unanswered; more of them are smaller.
            timeout_ms: that the leader may wait for its replicas.
            request_bytes: of record batches in one request, unless a single batch is larger.
        """
        self._loop = asyncio.get_running_loop()  # to ask for it costs a system call each time
        self._calls = calls
        self._ask_again = refresh
        self._limit = in_flight
        self._timeout_ms = timeout_ms
        self._request_bytes = request_bytes
        self._brokers: dict[int, _BrokerLane] = {}
        self._answers: set[asyncio.Future[dict[Place, int]]] = set()

    async def send(self, node: int, topic: str, partition: int, records: bytes) -> None:
        """Send one batch, with others of this turn, to a partition's leader; wait until all replicas in sync have it.

        Raises:
            KafkaError: what the broker answered, or why it did not.
        """
        if node not in self._brokers or not self._brokers[node].waiting:
            self._loop.call_soon(self.depart)
        await self.post(node, topic, partition, records)

    def post(self, node: int, topic: str, partition: int, records: bytes) -> asyncio.Future[None]:
        """Have one batch leave with the next `depart`; returns what is done, or has an exception, as `send` does."""
        broker = self._brokers.setdefault(node, _BrokerLane([]))
        result: asyncio.Future[None] = self._loop.create_future()
        broker.waiting.append(_ProduceBatch((topic, partition), records, result))
        return result

    def depart(self) -> None:
        """Send what waits."""
        for node, broker in self._brokers.items():
            if broker.waiting:
                self._flush(node, broker)

    def abandon(self) -> None:
        """Drop unanswered requests: nothing waits for them any more."""
        for answer in self._answers:
            answer.cancel()
        for broker in self._brokers.values():
            if broker.connecting is not None:
                broker.connecting.cancel()
            _settle(broker.waiting, errors.KafkaConnectionError("the producer was stopped"))
            broker.waiting = []

    def _flush(self, node: int, broker: _BrokerLane) -> None:
        while broker.waiting and broker.in_flight < self._limit:
            if not self._calls.connected(node):
                if broker.connecting is None:
                    broker.connecting = asyncio.create_task(self._connect(node, broker))
                return
            self._request(node, broker, self._take(broker))

    async def _connect(self, node: int, broker: _BrokerLane) -> None:
        try:
            is_connected = await self._calls.connect(node)
        finally:
            broker.connecting = None
        if not is_connected:
            waiting, broker.waiting = broker.waiting, []
            _settle(waiting, errors.NodeNotReadyError(f"no connection to broker {node}"))
        self._flush(node, broker)

    def _take(self, broker: _BrokerLane) -> list[_ProduceBatch]:
        """Take what fits into one request: at least one batch, and one a partition.

        Of two batches of a partition in one request a broker keeps the last, and acknowledges both. Two roles of one
        process may well write to the same partition in the same turn.
        """
        taken: dict[Place, _ProduceBatch] = {}
        left: list[_ProduceBatch] = []
        room = self._request_bytes
        for batch in broker.waiting:
            place = batch.place
            if place in taken or (taken and len(batch.records) > room):
                left.append(batch)
            else:
                taken[place] = batch
                room -= len(batch.records)
        broker.waiting = left
        return [*taken.values()]

    def _request(self, node: int, broker: _BrokerLane, batches: list[_ProduceBatch]) -> None:
        body = produce_request(((batch.place, batch.records) for batch in batches), _ALL_REPLICAS, self._timeout_ms)
        try:
            answer = self._calls.post(node, PRODUCE, body)
        except KafkaError as fault:
            self._refresh(fault)
            _settle(batches, fault)
            return
        broker.in_flight += 1
        self._answers.add(answer)
        answer.add_done_callback(partial(self._answered, node, broker, batches))

    def _answered(
        self, node: int, broker: _BrokerLane, batches: list[_ProduceBatch], answer: asyncio.Future[dict[Place, int]]
    ) -> None:
        self._answers.discard(answer)
        broker.in_flight -= 1
        fault = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or (fault is not None and not isinstance(fault, KafkaError)):
            fault = errors.KafkaConnectionError(f"the request ended without an answer: {fault!r}")
        if fault is not None:
            self._refresh(fault)
            _settle(batches, fault)
        else:
            self._tell(batches, answer.result())
        self._flush(node, broker)

    def _tell(self, batches: list[_ProduceBatch], codes: Mapping[Place, int]) -> None:
        for batch in batches:
            code = codes.get(batch.place, errors.UnknownError.errno)
            fault = fault_of(code) if code else None
            if fault is not None:
                self._refresh(fault)
            _settle([batch], fault)

    def _refresh(self, fault: BaseException) -> None:
        """Ask for new metadata where the fault says that ours are old."""
        if getattr(fault, "invalid_metadata", False):
            self._ask_again()


def _settle(batches: list[_ProduceBatch], fault: BaseException | None) -> None:
    for batch in batches:
        if batch.result.done():
            continue  # its waiter was cancelled
        if fault is None:
            batch.result.set_result(None)
        else:
            batch.result.set_exception(fault)
