"""A partition assignor that follows a plan, on aiokafka's public interface of assignors.

Each member says its instance's name when it joins. The leader, which Kafka chooses, gives each member what the last
plan that it has read names for it (`streams.planning.spread`). All members must use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from streams.planning.spread import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiokafka.cluster import ClusterMetadata

    from schemas.records import Plan

_VERSION = 0


def planned(instance: str, prefix: str, plan: Callable[[], Plan | None]) -> type[AbstractPartitionAssignor]:
    """Return an assignor for one consumer; aiokafka takes the class and makes no object of it.

    Args:
        instance: of the host, unique in the deployment.
        prefix: before the names of topics in Kafka, with its dot.
        plan: returns the last plan of the pool; None = there is none, and partitions are spread evenly.
    """

    class Planned(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
        """Gives members what the plan says."""

        name: ClassVar[str] = "skysail-plan"

        @classmethod
        def assign(
            cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
        ) -> dict[str, ConsumerProtocolMemberAssignment]:
            """Return the partitions of each member."""
            wanted = {topic for its in members.values() for topic in its.subscription}
            partitions = {
                topic.removeprefix(prefix): sorted(cluster.partitions_for_topic(topic) or ()) for topic in wanted
            }
            names = {member: its.user_data.decode("utf-8", "replace") for member, its in members.items()}
            found = spread(partitions, names, plan())
            return {
                member: ConsumerProtocolMemberAssignment(
                    _VERSION, [(f"{prefix}{topic}", numbers) for topic, numbers in sorted(its.items())], b""
                )
                for member, its in found.items()
            }

        @classmethod
        def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
            """Return what this member says when it joins."""
            return ConsumerProtocolMemberMetadata(_VERSION, list(topics), instance.encode())

        @classmethod
        def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
            """Keep nothing."""

    return Planned
