"""What was learnt, against the fold of its log: Redis is read in one step, the log up to where Redis says it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from schemas import topics
from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.records import Observations, PolicyState
from streams.operators.ids import SeenIds
from streams.operators.join.kernel import JoinerSettings
from streams.operators.learn.fold import taught
from streams.runtime.stores.redis import OFFSET_FIELD, unstamped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from load.hostile.arena import Arena

_CODEC = Codec()
_ANSWER_S = 30.0


@dataclass(slots=True)
class _Fold:
    """One partition of `observations`, folded so far."""

    offset: int = 0
    seen: SeenIds = field(default_factory=lambda: SeenIds(JoinerSettings().memory_us))
    states: dict[str, PolicyState] = field(default_factory=dict)


class Learnt:
    """Folds the log of a deployment as it grows, beside its learner."""

    def __init__(self, arena: Arena, partitions: int) -> None:
        self._arena = arena
        self._folds = {number: _Fold() for number in range(partitions)}
        self._consumer = arena.consumer()

    async def faults(self) -> list[str]:
        """Return a sentence for each stored state that is not the fold of its log up to the stored offset."""
        found = []
        for partition, its in self._folds.items():
            offset, stored = await self._stored(partition)
            self._advance(partition, its, offset)
            found += [f"partition {partition}: {text}" for text in _differences(its.states, stored)]
        return found

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    async def _stored(self, partition: int) -> tuple[int, Mapping[str, bytes]]:
        async with self._arena.redis() as client:
            found: dict[Any, Any] = await client.hgetall(f"{{{self._arena.prefix}:{partition}}}:states")
        offset = found.pop(OFFSET_FIELD.encode(), b"").partition(b":")[0]
        return int(offset or 0), {name.decode(): unstamped(value) for name, value in found.items()}

    def _advance(self, partition: int, its: _Fold, until: int) -> None:
        """Fold the log up to an offset."""
        if its.offset >= until:
            return
        self._consumer.assign([TopicPartition(self._arena.full(topics.OBSERVATIONS), partition, its.offset)])
        while its.offset < until:
            messages = self._consumer.consume(min(1000, until - its.offset), _ANSWER_S)
            if not messages:
                raise TimeoutError(f"observations-{partition} holds nothing at {its.offset}, stored is {until}")
            for message in messages:
                its.offset = message.offset() or 0
                for seen in _CODEC.decode(Observations, message.value()).items:
                    if its.seen.add(seen.query_id, message.timestamp()[1] * 1000):
                        its.states.update(taught(its.states, seen))
                its.offset += 1


def _differences(folded: Mapping[str, PolicyState], stored: Mapping[str, bytes]) -> Iterator[str]:
    for name in sorted(folded.keys() | stored.keys()):
        if name not in stored:
            yield f"{name!r} is not stored"
        elif name not in folded:
            yield f"{name!r} is stored, and nothing taught it"
        elif _CODEC.encode(folded[name]) != stored[name]:
            yield f"{name!r} is stored after {_lessons(stored[name])} lessons, folded after {folded[name].version}"


def _lessons(stored: bytes) -> str:
    try:
        return str(_CODEC.decode(PolicyState, stored).version)
    except DecodeError as error:
        return f"an unknown number of ({error})"
