"""Which partitions a group reads: of all its topics the same ones, and none beyond those of the deployment.

Anybody can add partitions to a topic, and Kafka takes none away. Records meet by the number of their partition, so the
members share those numbers that all their topics have, up to the deployment's `partitions`. What others write to
partitions beyond is not read: it is counted, and told.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.structs import TopicPartition as KafkaPartition

from streams.runtime.kafka.connection import LOST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiokafka import AIOKafkaConsumer
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

_log = logging.getLogger(__name__)

LOOK_US = 10_000_000  # as often as new partitions are noticed


def in_common(counts: Iterable[int], partitions: int) -> int:
    """Return how many partitions are served, the first ones, where topics have so many each."""
    return min((partitions, *counts))


def served(partitions: int) -> type[RangePartitionAssignor]:
    """Return an assignor for one consumer that spreads the first `partitions` of each topic at most.

    It keeps Kafka's name for spreading by range, so members of another release can be in the same group.
    """

    class Served(RangePartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
        """Gives members the same numbers of every topic."""

        @classmethod
        def assign(
            cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
        ) -> dict[str, ConsumerProtocolMemberAssignment]:
            """Return the partitions of each member."""
            topics = {topic for its in members.values() for topic in its.subscription}
            counts = (len(cluster.partitions_for_topic(topic) or ()) for topic in topics)
            found: dict[str, ConsumerProtocolMemberAssignment] = super().assign(
                _First(in_common(counts, partitions)), members
            )
            return found

    return Served


class _First:
    """Metadata by which every topic has so many partitions."""

    def __init__(self, count: int) -> None:
        self._count = count

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return their numbers."""
        return set(range(self._count))


class Unserved:
    """Looks from time to time which partitions of a group's topics nobody reads, and what waits there.

    Args:
        role: for the log.
        names: logical topics by real ones.
        partitions: of the deployment.
    """

    def __init__(self, role: str, names: Mapping[str, str], partitions: int) -> None:
        self._role = role
        self._names = names
        self._partitions = partitions
        self._look_us = 0
        self._looking: asyncio.Task[None] | None = None
        self._told: tuple[int, ...] = ()
        self.records: dict[str, int] = {}  # by topic; 0 = it has such partitions, and they are empty

    def look(self, consumer: AIOKafkaConsumer, now_us: int) -> None:
        """Look again, beside what the consumer does, if it is time."""
        if now_us < self._look_us or (self._looking is not None and not self._looking.done()):
            return
        self._look_us = now_us + LOOK_US
        counts = {topic: len(consumer.partitions_for_topic(topic) or ()) for topic in self._names}
        first = in_common(counts.values(), self._partitions)
        beyond = [KafkaPartition(topic, n) for topic, count in counts.items() for n in range(first, count)]
        if not beyond:
            self.records, self._told = {}, ()
        elif first:  # else a topic is gone: that is told elsewhere
            self._looking = asyncio.create_task(self._count(consumer, beyond, first), name="unserved partitions")

    def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()

    async def _count(self, consumer: AIOKafkaConsumer, beyond: list[KafkaPartition], first: int) -> None:
        try:
            begins, ends = await consumer.beginning_offsets(beyond), await consumer.end_offsets(beyond)
        except LOST as fault:
            _log.debug("what waits in %s is not known yet: %r", beyond, fault)
            return
        found = dict.fromkeys((self._names[place.topic] for place in beyond), 0)
        for place in beyond:
            found[self._names[place.topic]] += ends[place] - begins[place]
        self.records = found
        self._tell(found, first)

    def _tell(self, found: Mapping[str, int], first: int) -> None:
        """Log what has changed."""
        if self._told == (now := (first, *found.values())):
            return
        self._told = now
        listed = ", ".join(f"{topic} ({count} records wait there)" for topic, count in found.items())
        _log.warning(
            "%s reads the first %d partitions of its topics alone, since more were added to %s; what to do: skysail"
            " topics check",
            self._role,
            first,
            listed,
        )
