"""Connections that close under a request: uvloop says so with a RuntimeError, which must not end a role."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.metadata import MetadataResponse_v0

from streams.runtime.clock import SystemClock
from streams.runtime.errors import BrokerUnavailableError, StuckError
from streams.runtime.kafka.aiokafka_fixes import mend, mend_connection
from streams.runtime.kafka.connection import KafkaConnection
from streams.runtime.kafka.consumer import ConsumerSettings, KafkaConsumer
from streams.runtime.kafka.fast import protocol as kafka_wire
from streams.runtime.kafka.fast.requests import Calls
from streams.runtime.kafka.producer import KafkaTransport
from tests.virtual import run

CLOSED = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


class Gone:
    """A group member whose every request meets a closed connection."""

    async def commit(self, offsets: dict[Any, int]) -> None:
        """Fail."""
        raise CLOSED

    async def poll(self, places: Any, timeout_ms: int) -> dict[Any, list[Any]]:
        """Fail."""
        raise CLOSED


class Idle:
    """A group member for which nothing came, and the task of its client that keeps the metadata."""

    def __init__(self, keeper: asyncio.Future[None]) -> None:
        self._client = SimpleNamespace(_sync_task=keeper)

    async def poll(self, places: Any, timeout_ms: int) -> dict[Any, list[Any]]:
        """Return nothing."""
        return {}


def test_offsets_are_committed_with_the_next_ones_and_polls_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """As with every other way of losing a broker; both are told."""
    consumer = KafkaConsumer(
        KafkaConnection("b:9092"), ("queries",), "g", SystemClock(), ConsumerSettings(backoff_s=0.0)
    )
    consumer._consumer = consumer._source = Gone()  # type: ignore[assignment]

    async def lose() -> tuple[bool, list[Any]]:
        return await consumer.commit({("queries", 0): 5}), await consumer.poll(0)

    assert run(lose()) == (False, [])
    assert "offsets not committed, they will be with the next ones: RuntimeError" in caplog.text
    assert "poll failed (1 in a row): RuntimeError" in caplog.text


def test_nothing_is_unread_before_the_first_start() -> None:
    """As there is no lag: a role that asks early learns nothing, and goes on."""
    consumer = KafkaConsumer(KafkaConnection("b:9092"), ("queries",), "g", SystemClock())
    assert (consumer.unread(), consumer.vitals().lag) == ({}, 0)


def test_requests_of_aiokafka_itself_fail_as_over_a_broken_connection() -> None:
    """An error of another kind would end its background tasks, and nobody would find the group's coordinator again."""

    def write(_: bytes) -> None:
        raise CLOSED

    async def ask() -> bool:
        connection = AIOKafkaConnection("b", 9092, on_close=lambda _, reason: reasons.append(reason))
        connection._reader = asyncio.StreamReader()
        connection._writer = SimpleNamespace(write=write, close=lambda: None)
        connection._read_task = asyncio.get_running_loop().create_future()
        mend_connection(connection)
        with pytest.raises(KafkaConnectionError, match="handler is closed"):
            await connection.send(ApiVersionRequest())
        return connection.connected()

    reasons: list[CloseReason] = []
    assert not run(ask())
    assert reasons == [CloseReason.CONNECTION_BROKEN]


def test_a_member_whose_metadata_nobody_keeps_any_more_gives_up() -> None:
    """Only a new process helps: it would neither commit nor follow a rebalance."""

    async def poll() -> None:
        keeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keeper.set_exception(CLOSED)
        consumer = KafkaConsumer(KafkaConnection("b:9092"), ("queries",), "g", SystemClock())
        consumer._consumer = consumer._source = Idle(keeper)  # type: ignore[assignment]
        with pytest.raises(StuckError, match="metadata") as stuck:
            await consumer.poll(0)
        assert stuck.value.__cause__ is CLOSED

    run(poll())


class Telling:
    """A connection to a broker that names these brokers, whatever it is asked."""

    def __init__(self, brokers: list[tuple[int, str, int]]) -> None:
        self._brokers = brokers

    async def send(self, _: Any) -> MetadataResponse_v0:
        """Return the brokers."""
        return MetadataResponse_v0(brokers=self._brokers, topics=[])

    def close(self, **_: Any) -> asyncio.Future[None]:
        """Return what is done when it is closed: at once."""
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        closed.set_result(None)
        return closed


def test_a_broker_that_names_none_is_none_to_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stops answers so; a client that began with it would know of nobody to ask when it is gone."""
    answers = [Telling([]), Telling([(1, "b", 9092)])]

    async def connect(*_: Any, **__: Any) -> Telling:
        return answers.pop(0)

    async def start() -> None:
        transport = KafkaTransport(KafkaConnection("b:9092"), SystemClock())
        with pytest.raises(BrokerUnavailableError, match="starting or stopping"):
            await transport.start()
        await transport.start()
        await transport.stop()

    monkeypatch.setattr("aiokafka.client.create_conn", connect)
    run(start())


def test_whoever_cannot_connect_rests_before_he_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or aiokafka's own tasks would ask as often as the processor lets them while a broker is away."""

    async def refuse(*_: Any, **__: Any) -> Telling:
        raise ConnectionRefusedError

    async def ask() -> float:
        client = AIOKafkaClient(bootstrap_servers="b:9092")
        mend(client, 0.1)
        client.cluster.update_metadata(MetadataResponse_v0(brokers=[(1, "b", 9092)], topics=[]))
        for _ in range(5):
            assert not await client.ready(1)
        return asyncio.get_running_loop().time()

    monkeypatch.setattr("aiokafka.client.create_conn", refuse)
    assert run(ask()) == pytest.approx(0.5)


def test_a_request_over_it_fails_as_one_over_a_broken_connection() -> None:
    """And the connection is closed for whoever comes next."""
    closed: list[object] = []

    def write(_: bytes) -> None:
        raise CLOSED

    api = kafka_wire.PRODUCE
    connection = SimpleNamespace(
        connected=lambda: True,
        close=lambda **why: closed.append(why["exc"]),
        _versions={api.key: (api.version, api.version)},
        _next_correlation_id=lambda: 1,
        _client_id="c",
        _writer=SimpleNamespace(write=write),
    )
    calls = Calls(SimpleNamespace(_conns={(7, 0): connection}), 1.0)

    async def post() -> None:
        with pytest.raises(KafkaConnectionError, match="handler is closed"):
            calls.post(7, api, b"")

    run(post())
    assert closed == [CLOSED]
