"""Rows of an unclean election: records that the leader alone had acknowledged go away with it.

the follower is killed         the first partition has two copies here; the third broker keeps the quorum
the leader acknowledges alone  as `min.insync.replicas` is 1 for that time
it is killed                   the follower comes back
UNCLEAN                        the follower leads, with what it had: offsets are given out again
the old leader comes back      and cuts off what nobody else has
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from load.matrix.broken import UNCLEAN, Broken, Seen
from load.matrix.evidence import gauged, values_of
from load.matrix.setting import PARTITIONS
from schemas import topics
from streams import topology
from streams.runtime.kafka.admin import configure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from load.matrix.broken import Place

TOPICS: Final = (topics.QUERIES, topics.OBSERVATIONS)
_ALONE_S: Final = 15.0  # more than what comes at once when there is a leader again
_ANSWER_S: Final = 30.0
_PATIENCE_S: Final = 90.0
_LOOK_S: Final = 0.5
_ENOUGH: Final = "min.insync.replicas"
_SET_BACK: Final = "logs_set_back_total"
_UNSAID: Final = "acknowledged records went away, and no role said so"
_NEITHER: Final = "no acknowledged record went away: it showed nothing"


class _Partition:
    """The first partition of a topic, as the brokers have it."""

    def __init__(self, place: Place, topic: str) -> None:
        self.name = f"{place.prefix}.{topic}"
        self._place, self._admin = place, AdminClient({"bootstrap.servers": place.bootstrap, "log_level": 0})

    def replicas(self) -> tuple[int, list[int], list[int]]:
        """Return who leads, who has it in the order of elections, and who is in sync."""
        found = self._admin.list_topics(self.name, timeout=_ANSWER_S).topics[self.name].partitions[0]
        return found.leader, list(found.replicas), list(found.isrs)

    async def becomes(self, is_so: Callable[[int, list[int]], bool]) -> None:
        """Wait for a leader and those in sync.

        Raises:
            TimeoutError: it does not become so.
        """
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                leader, _, in_sync = await asyncio.to_thread(self.replicas)
                if is_so(leader, in_sync):
                    return
                await asyncio.sleep(_LOOK_S)

    def elect(self) -> None:
        """Let any replica lead that is there."""
        self._admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(self.name, 0)]).result(_ANSWER_S)

    @asynccontextmanager
    async def lenient(self) -> AsyncIterator[None]:
        """Let one copy be enough for the time of a block."""
        before = await asyncio.to_thread(self._enough)
        try:
            await asyncio.to_thread(self._set, "1")
            yield
        finally:
            await asyncio.to_thread(self._set, before)

    def _enough(self) -> str:
        (future,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, self.name)]).values()
        value: str = future.result(_ANSWER_S)[_ENOUGH].value
        return value

    def _set(self, value: str) -> None:
        configure(self._admin, self.name, {_ENOUGH: value})


def paired(bootstrap: str, prefix: str) -> None:
    """Create the topics of the rows with two copies of each partition; those of the first lie on brokers 1 and 2."""
    known, admin = topology.build(()).topics, AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    copies = [[1, 2], *([2, 3] if number % 2 else [3, 1] for number in range(1, PARTITIONS))]
    wanted = [
        NewTopic(f"{prefix}.{name}", PARTITIONS, replica_assignment=copies, config=known[name].config())
        for name in TOPICS
    ]
    for future in admin.create_topics(wanted).values():
        future.result(_ANSWER_S)


@asynccontextmanager
async def _all_up(place: Place) -> AsyncIterator[None]:
    """Start who is still down after a block, whatever became of it."""
    try:
        yield
    finally:
        for node in place.brokers.nodes.values():
            if node.pid is None:
                await asyncio.to_thread(node.start)


async def _elected(place: Place, topic: str) -> Seen:
    """Let a replica lead that lacks what was acknowledged."""
    nodes, partition = place.brokers.nodes, _Partition(place, topic)
    leader, replicas, _ = await asyncio.to_thread(partition.replicas)
    first, (second,) = nodes[f"broker@{leader}"], (nodes[f"broker@{its}"] for its in replicas if its != leader)
    said = await asyncio.to_thread(gauged, place, _SET_BACK)
    async with _all_up(place), partition.lenient():
        await asyncio.to_thread(second.kill)
        await partition.becomes(lambda _, in_sync: in_sync == [leader])
        await asyncio.sleep(_ALONE_S)
        there = await asyncio.to_thread(values_of, place, topic, 0)
        await asyncio.to_thread(first.kill)
        await asyncio.to_thread(second.start)
        await asyncio.to_thread(partition.elect)
        await partition.becomes(lambda its, _: its not in {leader, -1})
        await asyncio.to_thread(first.start)
    await partition.becomes(lambda _, in_sync: len(in_sync) == len(replicas))
    left = await asyncio.to_thread(values_of, place, topic, 0)
    gone = (Counter(there) - Counter(left)).total()
    more = await asyncio.to_thread(gauged, place, _SET_BACK) - said
    wrong = [what for what, is_so in ((_NEITHER, not gone), (_UNSAID, gone and not more)) if is_so]
    return Seen({"acknowledged records that went away": gone, "logs set back, by roles": more}, tuple(wrong))


UNCLEAN_ROWS: Final = tuple(
    Broken(f"{topic} unclean", UNCLEAN, partial(_elected, topic=topic), times=1) for topic in TOPICS
)
