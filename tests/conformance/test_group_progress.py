"""How far a group is, is told also while its coordinator moves: librdkafka's admin clients end the process then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.local.admin import admin_client
from deploy.local.embedded import EmbeddedBroker
from streams.runtime.kafka.admin import committed, member, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFSETS, NOT_COORDINATOR = 9, 16


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Start a broker with a topic, of which a group has committed three."""
    with EmbeddedBroker() as started:
        started.create_topics({"p.in": 1})
        options = {"bootstrap.servers": started.bootstrap, "log_level": "0"}
        consumer = Consumer({**options, "group.id": "p.group"})
        consumer.commit(offsets=[TopicPartition("p.in", 0, 3)], asynchronous=False)
        consumer.close()
        yield started


@pytest.mark.parametrize("times", [1, 5])
def test_a_group_whose_coordinator_moves_is_asked_again(broker: EmbeddedBroker, times: int) -> None:
    """The first answers are that another broker knows."""
    options = {"bootstrap.servers": broker.bootstrap, "log_level": "0"}
    broker.cluster.push_request_errors(OFFSETS, [NOT_COORDINATOR] * times)
    consumer = member(options, "p.group")
    assert committed(consumer, [TopicPartition("p.in", 0)]) == {("p.in", 0): 3}
    consumer.close()


def test_progress_is_what_a_group_has_committed(broker: EmbeddedBroker) -> None:
    """Beside where the log ends; also while its coordinator moves."""
    options = {"bootstrap.servers": broker.bootstrap, "log_level": "0"}
    broker.cluster.push_request_errors(OFFSETS, [NOT_COORDINATOR])
    assert progress(admin_client(broker.bootstrap), options, "p.group", {"p.in": 1}) == {("p.in", 0): (3, 0)}
