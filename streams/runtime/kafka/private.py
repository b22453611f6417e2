"""Every private name of aiokafka that Skysail uses; no other file has one.

    supported() ──▶ None    the fast path, and the mends below
                └─▶ reason  the stock path on aiokafka's public interface, without mends

All of it concerns one client or one connection at a time: other users of aiokafka in the process notice nothing.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import aiokafka
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaConnectionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)

_DEFAULT_GROUP = 0  # of the client's connections to one broker; the group coordinator has one of its own
# Where each name is set or used. A function's code says which names it uses, so that nothing has to be made for a look.
_NAMES: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...] = (
    (AIOKafkaConsumer.__init__, ("_client", "_coordinator", "_fetch_min_bytes", "_fetch_max_wait_ms")),
    (GroupCoordinator.__init__, ("_group_instance_id",)),
    (AIOKafkaClient.__init__, ("_conns", "_sync_task")),
    (AIOKafkaClient.ready, ("_get_conn",)),
    (AIOKafkaConnection.send, ("_versions", "_next_correlation_id", "_writer", "_requests")),
)


@cache
def supported() -> str | None:
    """Return why this aiokafka has to be used over its public interface alone; None = it is one that is known."""
    for where, names in _NAMES:
        code = getattr(where, "__code__", None)
        missing = [name for name in names if code is None or name not in code.co_names]
        if missing:
            reason = f"aiokafka {aiokafka.__version__} has no {', '.join(missing)} in {where.__qualname__}"
            _log.warning("%s: Kafka is used over aiokafka's public interface, which costs more CPU", reason)
            return reason
    return None


def client_of(consumer: AIOKafkaConsumer) -> AIOKafkaClient:
    """Return what a consumer's connections and metadata belong to."""
    return consumer._client  # noqa: SLF001


def metadata_keeper(consumer: AIOKafkaConsumer) -> asyncio.Task[None] | None:
    """Return the task that keeps a consumer's metadata: without it no lost coordinator is found again."""
    task: asyncio.Task[None] | None = client_of(consumer)._sync_task  # noqa: SLF001
    return task


def become_dynamic(consumer: AIOKafkaConsumer) -> None:
    """Let a static member leave its group when it stops, which aiokafka's never do."""
    if consumer._coordinator is not None:  # noqa: SLF001
        consumer._coordinator._group_instance_id = None  # noqa: SLF001


def fetch_seldom(consumer: AIOKafkaConsumer, wait_ms: int, least_bytes: int) -> None:
    """Have a consumer that somebody else (Faust) has made, and not started, fetch less often."""
    consumer._fetch_max_wait_ms, consumer._fetch_min_bytes = wait_ms, least_bytes  # noqa: SLF001


def connection_to(client: AIOKafkaClient, node: int) -> AIOKafkaConnection | None:
    """Return the connection to a broker, if there is one."""
    connection = client._conns.get((node, _DEFAULT_GROUP))  # noqa: SLF001
    return connection if connection is not None and connection.connected() else None


def versions(connection: AIOKafkaConnection, key: int) -> tuple[int, int]:
    """Return the oldest and the newest version of a request that the broker knows."""
    found: tuple[int, int] = connection._versions.get(key, (0, 0))  # noqa: SLF001
    return found


def write(connection: AIOKafkaConnection, frame: Callable[[int], bytes], reads: object) -> asyncio.Future[Any]:
    """Write a request and return its future answer, as `AIOKafkaConnection.send` does, but without a task.

    Args:
        connection: connected.
        frame: makes the request's bytes, without their length, of its number.
        reads: the answer: has `parse_response_header` and `RESPONSE_TYPE`.

    Raises:
        KafkaConnectionError: the connection broke.
    """
    number = connection._next_correlation_id()  # noqa: SLF001
    data = frame(number)
    try:
        connection._writer.write(len(data).to_bytes(4, "big") + data)  # noqa: SLF001
    except (OSError, RuntimeError) as fault:  # the latter is uvloop's, of a connection that has just been closed
        raise _broken(connection, fault) from fault
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    connection._requests.append((number, reads, answer))  # noqa: SLF001
    return answer


def mend(client: AIOKafkaClient, rest_s: float) -> None:
    """Make up for three faults of aiokafka in a client that is not connected yet; see the functions below."""
    client.bootstrap = partial(_bootstrap_or_fail, client, client.bootstrap)
    client._get_conn = partial(_connect_or_rest, client._get_conn, rest_s)  # noqa: SLF001


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
    connect: Callable[..., Awaitable[AIOKafkaConnection | None]], rest_s: float, node: int, **options: Any
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


def _send_or_break(connection: AIOKafkaConnection, send: Callable[..., Any], request: Any, **options: bool) -> Any:
    """Send a request; uvloop's RuntimeError of a closed connection would end aiokafka's background tasks."""
    try:
        return send(request, **options)
    except RuntimeError as fault:
        raise _broken(connection, fault) from fault


def _broken(connection: AIOKafkaConnection, fault: Exception) -> KafkaConnectionError:
    connection.close(reason=CloseReason.CONNECTION_BROKEN, exc=fault)
    return KafkaConnectionError(f"the connection broke: {fault}")
