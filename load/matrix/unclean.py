"""Rows of an unclean election: records that the leader alone had acknowledged go away with it.

    both followers fall behind     one is down, the other is back from that, but throttled: it is out of sync
    the leader acknowledges alone  as `min.insync.replicas` is 1 for that time
    it is killed                   the one that was down comes back
    UNCLEAN                        that one leads, with what it had: offsets are given out again
    all go on                      the old leader cuts off what nobody else has

All brokers vote, so two of three have to run at any time.
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
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from load.matrix.broken import UNCLEAN, Broken, Seen
from load.matrix.evidence import gauged, values_of
from schemas import topics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from load.matrix.broken import Place

_ALONE_S: Final = 15.0  # more than what comes at once when there is a leader again
_ANSWER_S: Final = 30.0
_PATIENCE_S: Final = 90.0
_LOOK_S: Final = 0.5
_SET_BACK: Final = "logs_set_back_total"
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
    async def lenient(self, held_back: int) -> AsyncIterator[None]:
        """Let one replica be enough, and another one be held back while it is not in sync, for the time of a block."""
        topic = ConfigResource(ResourceType.TOPIC, self.name), "follower.replication.throttled.replicas"
        broker = ConfigResource(ResourceType.BROKER, str(held_back)), "follower.replication.throttled.rate"
        enough = ConfigResource(ResourceType.TOPIC, self.name), "min.insync.replicas"
        wanted = {topic: f"0:{held_back}", broker: "1", enough: "1"}
        before = await asyncio.to_thread(self._explicit, enough)
        try:
            await asyncio.to_thread(self._set, wanted)
            yield
        finally:
            await asyncio.to_thread(self._set, {topic: None, broker: None, enough: before})

    def _explicit(self, wanted: tuple[ConfigResource, str]) -> str:
        resource, name = wanted
        (future,) = self._admin.describe_configs([resource]).values()
        value: str = future.result(_ANSWER_S)[name].value
        return value

    def _set(self, values: Mapping[tuple[ConfigResource, str], str | None]) -> None:
        for (resource, name), value in values.items():
            how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            asked = ConfigResource(resource.restype, resource.name)
            asked.add_incremental_config(ConfigEntry(name, value, incremental_operation=how))
            for future in self._admin.incremental_alter_configs([asked]).values():
                future.result(_ANSWER_S)


async def _elected(place: Place, topic: str) -> Seen:
    """Let a replica lead that lacks what was acknowledged."""
    nodes, partition = place.brokers.nodes, _Partition(place, topic)
    leader, replicas, _ = await asyncio.to_thread(partition.replicas)
    down, held_back = (number for number in replicas if number != leader)
    said = await asyncio.to_thread(gauged, place, _SET_BACK)
    async with partition.lenient(held_back):
        await asyncio.to_thread(nodes[f"broker@{held_back}"].kill)
        await partition.becomes(lambda _, in_sync: held_back not in in_sync)
        await asyncio.to_thread(nodes[f"broker@{held_back}"].start)
        await asyncio.to_thread(nodes[f"broker@{down}"].kill)
        await partition.becomes(lambda _, in_sync: in_sync == [leader])
        await asyncio.sleep(_ALONE_S)
        there = await asyncio.to_thread(values_of, place, topic, 0)
        await asyncio.to_thread(nodes[f"broker@{leader}"].kill)
        await asyncio.to_thread(nodes[f"broker@{down}"].start)
        await asyncio.to_thread(partition.elect)
        await partition.becomes(lambda its, _: its not in {leader, -1})
        await asyncio.to_thread(nodes[f"broker@{leader}"].start)
    await partition.becomes(lambda _, in_sync: len(in_sync) == len(replicas))
    left = await asyncio.to_thread(values_of, place, topic, 0)
    gone = (Counter(there) - Counter(left)).total()
    more = await asyncio.to_thread(gauged, place, _SET_BACK) - said
    return Seen(
        {"acknowledged records that went away": gone, "logs set back, by roles": more}, () if gone else (_NEITHER,)
    )


UNCLEAN_ROWS: Final = tuple(
    Broken(f"{topic} unclean", UNCLEAN, partial(_elected, topic=topic), times=1)
    for topic in (topics.QUERIES, topics.OBSERVATIONS)
)
