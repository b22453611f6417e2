"""Connections that close under a request: uvloop says so with a RuntimeError, which must not end a role."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from streams.runtime import kafka_wire
from streams.runtime.clock import SystemClock
from streams.runtime.kafka_calls import Calls
from streams.runtime.kafka_client import KafkaConnection
from streams.runtime.kafka_consumer import ConsumerSettings, KafkaConsumer
from tests.virtual import run

CLOSED = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


class Gone:
    """A group member whose every request meets a closed connection."""

    async def commit(self, offsets: dict[Any, int]) -> None:
        """Fail."""
        raise CLOSED

    async def getmany(self, *partitions: Any, timeout_ms: int) -> dict[Any, list[Any]]:
        """Fail."""
        raise CLOSED


def test_offsets_are_committed_with_the_next_ones_and_polls_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """As with every other way of losing a broker; both are told."""
    consumer = KafkaConsumer(
        KafkaConnection("b:9092"), ("queries",), "g", SystemClock(), ConsumerSettings(backoff_s=0.0)
    )
    consumer._consumer = Gone()

    async def lose() -> tuple[bool, list[Any]]:
        return await consumer.commit({("queries", 0): 5}), await consumer.poll(0)

    assert run(lose()) == (False, [])
    assert "offsets not committed, they will be with the next ones: RuntimeError" in caplog.text
    assert "poll failed (1 in a row): RuntimeError" in caplog.text


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
