"""Finds records by bytes in them, outside any group: Kafka's own index of time and key says where, bytes say which.

    times ──▶ offsets ──▶ whole record batches ──▶ the bytes are in it? ──▶ its records ──▶ those that have them

A batch that lacks the bytes costs one look through it and no object a record.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokafka.errors import KafkaError

from streams.operators.contract import Batch, Record, Span
from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.kafka.clients import LogReader
from streams.runtime.kafka.connection import LOST
from streams.runtime.kafka.fast.whole_batches import records_of
from streams.runtime.kafka.refusals import translated
from streams.runtime.kafka.transport_ports import FetchSettings
from streams.runtime.ports import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from aiokafka.structs import TopicPartition as KafkaPartition

    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.ports import TopicPartition

    Enough = Callable[[Record], bool]

_log = logging.getLogger(__name__)

# Nobody waits for what is still to come: a fetch at the end of a log would keep the next question waiting.
_SETTINGS: Final = FetchSettings(wait_ms=5, partition_bytes=4 << 20)
_POLL_MS: Final = 1_000
_PATIENCE_S: Final = 10.0  # without any progress
_STOP_S: Final = 1.0
# Offsets of a partition that are read at once, newest first; twice as many each time.
_STEP: Final = 25_000
_MOST_STEP: Final = 1_600_000
_FIRST_MS: Final = slice(27, 35)  # of a batch's bytes: the time of its first record
_NO_TIME_US: Final = 1 << 62


class SearchResult(NamedTuple):
    """What a search has found.

    Attributes:
        records: those with the bytes in value or key, in the order of each partition.
        bytes: that were read.
        oldest_us: the earliest time among what was read; `None` = nothing was.
        is_all: whether all was read that was to be: no bound of bytes, and nothing that was enough, came before.
    """

    records: tuple[Record, ...]
    bytes: int
    oldest_us: int | None
    is_all: bool


class KafkaSearch:
    """Searches partitions of some topics for bytes.

    Args:
        connection: where Kafka is.
        counts: partitions by logical topic.
    """

    def __init__(self, connection: KafkaConnection, counts: Mapping[str, int]) -> None:
        self._connection = connection
        self._places = [(topic, number) for topic, count in counts.items() for number in range(count)]
        real = [connection.kafka_partition(place) for place in self._places]
        self._reader = LogReader(connection, counts, _SETTINGS, real, frozenset(counts))

    async def start(self) -> None:
        """Connect.

        Raises:
            BrokerUnavailableError: no broker answers.
        """
        try:
            await self._reader.start()
        except LOST as fault:
            await self.stop()
            raise translated(fault, f"no broker answers at {self._connection.bootstrap}; ") from fault

    async def stop(self) -> None:
        """Disconnect."""
        await self._reader.stop(_STOP_S)

    async def bounds(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return where logs begin and end.

        Raises:
            BrokerUnavailableError: no broker answers.
        """
        if not places:
            return {}
        real = {self._connection.kafka_partition(place): place for place in places}
        consumer = self._reader.consumer
        try:
            begins, ends = await consumer.beginning_offsets([*real]), await consumer.end_offsets([*real])
        except LOST as fault:
            raise translated(fault, "cannot look up where logs end: ") from fault
        return {place: Bounds(begins[at], ends[at]) for at, place in real.items()}

    async def spans(self, windows: Mapping[TopicPartition, tuple[int, int]]) -> list[Span]:
        """Return which offsets lie between two times (us) of each partition, as its index of times has it.

        Raises:
            BrokerUnavailableError: no broker answers.
        """
        bounds = await self.bounds(windows)
        froms = await self._first({place: since_us for place, (since_us, _) in windows.items()})
        untils = await self._first({place: until_us for place, (_, until_us) in windows.items()})
        return [
            Span(*place, froms.get(place, bound.end), max(untils.get(place, bound.end), froms.get(place, bound.end)))
            for place, bound in bounds.items()
        ]

    async def find(
        self,
        spans: Iterable[Span],
        needles: Sequence[bytes],
        most_bytes: int,
        enough: Enough | None = None,
    ) -> SearchResult:
        """Search offsets for any of some bytes, forward.

        Args:
            spans: of different partitions.
            needles: the bytes.
            most_bytes: no more is read; about.
            enough: tells by a record that is found whether the search may end.

        Raises:
            BrokerUnavailableError: no broker answers.
        """
        hunt = _Hunt(needles)
        left = {self._connection.kafka_partition(span[:2]): span for span in spans if span.begin < span.end}
        self._go_to(left)
        loop = asyncio.get_running_loop()
        until_s, is_enough = loop.time() + _PATIENCE_S, False
        while left and hunt.bytes < most_bytes and not is_enough:
            before = len(hunt.records)
            if await self._poll(left, hunt):
                until_s = loop.time() + _PATIENCE_S
            elif loop.time() > until_s:
                raise BrokerUnavailableError(f"nothing came of {', '.join(sorted({p.topic for p in left}))}")
            is_enough = enough is not None and any(map(enough, hunt.records[before:]))
        return SearchResult(tuple(hunt.records), hunt.bytes, hunt.oldest_us, not left and not is_enough)

    async def find_newest(
        self,
        places: Collection[TopicPartition],
        needles: Sequence[bytes],
        most_bytes: int,
        enough: Callable[[Sequence[Record]], bool],
        told: Callable[[SearchResult], None],
    ) -> SearchResult:
        """Search partitions from their ends back, some offsets of each at a time.

        Args:
            places: the partitions.
            needles: the bytes.
            most_bytes: no more is read; about.
            enough: is called with all records that were found, the newest last, after each part that has any; tells
                whether the search may end.
            told: is called with what was read so far.

        Raises:
            BrokerUnavailableError: no broker answers.
        """
        left = {place: bound for place, bound in (await self.bounds(places)).items() if bound.begin < bound.end}
        found, step, is_enough = SearchResult((), 0, None, is_all=True), _STEP, False
        while left and found.bytes < most_bytes and not is_enough:
            spans = [Span(*place, max(begin, end - step), end) for place, (begin, end) in left.items()]
            found = _joined(await self.find(spans, needles, most_bytes - found.bytes), found)
            told(found)
            is_enough = bool(found.records) and enough(found.records)
            left = {span[:2]: Bounds(left[span[:2]].begin, span.begin) for span in spans}
            left = {place: bound for place, bound in left.items() if bound.begin < bound.end}
            step = min(2 * step, _MOST_STEP)
        return found._replace(is_all=found.is_all and not left)

    async def _first(self, times_us: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offsets that are not older; none where nothing is as late."""
        if not times_us:
            return {}
        real = {self._connection.kafka_partition(place): max(0, us // 1000) for place, us in times_us.items()}
        try:
            found = await self._reader.consumer.offsets_for_times(real)
        except LOST as fault:
            raise translated(fault, "cannot look up which records are of a time: ") from fault
        named = {self._connection.kafka_partition(place): place for place in times_us}
        return {named[place]: at.offset for place, at in found.items() if at is not None}

    def _go_to(self, spans: Mapping[KafkaPartition, Span]) -> None:
        """Read these, and nothing else. What was read before stays whole, too: nobody has stumbled over it."""
        if not self._connection.is_fast:
            self._reader.consumer.assign([*spans])
        self._reader.source.own(frozenset())
        for place, span in spans.items():
            self._reader.source.seek(place, span.begin)

    async def _poll(self, left: dict[KafkaPartition, Span], hunt: _Hunt) -> bool:
        """Search what has come, and let go what is done; returns whether anything came."""
        source = self._reader.source
        try:
            fetched = await source.poll([*left], _POLL_MS)
        except LOST as fault:
            raise translated(fault) from fault
        for place, taken in fetched.items():
            hunt.take(taken, left[place].end)
        done = [place for place, span in left.items() if (source.position(place) or 0) >= span.end]
        for place in done:
            del left[place]
        if done and left:  # what is done would be read on
            self._go_to({place: span._replace(begin=source.position(place) or 0) for place, span in left.items()})
        return bool(fetched or done)


class _Hunt:
    """Looks through what was fetched."""

    def __init__(self, needles: Sequence[bytes]) -> None:
        self._needles = needles
        self.records: list[Record] = []
        self.bytes = 0
        self.oldest_us: int | None = None

    def take(self, taken: Sequence[Record | Batch], end: int) -> None:
        """Look through batches and records of one partition, up to an offset."""
        for one in taken:
            if isinstance(one, Batch):
                self._see(int.from_bytes(one.data[_FIRST_MS], "big") * 1000, len(one.data))
                if any(needle in one.data for needle in self._needles):
                    self._keep(_records_of(one), end)
            else:
                self._see(one.timestamp_us, len(one.value or b""))
                self._keep((one,), end)

    def _see(self, time_us: int, size: int) -> None:
        self.bytes += size
        self.oldest_us = min(time_us, _NO_TIME_US if self.oldest_us is None else self.oldest_us)

    def _keep(self, records: Iterable[Record], end: int) -> None:
        self.records += [one for one in records if one.offset < end and self._is_wanted(one)]

    def _is_wanted(self, record: Record) -> bool:
        return any(needle in (record.value or b"") or needle in (record.key or b"") for needle in self._needles)


def _records_of(batch: Batch) -> Sequence[Record]:
    try:
        return records_of(batch)
    except (KafkaError, ValueError) as fault:
        _log.warning("left out offsets %d to %d of %s-%d: %s", batch.offset, batch.end - 1, *batch[:2], fault)
        return ()


def _joined(older: SearchResult, newer: SearchResult) -> SearchResult:
    times = [one.oldest_us for one in (older, newer) if one.oldest_us is not None]
    return SearchResult(
        older.records + newer.records, older.bytes + newer.bytes, min(times, default=None), older.is_all & newer.is_all
    )
