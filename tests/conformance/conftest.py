"""Where the lists for ports run: in memory, and on a broker over both ways to use aiokafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.local.embedded import EmbeddedBroker
from streams.runtime.kafka.connection import KafkaConnection
from tests.ports import Memory, OnEmbedded, OnKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ports import Place

WAYS = ("stock", "fast")


def _on_kafka(request: pytest.FixtureRequest, prefix: str) -> OnKafka:
    bootstrap = request.getfixturevalue("kafka").bootstrap
    return OnKafka(request.param, KafkaConnection(bootstrap, prefix, fast=request.param == "fast"))


@pytest.fixture(params=["memory", *WAYS])
def place(request: pytest.FixtureRequest, prefix: str) -> Place:
    """Return every implementation in turn."""
    return Memory() if request.param == "memory" else _on_kafka(request, prefix)


@pytest.fixture(params=WAYS)
def kafka_place(request: pytest.FixtureRequest, prefix: str) -> OnKafka:
    """Return those on Kafka in turn: what the test is about does not exist in memory."""
    return _on_kafka(request, prefix)


@pytest.fixture(params=["fast"])
def fast_place(request: pytest.FixtureRequest, prefix: str) -> OnKafka:
    """Return the one that sends and fetches record batches as they are."""
    return _on_kafka(request, prefix)


@pytest.fixture(params=["memory", *WAYS])
def away_place(request: pytest.FixtureRequest, prefix: str) -> Iterator[Memory | OnEmbedded]:
    """Return every implementation in turn, on a broker that can go away."""
    if request.param == "memory":
        yield Memory()
        return
    with EmbeddedBroker() as broker:
        connection = KafkaConnection(broker.bootstrap, prefix, fast=request.param == "fast")
        yield OnEmbedded(request.param, connection, embedded=broker)
