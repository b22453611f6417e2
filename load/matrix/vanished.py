"""Rows of topics: made anew, emptied, cut off, grown. Records go away: that is said, and nothing is learnt twice."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    NewPartitions,
)

from load.matrix.broken import VANISHED, Broken, still
from load.matrix.services import BROKERS
from schemas import topics
from streams import topology
from streams.runtime.kafka.admin import create

if TYPE_CHECKING:
    from pathlib import Path

    from load.matrix.broken import Place

_ANSWER_S: Final = 30.0
_BACKLOG_S: Final = 3.0
_KEPT: Final = 0.5  # of a log that is cut off
_ASKED: Final = topics.model_queries("right")


def _admin(place: Place) -> AdminClient:
    return AdminClient({"bootstrap.servers": place.bootstrap, "log_level": 0})


async def _made_anew(place: Place, topic: str) -> None:
    """A topic is deleted while it is read and written, and created again a moment later."""
    admin, name = _admin(place), f"{place.prefix}.{topic}"
    partitions = len(admin.list_topics(name, timeout=_ANSWER_S).topics[name].partitions)
    for future in admin.delete_topics([name]).values():
        await asyncio.to_thread(future.result, _ANSWER_S)
    await asyncio.sleep(1)
    config = topology.build(place.models).topics[topic].config()
    await asyncio.to_thread(create, admin, {name: partitions}, BROKERS, {name: config})


async def _emptied(place: Place, topic: str, role: str) -> None:
    """Retention takes what a role, that stands still, has not read."""
    async with still(place.system.pids[place.process(role)]):
        await asyncio.sleep(_BACKLOG_S)
        admin, name = _admin(place), f"{place.prefix}.{topic}"
        numbers = admin.list_topics(name, timeout=_ANSWER_S).topics[name].partitions
        for future in admin.delete_records([TopicPartition(name, number, -1) for number in numbers]).values():
            await asyncio.to_thread(future.result, _ANSWER_S)


async def _cut_off(place: Place, topic: str) -> None:
    """All brokers lose the newest records of a partition, as after an unclean election: offsets are given out again."""
    nodes = place.brokers.nodes.values()
    await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
    for folder in place.brokers.logs:
        await asyncio.to_thread(_shorten, folder / f"{place.prefix}.{topic}-0")
    await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))


def _shorten(folder: Path) -> None:
    """Cut the segments of a partition; what is no whole batch any more, its broker removes when it starts."""
    for log in folder.glob("*.log"):
        size = log.stat().st_size
        with log.open("r+b") as file:
            file.truncate(int(size * _KEPT))


async def _grown(place: Place, topic: str) -> None:
    """Somebody adds partitions to a topic."""
    admin, name = _admin(place), f"{place.prefix}.{topic}"  # kept while it works
    for future in admin.create_partitions([NewPartitions(name, 6)]).values():
        await asyncio.to_thread(future.result, _ANSWER_S)


TOPIC_ROWS: Final = (
    *(
        Broken(f"{topic} made anew", VANISHED, partial(_made_anew, topic=topic), times=1)
        for topic in (
            _ASKED,
            topics.MODEL_PREDICTIONS,
            topics.QUERIES,
            topics.PREDICTIONS,
            topics.FEEDBACK,
            topics.OBSERVATIONS,
        )
    ),
    Broken("queries emptied", VANISHED, partial(_emptied, topic=topics.QUERIES, role="selection"), times=1),
    Broken("a model's queries emptied", VANISHED, partial(_emptied, topic=_ASKED, role="worker"), times=1),
    Broken("feedback emptied", VANISHED, partial(_emptied, topic=topics.FEEDBACK, role="joiner"), times=1),
    *(
        Broken(f"{topic} cut off", VANISHED, partial(_cut_off, topic=topic), times=1)
        for topic in (topics.QUERIES, topics.OBSERVATIONS)
    ),
    # Last: roles read the partitions that there were when they began, and clients ask in all of them, once they know.
    Broken("a model's topic grown", VANISHED, partial(_grown, topic=_ASKED), times=1),
    Broken("queries grown", VANISHED, partial(_grown, topic=topics.QUERIES), times=1),
)
