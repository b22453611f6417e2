"""Partitions that were added to some topics of a group: who reads what, and what is told of the rest."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataResponse_v1

from streams.runtime.kafka.served import LOOK_US, Unserved, served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka.structs import TopicPartition

PARTITIONS = 4


def cluster(counts: Mapping[str, int]) -> ClusterMetadata:
    """Return aiokafka's view of a broker that leads all partitions."""
    listed = [
        (0, topic, False, [(0, number, 1, [1], [1]) for number in range(count)]) for topic, count in counts.items()
    ]
    found = ClusterMetadata()
    found.update_metadata(MetadataResponse_v1([(1, "127.0.0.1", 9092, None)], 1, listed))
    return found


def shares(counts: Mapping[str, int], members: int) -> list[dict[str, list[int]]]:
    """Return what each member of a group of so many gets of these topics."""
    assignor = served(PARTITIONS)
    joined = {f"m{number}": assignor.metadata([*counts]) for number in range(members)}
    assigned = assignor.assign(cluster(counts), joined)
    return [dict(assigned[name].assignment) for name in sorted(joined)]


@pytest.mark.parametrize("members", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "counts",
    [
        {"queries": 6, "replies": 4},
        {"queries": 4, "replies": 9},
        {"queries": 6, "replies": 6},
        {"queries": 4, "replies": 4},
        {"queries": 7, "replies": 5, "third": 4},
    ],
)
def test_every_partition_of_the_deployment_has_one_reader_of_all_its_topics(
    counts: dict[str, int], members: int
) -> None:
    """Whatever was added to which topic, the members share the first ones, and each has the same of every topic."""
    found = shares(counts, members)

    for its in found:
        assert len({tuple(numbers) for numbers in its.values()}) == 1
    assert sorted(number for its in found for number in its["queries"]) == list(range(PARTITIONS))


def test_while_a_topic_is_being_made_again_nobody_reads_the_others_without_it() -> None:
    """Its records would wait for what nobody brings."""
    assert shares({"queries": 0, "replies": 4}, 1) == [{"queries": [], "replies": []}]


def test_where_nothing_was_added_partitions_are_spread_as_by_range() -> None:
    """Members of another release in the same group give and get the same."""
    counts = {"queries": 4, "replies": 4}
    joined = {f"m{number}": RangePartitionAssignor.metadata([*counts]) for number in range(3)}
    expected = RangePartitionAssignor.assign(cluster(counts), dict(joined))

    assert served(PARTITIONS).name == RangePartitionAssignor.name
    assert served(PARTITIONS).assign(cluster(counts), joined) == expected


class Consumer:
    """A consumer that knows topics and where their logs begin and end."""

    def __init__(self, counts: dict[str, int], ends: dict[tuple[str, int], int]) -> None:
        self.counts = counts
        self.ends = ends
        self.begin = 0
        self.fault: Exception | None = None

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        return set(range(self.counts[topic]))

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the same of each."""
        if self.fault is not None:
            raise self.fault
        return dict.fromkeys(places, self.begin)

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where each log ends."""
        return {place: self.ends.get((place.topic, place.partition), self.begin) for place in places}


async def looked(unserved: Unserved, consumer: Consumer, now_us: int) -> dict[str, int]:
    """Look, and return what is known once that is over."""
    unserved.look(consumer, now_us)
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "unserved partitions"))
    return unserved.records


async def test_records_in_partitions_that_nobody_reads_are_counted_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What lies in those that are served is not counted; it is looked again only after a while."""
    consumer = Consumer({"x.queries": 6, "x.replies": 4}, {("x.queries", 0): 99, ("x.queries", 4): 8})
    consumer.begin = 5
    unserved = Unserved("selection", {"x.queries": "queries", "x.replies": "replies"}, PARTITIONS)

    with caplog.at_level(logging.WARNING):
        assert await looked(unserved, consumer, 1) == {"queries": 3}
        consumer.ends["x.queries", 5] = 6
        assert await looked(unserved, consumer, LOOK_US) == {"queries": 3}, "it is not time yet"
        assert await looked(unserved, consumer, 1 + LOOK_US) == {"queries": 4}
        assert await looked(unserved, consumer, 1 + 2 * LOOK_US) == {"queries": 4}
    assert [record.getMessage().partition("queries (")[2][:7] for record in caplog.records] == ["3 recor", "4 recor"]
    assert "skysail topics check" in caplog.text


async def test_a_broker_that_does_not_answer_leaves_what_was_known() -> None:
    """The next look finds out."""
    consumer = Consumer({"queries": 5}, {("queries", 4): 2})
    unserved = Unserved("selection", {"queries": "queries"}, PARTITIONS)
    assert await looked(unserved, consumer, 1) == {"queries": 2}
    consumer.fault = KafkaError("away")
    assert await looked(unserved, consumer, 1 + LOOK_US) == {"queries": 2}


async def test_nothing_is_told_where_nothing_was_added() -> None:
    """Nor is a broker asked."""
    consumer = Consumer({"queries": 4, "replies": 4}, {("queries", 0): 99})
    consumer.fault = AssertionError("asked")
    unserved = Unserved("selection", {"queries": "queries", "replies": "replies"}, PARTITIONS)
    assert await looked(unserved, consumer, 1) == {}
