"""Reads a sample of what is asked and answered, once a minute, for the watch over drift.

    ends of queries, predictions ──▶ Sensing.tick ──▶ DriftWatch ──▶ alerts, `drift_evidence`

No more than the last records of a topic are read, however many there are, and none of them twice. So it costs the same
at any rate. What it misses it does not need.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Prediction, Query
from streams.control.drift.watch import DriftWatch
from streams.runtime.errors import StreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.runtime.ports import RecentRecords

_log = logging.getLogger(__name__)

# Of each topic, in a minute: 100 ms of decoding.
ROUND: Final = 600


class Sensing:
    """Feeds the watch.

    Args:
        recent: reads the ends of topics.
        codec: of the records.

    Attributes:
        watch: over the applications.
    """

    def __init__(self, recent: RecentRecords, codec: Codec) -> None:
        self._recent = recent
        self._codec = codec
        self._read: dict[tuple[str, int], int] = {}  # the next offset, by topic and partition
        self.watch = DriftWatch()

    async def tick(self, now_us: int) -> None:
        """Read a round and judge; while Kafka is away nothing is known."""
        try:
            for topic in (topics.QUERIES, topics.PREDICTIONS):
                self._take(await self._recent.last(topic, ROUND), now_us)
        except StreamError as fault:
            _log.warning("inputs and outputs are not compared with those before: %s", fault)
            return
        for application in self.watch.applications:
            self.watch.judge(application, now_us)
            await asyncio.sleep(0)  # the page answers meanwhile

    def _take(self, records: Sequence[Record], now_us: int) -> None:
        for record in records:
            place = record.topic, record.partition
            if record.offset < self._read.get(place, 0) or record.value is None:
                continue
            self._read[place] = record.offset + 1
            try:
                if record.topic == topics.QUERIES:
                    self.watch.query(self._codec.decode(Query, record.value), now_us)
                else:
                    self.watch.prediction(self._codec.decode(Prediction, record.value), now_us)
            except DecodeError:  # its reader makes it a dead letter
                continue
