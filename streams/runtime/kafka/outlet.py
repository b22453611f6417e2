"""Where a process's batches go: the seam between what a transport decides and how batches are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka.client import AIOKafkaClient
    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.operators.contract import Emit


class InvalidRecordError(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """The broker's code 87, which aiokafka does not know: a record that the topic will never take."""

    errno = 87


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How the producer behaves.

    Attributes:
        batch_bytes: of one batch; no more than any topic's `max.message.bytes`, which bounds batches, not records.
        record_bytes: larger records, keys and headers included, are refused here; the largest dead letter is smaller.
        request_bytes: of one request; the broker's limit (`socket.request.max.bytes`) is 100 MiB.
        in_flight: requests to one broker that may be unanswered.
        request_timeout_ms: until an unanswered request counts as failed; also how long a leader may wait for replicas.
        topic_timeout_s: until a topic that is in no broker's metadata counts as missing.
        failures: consecutive failures after which the client is replaced, in case it does not recover (#1018).
        stop_s: how long stopping may take; with a dead broker aiokafka hangs (measured: more than 15 s).
        compression: None, `snappy` or `zstd`; never lz4, which costs 3.6 times the whole hop.
    """

    batch_bytes: int = 1 << 20
    record_bytes: int = 4_000_000
    request_bytes: int = 16 << 20
    in_flight: int = 4
    request_timeout_ms: int = 10_000
    topic_timeout_s: float = 3.0
    failures: int = 10
    stop_s: float = 3.0
    compression: str | None = None


class Outlet(Protocol):
    """Sends batches to the brokers; replaced as a whole where it does not recover."""

    @property
    def client(self) -> AIOKafkaClient:
        """What knows the brokers and which of them lead what."""
        ...

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaError: no broker answered, or it says no.
        """
        ...

    def batch(self, emits: Sequence[Emit]) -> tuple[Any, int]:
        """Build one record batch of as many of these as fit; returns it and their number."""
        ...

    async def send(self, place: KafkaPartition, batch: Any) -> None:
        """Send a batch to its partition's leader and wait until all replicas in sync have it.

        Raises:
            KafkaError: what the broker answered, or why it did not.
        """
        ...

    def abandon(self) -> None:
        """Drop unanswered requests: nothing waits for them any more."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
