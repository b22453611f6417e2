"""Creates the topology's topics on a broker and compares what is there with what should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from deploy.clients import TIMEOUT_S, admin
from deploy.errors import DeployError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.settings import Settings
    from streams.topology import Topology

CREATE_S = 30.0


def partition_counts(settings: Settings) -> dict[str, int]:
    """Return the partition counts of this deployment's topics on the broker, by logical name.

    Raises:
        Unreachable: no broker answers.
    """
    start = f"{settings.prefix}."
    found = admin(settings).list_topics(timeout=TIMEOUT_S).topics
    return {name.removeprefix(start): len(topic.partitions) for name, topic in found.items() if name.startswith(start)}


def create(settings: Settings, topology: Topology) -> list[str]:
    """Create the topics that are missing, with the topology's configuration; returns their logical names.

    Raises:
        Unreachable: no broker answers.
        DeployError: the broker refused one.
    """
    there = partition_counts(settings)
    missing = [topic for name, topic in topology.topics.items() if name not in there]
    wanted = [
        NewTopic(f"{settings.prefix}.{t.name}", t.partitions, settings.replication, config=t.config()) for t in missing
    ]
    _await_created(settings, wanted)
    return [topic.name for topic in missing]


def _await_created(settings: Settings, wanted: Iterable[NewTopic]) -> None:
    topics = list(wanted)
    if not topics:
        return
    client = admin(settings)  # has to outlive the futures
    for name, future in client.create_topics(topics, operation_timeout=CREATE_S).items():
        try:
            future.result(CREATE_S)
        except KafkaException as error:
            # Another process may be creating the same topics at the same time.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                message = f"the broker did not create topic {name}: {error.args[0].str()}; check rights and replication"
                raise DeployError(message) from error
