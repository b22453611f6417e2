"""Sends requests of `protocol` over aiokafka's connections: no task, no object per field, one timer each.

The client finds brokers, connects and logs in; its connection frames and matches the answers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from aiokafka import errors
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaError

from streams.runtime.kafka import private
from streams.runtime.kafka.fast.protocol import header

if TYPE_CHECKING:
    from io import BytesIO

    from aiokafka.client import AIOKafkaClient
    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.runtime.kafka.fast.protocol import Api

T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Header(NamedTuple):
    correlation_id: int


class _InFlight(Generic[T]):
    """What the connection keeps of a request until its answer comes: how to read that."""

    __slots__ = ("RESPONSE_TYPE", "_api")

    def __init__(self, api: Api[T]) -> None:
        self._api = api
        self.RESPONSE_TYPE = self  # the connection's word for what decodes

    def parse_response_header(self, frame: BytesIO) -> _Header:
        """Return whose answer this is."""
        return _Header(int.from_bytes(frame.getbuffer()[:4], "big"))

    def decode(self, frame: BytesIO) -> T:
        """Return the answer."""
        return self._api.read(frame.getvalue())


class Calls:
    """Requests to brokers, on one client of one event loop."""

    def __init__(self, client: AIOKafkaClient, timeout_s: float, client_id: str = "skysail") -> None:
        """Nothing is sent yet.

        Args:
            client: bootstrapped before the first request.
            timeout_s: until a request without an answer counts as lost, and its connection with it.
            client_id: as brokers log it.
        """
        self._client = client
        self._timeout_s = timeout_s
        self._client_id = client_id.encode()

    def leader(self, place: KafkaPartition) -> int | None:
        """Return the broker that leads a partition, as far as is known."""
        leader: int | None = self._client.cluster.leader_for_partition(place)
        return None if leader == -1 else leader

    def refresh(self) -> None:
        """Ask for new metadata."""
        self._client.force_metadata_update()

    def connected(self, node: int) -> bool:
        """Tell whether `post` can be used."""
        return private.connection_to(self._client, node) is not None

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

    def post(self, node: int, api: Api[T], body: bytes) -> asyncio.Future[T]:
        """Send a request; returns the future answer, or the error that ended its connection.

        Raises:
            KafkaError: there is no connection, it broke, or the broker is too old.
        """
        connection = private.connection_to(self._client, node)
        if connection is None:
            raise errors.NodeNotReadyError(f"broker {node} is not connected")
        oldest, newest = private.versions(connection, api.key)
        if not oldest <= api.version <= newest:
            raise errors.IncompatibleBrokerVersion(f"broker {node} lacks version {api.version} of request {api.key}")
        answer = private.write(connection, lambda number: header(api, number, self._client_id) + body, _InFlight(api))
        timer = asyncio.get_running_loop().call_later(self._timeout_s, connection.close, CloseReason.CONNECTION_TIMEOUT)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer
