"""Asks a broker whether it is there, and creates topics on it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.runtime.kafka.admin import create

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        StreamError: The broker refused one, or did not answer in time.
    """
    create(admin_client(bootstrap), partitions)
