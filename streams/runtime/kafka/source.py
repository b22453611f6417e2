"""Where a consumer's records come from: the seam between what a reader decides and how its records are fetched.

consumer, broadcast, tail ... ──own, seek, poll──▶ Source ─┬─▶ fast: own fetches on aiokafka's connections
aiokafka: groups, offsets, metadata ◀──────────────────────┴─▶ stock: aiokafka's `getmany`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from aiokafka.structs import TopicPartition as KafkaPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from streams.operators.contract import Record

# Polled alone it drains nothing, but lets the group's errors through.
NOWHERE = KafkaPartition("", 0)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How brokers are asked for records.

    Attributes:
        wait_ms: how long a broker may hold a fetch without data.
        quiet_wait_ms: the same for a fetch after one that brought nothing; None = as long as any. Fast path only.
        partition_bytes: per partition and fetch; bounds what one poll can return.
        request_timeout_ms: how long an answer is waited for.
    """

    wait_ms: int = 500
    quiet_wait_ms: int | None = None
    partition_bytes: int = 1 << 20
    request_timeout_ms: int = 10_000

    def options(self) -> dict[str, int]:
        """Return them in aiokafka's words."""
        return {
            "fetch_max_wait_ms": self.wait_ms,
            "max_partition_fetch_bytes": self.partition_bytes,
            "request_timeout_ms": self.request_timeout_ms,
            "consumer_timeout_ms": 1000,  # how often aiokafka's fetcher looks around without being told to
        }


class Source(Protocol):
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

    async def poll(self, places: Collection[KafkaPartition], timeout_ms: int) -> Mapping[KafkaPartition, list[Record]]:
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
