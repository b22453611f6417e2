"""Every private name of aiokafka that Skysail uses; no other file has one.

    supported() ──▶ None    the fast path, and `mends`
                └─▶ reason  the stock path on aiokafka's public interface, without mends

All of it concerns one client or one connection at a time: other users of aiokafka in the process notice nothing.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaConnectionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from io import BytesIO

    Connect = Callable[..., Awaitable[AIOKafkaConnection | None]]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_log = logging.getLogger(__name__)

_DEFAULT_GROUP = 0  # of the client's connections to one broker; the group coordinator has one of its own
# Where each name is set or used. A function's code says which names it uses, so that nothing has to be made for a look.
_NAMES: tuple[tuple[Callable[..., object], tuple[str, ...]], ...] = (
    (AIOKafkaConsumer.__init__, ("_client", "_coordinator", "_fetcher")),
    (AIOKafkaConsumer.__init__, ("_fetch_min_bytes", "_fetch_max_wait_ms", "_request_timeout_ms")),
    (GroupCoordinator.__init__, ("_group_instance_id",)),
    (GroupCoordinator.reset_generation, ("request_rejoin",)),
    (AIOKafkaClient.__init__, ("_conns", "_sync_task", "_request_timeout_ms")),
    (AIOKafkaClient.ready, ("_get_conn",)),
    (AIOKafkaConnection.send, ("_versions", "_next_correlation_id", "_writer", "_requests")),
)


class Reads(Protocol[T_co]):
    """What a connection keeps of a request: how to read the answer."""

    @property
    def RESPONSE_TYPE(self) -> Reads[T_co]:  # noqa: N802 - aiokafka's word for what decodes
        """Itself."""
        ...

    def parse_response_header(self, frame: BytesIO, /) -> object:
        """Return what says whose answer this is, as its `correlation_id`."""
        ...

    def decode(self, frame: BytesIO, /) -> T_co:
        """Return the answer."""
        ...


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


async def stop_fetching(consumer: AIOKafkaConsumer) -> None:
    """End the task by which a started consumer fetches; it still looks up offsets.

    Pausing its partitions would not do: without a leader for one of them, it asks for metadata without a rest.
    """
    await consumer._fetcher.close()  # noqa: SLF001


def become_dynamic(consumer: AIOKafkaConsumer) -> None:
    """Let a static member leave its group when it stops, which aiokafka's never do."""
    if consumer._coordinator is not None:  # noqa: SLF001
        consumer._coordinator._group_instance_id = None  # noqa: SLF001


def rejoin(consumer: AIOKafkaConsumer) -> None:
    """Let a member join its group anew, with what it has until then."""
    if consumer._coordinator is not None:  # noqa: SLF001
        consumer._coordinator.request_rejoin()  # noqa: SLF001


def fetch_less_often(consumer: AIOKafkaConsumer, wait_ms: int, least_bytes: int) -> None:
    """Have a consumer that somebody else (Faust) has made, and not started, fetch less often."""
    consumer._fetch_max_wait_ms, consumer._fetch_min_bytes = wait_ms, least_bytes  # noqa: SLF001


def answer_within(consumer: AIOKafkaConsumer, answer_ms: int) -> None:
    """Have a consumer that somebody else has made, and not started, wait for answers this long."""
    consumer._request_timeout_ms = client_of(consumer)._request_timeout_ms = answer_ms  # noqa: SLF001


def connection_to(client: AIOKafkaClient, node: int) -> AIOKafkaConnection | None:
    """Return the connection to a broker, if there is one."""
    connection = client._conns.get((node, _DEFAULT_GROUP))  # noqa: SLF001
    return connection if connection is not None and connection.connected() else None


def versions(connection: AIOKafkaConnection, key: int) -> tuple[int, int]:
    """Return the oldest and the newest version of a request that the broker knows."""
    found: tuple[int, int] = connection._versions.get(key, (0, 0))  # noqa: SLF001
    return found


def write(connection: AIOKafkaConnection, frame: Callable[[int], bytes], reads: Reads[T]) -> asyncio.Future[T]:
    """Write a request and return its future answer, as `AIOKafkaConnection.send` does, but without a task.

    Args:
        connection: connected.
        frame: makes the request's bytes, without their length, of its number.
        reads: the answer.

    Raises:
        KafkaConnectionError: the connection broke.
    """
    number = connection._next_correlation_id()  # noqa: SLF001
    data = frame(number)
    try:
        connection._writer.write(len(data).to_bytes(4, "big") + data)  # noqa: SLF001
    except (OSError, RuntimeError) as fault:  # the latter is uvloop's, of a connection that has just been closed
        raise broken(connection, fault) from fault
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    connection._requests.append((number, reads, answer))  # noqa: SLF001
    return answer


def wrap_connecting(client: AIOKafkaClient, wrap: Callable[[Connect], Connect]) -> None:
    """Replace how one client connects to a broker."""
    client._get_conn = wrap(client._get_conn)  # noqa: SLF001


def broken(connection: AIOKafkaConnection, fault: Exception) -> KafkaConnectionError:
    """Close a connection that broke, and return what to raise."""
    connection.close(reason=CloseReason.CONNECTION_BROKEN, exc=fault)
    return KafkaConnectionError(f"the connection broke: {fault}")
