"""Asks a broker whether it is there, and creates topics on it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from deploy.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 30.0
# librdkafka prints connection failures to stderr unless a logger takes them; callers get an exception instead.
_SILENT = logging.getLogger("skysail.local.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def admin_client(bootstrap: str) -> AdminClient:
    """Return an admin client that prints nothing by itself."""
    return AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000}, logger=_SILENT)


def answers(bootstrap: str, timeout_s: float = 2.0) -> bool:
    """Tell whether a broker answers a metadata request in time."""
    try:
        return bool(admin_client(bootstrap).list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


def create_topics(bootstrap: str, partitions: Mapping[str, int]) -> None:
    """Create topics of one replica, `{name: partitions}`; those that exist are left as they are.

    Raises:
        StartError: The broker refused one, or did not answer in time.
    """
    if not partitions:
        return
    topics = [NewTopic(name, num_partitions=count, replication_factor=1) for name, count in partitions.items()]
    client = admin_client(bootstrap)
    for name, future in client.create_topics(topics, operation_timeout=_TIMEOUT_S).items():
        try:
            future.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise StartError(f"Topic {name} could not be created on {bootstrap}: {error.args[0].str()}") from error
