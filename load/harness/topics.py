"""Creates the topics of a scenario and deletes them afterwards."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from streams.runtime.kafka.admin import configure, create

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIMEOUT_S = 120.0  # a broker that is stressed answers late


def new_prefix(scenario: str) -> str:
    """Return a topic prefix that nothing has used before."""
    return f"load-{scenario}-{uuid.uuid4().hex[:8]}"


def delete(bootstrap: str, prefix: str) -> None:
    """Delete all topics and consumer groups of a prefix; what cannot be deleted stays."""
    admin = _admin(bootstrap)
    names = [name for name in admin.list_topics(timeout=_TIMEOUT_S).topics if name.startswith(f"{prefix}.")]
    for future in admin.delete_topics(names).values() if names else ():
        future.exception(_TIMEOUT_S)
    listed = admin.list_consumer_groups().result(_TIMEOUT_S).valid
    groups = [group.group_id for group in listed if group.group_id.startswith(f"{prefix}.")]
    for future in admin.delete_consumer_groups(groups).values() if groups else ():
        future.exception(_TIMEOUT_S)


def owners(bootstrap: str, prefix: str) -> int:
    """Return how many members of a prefix's consumer groups own partitions."""
    admin = _admin(bootstrap)
    groups = [group.group_id for group in admin.list_consumer_groups().result(_TIMEOUT_S).valid]
    mine = [group for group in groups if group.startswith(f"{prefix}.")]
    described = admin.describe_consumer_groups(mine).values() if mine else ()
    members = [member for future in described for member in future.result(_TIMEOUT_S).members]
    return sum(bool(member.assignment and member.assignment.topic_partitions) for member in members)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})  # at 6 it tells when it is closed


@contextmanager
def temporary(bootstrap: str, prefix: str, partitions: Mapping[str, int]) -> Iterator[None]:
    """Create topics, by name without the prefix, for the time of a block."""
    create(_admin(bootstrap), {f"{prefix}.{name}": count for name, count in partitions.items()})
    try:
        yield
    finally:
        delete(bootstrap, prefix)


def kept(bootstrap: str, prefix: str, partitions: Mapping[str, int], replication: int) -> None:
    """Create topics, by name without the prefix, that go with their brokers."""
    create(_admin(bootstrap), {f"{prefix}.{name}": count for name, count in partitions.items()}, replication)


def stamp_on_append(bootstrap: str, topic: str) -> None:
    """Let the broker stamp a topic's records when it appends them, regardless of the senders' times."""
    configure(_admin(bootstrap), topic, {"message.timestamp.type": "LogAppendTime"})
