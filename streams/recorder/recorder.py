"""Reads logs into a trace, in bounded memory; where it stopped or was killed, the next one goes on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from streams.recorder.span import RecordedSpan, Time, ends, starts
from streams.runtime.corrupt import readable
from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError
from streams.runtime.kafka.transport_ports import FetchSettings
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streams.operators.contract import Record
    from streams.recorder.span import Place
    from streams.runtime.ports import Bounds, Logs, TopicPartition
    from streams.trace.writer import TraceWriter

_log = logging.getLogger(__name__)

# Recording is not urgent: a broker may hold a fetch for long. A poll returns at most a fetch of each partition.
FETCHING: Final = FetchSettings(500, quiet_wait_ms=1_000, partition_bytes=256 << 10)
POLL_MS: Final = 500
WAITING_BYTES: Final = 8 << 20  # in memory, before they are written
WRITE_US: Final = 2_000_000  # what a power cut costs at most; then it is read from Kafka again
RETRY_S: Final = 1.0
STOP_S: Final = 3.0


class OtherLogError(MisconfiguredError):
    """A topic has another log than the one that a trace holds: it was made anew, or lost what was recorded of it.

    Attributes:
        what: it is, without the advice.
    """

    def __init__(self, topic: str, partition: int, what: str) -> None:
        self.what = f"{topic}-{partition} {what}: it is another log than the one that was recorded"
        super().__init__(f"{self.what}; name a new folder")


class Recorder:
    """Records a span of some topics; one object, one run.

    Args:
        logs: of the topics.
        writer: of the trace.
        span: which records.
        now_us: the clock.
        is_patient: whether it waits while the disk is full or the broker away, instead of giving up.
    """

    def __init__(
        self,
        logs: Logs,
        writer: TraceWriter,
        span: RecordedSpan,
        now_us: Callable[[], int],
        *,
        is_patient: bool = False,
    ) -> None:
        self._logs = logs
        self._writer = writer
        self._span = span
        self._now_us = now_us
        self._is_patient = is_patient
        self._known: set[TopicPartition] = set()
        self._starts: dict[TopicPartition, int] = {}
        self._joints: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] | None = None
        self._written_us = 0
        self._counts: Counter[str] = Counter()
        self._failures = 0
        self._is_reading = False

    async def run(self, stop: asyncio.Event) -> None:
        """Record until the span's end, or until `stop` is set; what was read is on disk then.

        Raises:
            BrokerUnavailableError: no broker answers, or a topic is not there.
            OtherLogError: the folder's trace is of other logs; what was read before is on disk then, too.
            TraceError: the disk takes no more.
        """
        bounds = await self._connected(stop)
        if bounds is None:
            return
        self._is_reading = True
        try:
            await self._begin(bounds)
            await self._read(stop)
        except OtherLogError:
            await self._write(stop)
            raise
        finally:
            self._is_reading = False
            await self._logs.stop(STOP_S)

    async def _read(self, stop: asyncio.Event) -> None:
        while not stop.is_set() and not self._is_done():
            self._take(readable(await self._logs.poll(POLL_MS)))
            if self._is_due():
                await self._write(stop)
            if self._ends is None and not self._span.is_open(self._now_us()):
                self._ends = await self._found_ends(await self._logs.bounds())
        await self._write(stop)

    @property
    def recorded(self) -> int:
        """Records so far."""
        return sum(self._counts.values())

    def left(self) -> int | None:
        """Return how many offsets are left until the span's end; None where that is not known now."""
        if self._ends is None or not self._is_reading:
            return None
        positions = {place: self._logs.position(place) or 0 for place in self._ends}
        return sum(max(0, end - max(positions[place], self._starts[place])) for place, end in self._ends.items())

    def statistics(self) -> Mapping[str, float]:
        """Return what has been recorded, what is to be read, and what the trace takes on disk."""
        topics = self._writer.manifest.topics
        counts = {f"recorded_total{{topic={topic}}}": float(count) for topic, count in self._counts.items()}
        return {
            **counts,
            "partitions": float(len(self._known)),
            **({} if self._is_reading else {"waits_for{what=kafka}": 1.0}),
            "lag": float(self._logs.unread()) if self._is_reading else 0.0,
            "trace_bytes": float(sum(topic.bytes for topic in topics.values())),
            "trace_waiting_bytes": float(self._writer.waiting_bytes),
            "trace_dropped": float(sum(topic.dropped for topic in topics.values())),
            "trace_missed": float(sum(topic.missed for topic in topics.values())),
            "trace_write_failures_total": float(self._failures),
        }

    async def _connected(self, stop: asyncio.Event) -> Mapping[TopicPartition, Bounds] | None:
        while not stop.is_set():
            try:
                return await self._logs.start()
            except BrokerUnavailableError as fault:
                if not self._is_patient:
                    raise
                _log.warning("Kafka is not there yet: %s", fault)
                await asyncio.sleep(RETRY_S)
        return None

    async def _begin(self, bounds: Mapping[TopicPartition, Bounds]) -> None:
        wanted = starts(self._span, bounds, await self._found(self._span.begin))
        for topic in dict.fromkeys(topic for topic, _ in bounds):
            own = {partition: at for (name, partition), at in wanted.items() if name == topic}
            oldest = {partition: found.begin for (name, partition), found in bounds.items() if name == topic}
            going_on = self._writer.expect(topic, own, oldest)
            self._starts |= {(topic, partition): going_on[partition] for partition in own}
        for (topic, partition), at in self._starts.items():
            end = bounds[topic, partition].end
            if at > end:
                raise OtherLogError(topic, partition, f"ends at offset {end}, before {at}")
        self._known = set(self._starts)
        self._joints = self._found_joints(bounds)
        self._written_us = self._now_us()
        if not self._span.is_open(self._now_us()):
            self._ends = await self._found_ends(bounds)
        self._logs.seek({place: at - (place in self._joints) for place, at in self._starts.items()})

    def _found_joints(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        """Return when the last record of each log was written that the trace goes on with, if it is still there."""
        known = {
            place: self._writer.last_us_of(place) for place, at in self._starts.items() if at > bounds[place].begin
        }
        return {place: time_us for place, time_us in known.items() if time_us is not None}

    async def _found(self, place: Place | None) -> Mapping[TopicPartition, int]:
        return await self._logs.find(place.us) if isinstance(place, Time) else {}

    async def _found_ends(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        known = {place: bounds[place] for place in bounds if place in self._known}
        return ends(self._span, known, await self._found(self._span.end))

    def _is_done(self) -> bool:
        return self.left() == 0

    def _is_due(self) -> bool:
        waiting = self._writer.waiting_bytes
        return waiting >= WAITING_BYTES or (waiting > 0 and self._now_us() >= self._written_us + WRITE_US)

    def _take(self, records: Sequence[Record]) -> None:
        limits = self._ends
        if limits is not None:
            records = [one for one in records if one.offset < limits.get((one.topic, one.partition), 0)]
        records = self._joined(records)
        firsts = {(one.topic, one.partition): one.offset for one in reversed(records)}
        for place, first in firsts.items():
            if place not in self._known:  # added to a topic meanwhile
                self._writer.expect(place[0], {place[1]: 0})
                self._known.add(place)
            elif first < self._writer.next_of(place):
                raise OtherLogError(*place, "has begun anew")
        self._writer.add(records)
        self._counts.update(one.topic for one in records)

    def _joined(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return what follows the last record that the trace has: it is read again, and tells its log from another.

        A log that was cut off below it, or made anew, and has grown beyond it meanwhile has another record there. Where
        there is none any more, as in a compacted topic, nothing can be told.
        """
        for record in records if self._joints else ():
            place = record.topic, record.partition
            time_us = self._joints.pop(place, None)
            if time_us is not None and record.offset < self._starts[place]:
                if record.timestamp_us != time_us:
                    raise OtherLogError(*place, f"has another record at offset {record.offset}")
                records = [one for one in records if one is not record]
        return records

    async def _write(self, stop: asyncio.Event) -> None:
        """Bring what was read to disk; without patience the first failure is the last."""
        while True:
            try:
                await asyncio.to_thread(self._writer.write)
            except OSError as fault:
                self._failures += 1
                if not self._is_patient or stop.is_set():
                    raise TraceError(f"the trace cannot be written: {fault.strerror}; make room and go on") from fault
                _log.error("the trace cannot be written, trying again: %s", fault.strerror)
                await asyncio.sleep(RETRY_S)
            else:
                self._written_us = self._now_us()
                return
