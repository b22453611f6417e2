"""What role `mapping` looks up before its kernel is told of an application: partitions of the topics that it writes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application
from streams.mapping.errors import MappingError
from streams.mapping.spec import TopicMapping

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Record

_log = logging.getLogger(__name__)


def counting(
    codec: Codec,
    partitions: Callable[[Iterable[str]], Awaitable[dict[str, int]]],
    counts: dict[str, int],
    ready: asyncio.Event | None = None,
) -> Callable[[Sequence[Record]], Awaitable[None]]:
    """Return what is awaited before applications are given to the kernel.

    Args:
        codec: of the deployment.
        partitions: returns how many partitions topics have that are there.
        counts: gets those of the topics that applications write.
        ready: set once queries are taken; before that the kernel hears of no application, and so reads nothing.
    """

    async def prepare(records: Sequence[Record]) -> None:
        if ready is not None:
            await ready.wait()
        written = {
            topic for record in records if record.topic == topics.APPLICATIONS for topic in _written(record, codec)
        }
        found = await partitions(map(topics.outside, written)) if written else {}
        counts.update({name.removeprefix(topics.OUTSIDE): count for name, count in found.items()})
        for topic in sorted(written - counts.keys()):
            _log.error("topic %s, to which predictions are to go, is not there: they wait until it is created", topic)

    return prepare


def _written(record: Record, codec: Codec) -> list[str]:
    """Return the topics that an application writes; what cannot be read the kernel tells of."""
    try:
        if record.value is None or not (given := codec.decode(Application, record.value).mapping):
            return []
        outgoing = TopicMapping.parse(given).outgoing
    except (DecodeError, MappingError):
        return []
    return [] if outgoing is None else [outgoing.form.topic]
