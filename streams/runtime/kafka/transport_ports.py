"""The seam between what consumers and producers decide, and how records are fetched and sent: in one of two ways.

    consumer, broadcast, tail ... ──own, seek, poll──▶ Source ─┬─▶ fast: own fetches on aiokafka's connections
    aiokafka: groups, offsets, metadata ◀──────────────────────┴─▶ stock: aiokafka's `getmany`

    transport ──batch, send──▶ Outlet ─┬─▶ fast: own produce queue on aiokafka's connections
                                       └─▶ stock: aiokafka's producer

Both ways take the same settings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka.structs import TopicPartition as KafkaPartition

from schemas.sizes import MAX_BYTES, ROOM_BYTES
from streams.topology import DEAD_LETTER_ROOM

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from aiokafka.client import AIOKafkaClient

    from streams.operators.contract import Batch, Emit, Record

# Polled alone it drains nothing, but lets the group's errors through.
NOWHERE = KafkaPartition("", 0)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How brokers are asked for records.

    Attributes:
        wait_ms: how long a broker may hold a fetch without data.
        quiet_wait_ms: the same for a fetch after one that brought nothing; None = as long as any. Fast path only.
        merge_ms: for how long records are gathered at most, if many come (`merging`); 0 = each travels at once.
        is_ahead: whether the next records are asked for before the next poll. Who pauses between polls would find what
            was there when the pause began. What is known to be there is asked for in any case. Fast path only.
        partition_bytes: per partition and fetch; bounds what one poll can return.
        request_timeout_ms: how long an answer is waited for.
    """

    wait_ms: int = 500
    quiet_wait_ms: int | None = None
    merge_ms: int = 0
    is_ahead: bool = True
    partition_bytes: int = 1 << 20
    request_timeout_ms: int = 10_000

    def for_records(self, record_bytes: int) -> FetchSettings:
        """Return settings by which records of this size come, all partitions in one answer.

        A broker exceeds `partition_bytes` for the first partition of an answer alone. With larger records than that one
        partition would come at a time.
        """
        if record_bytes <= MAX_BYTES:
            return self
        return replace(self, partition_bytes=max(self.partition_bytes, record_bytes + ROOM_BYTES))

    def options(self) -> dict[str, int]:
        """Return them in aiokafka's words."""
        return {
            "fetch_max_wait_ms": self.wait_ms,
            "max_partition_fetch_bytes": self.partition_bytes,
            "request_timeout_ms": self.request_timeout_ms,
            "consumer_timeout_ms": 1000,  # how often aiokafka's fetcher looks around without being told to
        }


class RecordSource(Protocol):
    """Records of the partitions that a started consumer owns."""

    async def start(self) -> None:
        """Begin; the consumer has been started."""
        ...

    def own(self, places: Collection[KafkaPartition]) -> None:
        """These are assigned now; others are forgotten. What is new is not read before `seek` says where to begin."""
        ...

    def seek(self, place: KafkaPartition, offset: int) -> None:
        """Continue a partition from another offset; what was fetched of it is dropped.

        Raises:
            IllegalStateError: it is not assigned any more.
        """
        ...

    async def poll(
        self, places: Collection[KafkaPartition], timeout_ms: int
    ) -> Mapping[KafkaPartition, Sequence[Record | Batch]]:
        """Return all records that have come of these partitions (none = of all), waiting if there are none.

        Raises:
            KafkaError: why the group or a partition cannot be read. Positions may have passed records that are lost
                by that: seek back.
        """
        ...

    def position(self, place: KafkaPartition) -> int | None:
        """Return the offset that is read next, behind what is no record; None = not known yet."""
        ...

    def unread(self) -> Iterator[tuple[KafkaPartition, int | None]]:
        """Yield each owned partition with how many offsets of it are unread; None = the broker has not told."""
        ...

    def stop(self) -> None:
        """Fetch nothing any more; a poll that waits returns."""
        ...


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

    def for_records(self, record_bytes: int) -> ProducerSettings:
        """Return settings with which records of this size are sent, and the dead letters of such records."""
        largest = DEAD_LETTER_ROOM * (record_bytes + ROOM_BYTES)
        return replace(self, record_bytes=max(self.record_bytes, largest))


class Outlet(Protocol):
    """Sends batches to the brokers; replaced as a whole where it does not recover."""

    @property
    def client(self) -> AIOKafkaClient:
        """What knows the brokers and which of them lead what."""
        ...

    @property
    def takes_finished(self) -> bool:
        """Whether `send` takes the bytes of a finished record batch, too."""
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

    def post(self, place: KafkaPartition, batch: Any) -> asyncio.Future[None] | None:
        """Do as `send`, but do not wait; None = only `send` can. It leaves with `depart`, which the caller owes."""
        ...

    def depart(self) -> None:
        """Send what was posted now."""
        ...

    def abandon(self) -> None:
        """Drop unanswered requests: nothing waits for them any more."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
