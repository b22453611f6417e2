"""Faults of aiokafka, mended in one client and its connections; other clients of the process stay as they are."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aiokafka.errors import ConsumerStoppedError, KafkaConnectionError

from streams.runtime.kafka import private
from streams.runtime.kafka.connection import LOST
from streams.runtime.kafka.transport_ports import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiokafka import AIOKafkaConsumer
    from aiokafka.client import AIOKafkaClient
    from aiokafka.conn import AIOKafkaConnection

T = TypeVar("T")


def mend(client: AIOKafkaClient, rest_s: float) -> None:
    """Make up for faults of aiokafka in a client that is not connected yet; see the functions below."""
    if private.supported() is None:
        client.bootstrap = partial(_bootstrap_or_fail, client, client.bootstrap)
        private.wrap_connecting(client, lambda connect: partial(_connect_or_rest, connect, rest_s))


async def _bootstrap_or_fail(client: AIOKafkaClient, bootstrap: Callable[[], Awaitable[None]]) -> None:
    """Connect; a broker that names none, not even itself, is just starting or stopping, and counts as none.

    aiokafka would keep that one connection to ask again. When it closes, the client knows no broker to ask, for good.
    """
    try:
        await bootstrap()
    except RuntimeError as fault:  # see `_send_or_break`
        raise KafkaConnectionError(f"the connection broke: {fault}") from fault
    if not client.cluster.brokers():
        raise KafkaConnectionError("the broker knows of no broker, itself included: it is starting or stopping")


async def _connect_or_rest(
    connect: private.Connect, rest_s: float, node: int, **options: object
) -> AIOKafkaConnection | None:
    """Connect to a broker; return only after a rest if that failed.

    aiokafka's own fetcher tries again at once while a partition has no leader: thousands of log lines a second.
    """
    connection = await connect(node, **options)
    if connection is None:
        await asyncio.sleep(rest_s)
    else:
        mend_connection(connection)
    return connection


def mend_connection(connection: AIOKafkaConnection) -> None:
    """Have requests over a connection that uvloop has closed fail as over any broken one."""
    if "send" not in vars(connection):
        connection.send = partial(_send_or_break, connection, connection.send)


def _send_or_break(connection: AIOKafkaConnection, send: Callable[..., T], request: object, **options: bool) -> T:
    """Send a request; uvloop's RuntimeError of a closed connection would end aiokafka's background tasks."""
    try:
        return send(request, **options)
    except RuntimeError as fault:
        raise private.broken(connection, fault) from fault


async def taken_error(consumer: AIOKafkaConsumer) -> Exception | None:
    """Return what keeps a consumer without partitions from its group: once that is taken, it goes on joining."""
    if consumer.assignment():
        return None
    try:
        await consumer.getmany(NOWHERE, timeout_ms=0)
    except ConsumerStoppedError:
        return None
    except LOST as fault:
        return fault
    return None
