"""Reads a sample of what is asked and answered, once a minute, for the watch over drift.

    ends of queries, predictions ──▶ Sensing.tick ──▶ DriftWatch ──▶ alerts, `drift_evidence`

No more than the last records of a topic are read, however many there are, and none of them twice. So it costs the same
at any rate. What it misses it does not need.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Prediction, Query
from streams.control.carry.fairly import fairly
from streams.control.drift.watch import MINUTE_US, DriftWatch
from streams.runtime.errors import StreamError

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from schemas.codec import Codec
    from streams.control.carry.packaged import PackagedRows
    from streams.operators.contract import Record
    from streams.runtime.ports import RecentRecords

_log = logging.getLogger(__name__)

# Of each topic, in a minute: 100 ms of decoding.
ROUND: Final = 600
FEWEST: Final = 20
ROUND_BYTES: Final = 16 << 20  # rounds of larger records become shorter
KEEP_EVERY: Final = 10  # minutes
_KEY: Final = "drift "


class Sensing:
    """Feeds the watch.

    Args:
        recent: reads the ends of topics.
        codec: of the records.
        packages: knows the rows of packages; None = nobody does.

    Attributes:
        watch: over the applications.
    """

    def __init__(self, recent: RecentRecords, codec: Codec, packages: PackagedRows | None = None) -> None:
        self._recent = recent
        self._codec = codec
        self._packages = packages
        self._read: dict[tuple[str, int], int] = {}  # the next offset, by topic and partition
        self._counts = {topics.PREDICTIONS: ROUND, topics.QUERIES: ROUND}  # records of the next round
        self._table: MutableMapping[str, str] = {}
        self._is_loaded = False
        self.watch = DriftWatch()
        if packages is not None:
            self.watch.rows = packages.rows

    def keep_in(self, table: MutableMapping[str, str]) -> None:
        """Keep what is usual in a table, which has other keys, too; it may be empty until the first tick."""
        self._table = table

    async def tick(self, now_us: int) -> None:
        """Read a round and judge; while Kafka is away nothing is known."""
        self._load(now_us)
        try:
            if self._packages is not None:
                await self._packages.read()  # before columns begin
            for topic in self._counts:
                await self._take(await self._round(topic), now_us)
        except StreamError as fault:
            _log.warning("inputs and outputs are not compared with those before: %s", fault)
            return
        async for application in fairly(self.watch.applications):
            self.watch.judge(application, now_us)
        if now_us // MINUTE_US % KEEP_EVERY == 0:
            await self._keep()

    async def stop(self) -> None:
        """Follow nothing any more."""
        if self._packages is not None:
            await self._packages.stop()

    async def _keep(self) -> None:
        """Write what is usual, one application in a turn, and delete what nobody follows."""
        kept = {_KEY + application: application for application in self.watch.applications}
        async for key, application in fairly(kept.items()):
            self._table[key] = self.watch.kept(application)
        for key in [key for key in self._table if key.startswith(_KEY) and key not in kept]:
            del self._table[key]

    async def _round(self, topic: str) -> Sequence[Record]:
        """Return the end of a topic; the next one is shorter, if this one is large or does not come in time."""
        count = self._counts[topic]
        self._counts[topic] = max(FEWEST, count // 2)
        found = await self._recent.last(topic, count)
        size = sum([len(record.value or b"") for record in found])
        fits = len(found) * ROUND_BYTES // max(size, 1)
        self._counts[topic] = max(FEWEST, min(ROUND, 2 * count, fits if found else ROUND))
        return found

    def _load(self, now_us: int) -> None:
        """Take what the table has, once."""
        if not self._is_loaded:
            self._is_loaded = True
            for key, text in list(self._table.items()):
                if key.startswith(_KEY):
                    self.watch.load(key.removeprefix(_KEY), text, now_us)

    async def _take(self, records: Sequence[Record], now_us: int) -> None:
        """Take those that were not read, in whatever order senders' clocks have put them."""
        async for record in fairly(self._unread(records)):
            try:
                self._take_one(record, now_us)
            except DecodeError:  # its reader makes it a dead letter
                continue
            except Exception as fault:  # noqa: BLE001  # whatever a client sent, others are followed
                _log.debug("a record of %s has no columns: %r", record.topic, fault)

    def _unread(self, records: Sequence[Record]) -> list[Record]:
        """Return the records behind those of earlier rounds; all, where a topic was made anew meanwhile."""
        ends: dict[tuple[str, int], int] = {}
        for record in records:
            place = record.topic, record.partition
            ends[place] = max(ends.get(place, 0), record.offset + 1)
        starts = {place: read if (read := self._read.get(place, 0)) <= end else 0 for place, end in ends.items()}
        self._read |= ends
        return [record for record in records if record.offset >= starts[record.topic, record.partition]]

    def _take_one(self, record: Record, now_us: int) -> None:
        if record.value is None:
            return
        if record.topic == topics.QUERIES:
            self.watch.query(self._codec.decode(Query, record.value), now_us)
        else:
            self.watch.prediction(self._codec.decode(Prediction, record.value), now_us)
