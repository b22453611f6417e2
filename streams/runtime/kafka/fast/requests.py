"""Sends requests of `kafka_wire` over aiokafka's connections: no task, no object per field, one timer each.

The client finds brokers, connects and logs in; its connection frames and matches the answers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import errors
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaError

from streams.runtime.kafka.fast import protocol as kafka_wire

if TYPE_CHECKING:
    from io import BytesIO

    from aiokafka.client import AIOKafkaClient
    from aiokafka.conn import AIOKafkaConnection

    from streams.runtime.kafka.fast.protocol import Api

_log = logging.getLogger(__name__)

_DEFAULT_GROUP = 0  # of the client's connections to one broker; the group coordinator has one of its own


class _Header(NamedTuple):
    correlation_id: int


class _Asked:
    """What the connection keeps of a request until its answer comes: how to read that."""

    __slots__ = ("RESPONSE_TYPE", "_api")

    def __init__(self, api: Api) -> None:
        self._api = api
        self.RESPONSE_TYPE = self  # the connection's word for what decodes

    def parse_response_header(self, frame: BytesIO) -> _Header:
        """Return whose answer this is."""
        return _Header(int.from_bytes(frame.getbuffer()[:4], "big"))

    def decode(self, frame: BytesIO) -> object:
        """Return the answer."""
        return self._api.read(frame.getvalue())


class Calls:
    """Requests to brokers, on one client of one event loop."""

    def __init__(self, client: AIOKafkaClient, timeout_s: float) -> None:
        """Nothing is sent yet.

        Args:
            client: bootstrapped.
            timeout_s: until a request without an answer counts as lost, and its connection with it.
        """
        self._client = client
        self._timeout_s = timeout_s

    def connected(self, node: int) -> bool:
        """Tell whether `post` can be used."""
        return self._connection(node) is not None

    async def connect(self, node: int) -> bool:
        """Connect to a broker; returns whether that worked.

        Whatever goes wrong, others wait for the outcome: Kerberos, token providers and the resolver raise what they
        like (an expired ticket, a host name that is none), and aiokafka lets it through.
        """
        try:
            return bool(await self._client.ready(node)) and self.connected(node)
        except KafkaError:
            return False
        except Exception as fault:  # noqa: BLE001  # see above
            _log.warning("no connection to broker %d: %r; trying again", node, fault)
            return False

    def post(self, node: int, api: Api, body: bytes) -> asyncio.Future[Any]:
        """Send a request; returns the future answer, or the error that ended its connection.

        Raises:
            KafkaError: there is no connection, it broke, or the broker is too old.
        """
        connection = self._connection(node)
        if connection is None:
            raise errors.NodeNotReadyError(f"broker {node} is not connected")
        oldest, newest = connection._versions.get(api.key, (0, 0))  # noqa: SLF001 - no public way below objects
        if not oldest <= api.version <= newest:
            raise errors.IncompatibleBrokerVersion(f"broker {node} lacks version {api.version} of request {api.key}")
        return self._write(connection, api, body)

    def _write(self, connection: AIOKafkaConnection, api: Api, body: bytes) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        correlation_id: int = connection._next_correlation_id()  # noqa: SLF001 - as `connection.send()` does
        head = kafka_wire.header(api, correlation_id, connection._client_id.encode())  # noqa: SLF001
        size = len(head) + len(body)
        try:
            connection._writer.write(size.to_bytes(4, "big") + head + body)  # noqa: SLF001
        except (OSError, RuntimeError) as fault:  # the latter is uvloop's, of a connection that has just been closed
            connection.close(reason=CloseReason.CONNECTION_BROKEN, exc=fault)
            raise errors.KafkaConnectionError(f"the connection broke: {fault}") from fault
        answer: asyncio.Future[Any] = loop.create_future()
        connection._requests.append((correlation_id, _Asked(api), answer))  # noqa: SLF001
        timer = loop.call_later(self._timeout_s, connection.close, CloseReason.CONNECTION_TIMEOUT)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def _connection(self, node: int) -> AIOKafkaConnection | None:
        connection = self._client._conns.get((node, _DEFAULT_GROUP))  # noqa: SLF001
        return connection if connection is not None and connection.connected() else None
