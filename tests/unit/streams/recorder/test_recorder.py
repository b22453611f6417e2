"""The recorder on logs in memory: which records it takes, how it ends, and what it does when something fails."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas.records import STOPPED, Report
from streams.operators.contract import Emit, EmitBatch, Record
from streams.recorder.recorder import OtherLogError, Recorder
from streams.recorder.role import FolderRecording, RecordRole, Reporting
from streams.recorder.span import Offset, RecordedSpan, Time
from streams.runtime.corrupt import corrupt
from streams.runtime.errors import BrokerUnavailableError, MisconfiguredError
from streams.runtime.ports import Bounds
from streams.trace import manifest as manifests
from streams.trace.manifest import TraceError, TraceManifest
from streams.trace.reader import Trace
from streams.trace.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streams.runtime.ports import TopicPartition

ABOUT = TraceManifest("shop", "0")
SECOND = 1_000_000
ALL = RecordedSpan()


class FakeLogs:
    """Logs in memory; each poll returns a few records of each partition, an empty one sets `idle`."""

    def __init__(self, logs: Mapping[TopicPartition, Sequence[Record]], oldest: int = 0) -> None:
        self.logs = {place: list(records) for place, records in logs.items()}
        self.oldest = oldest
        self.next: dict[TopicPartition, int] = {}
        self.idle = asyncio.Event()
        self.refusals = 0

    async def start(self) -> Mapping[TopicPartition, Bounds]:
        """Return the bounds, or refuse as often as told."""
        if self.refusals:
            self.refusals -= 1
            raise BrokerUnavailableError("not yet")
        return await self.bounds()

    async def bounds(self) -> Mapping[TopicPartition, Bounds]:
        """Return where logs begin and end."""
        return {place: Bounds(self.oldest, self._end(place)) for place in self.logs}

    async def find(self, time_us: int) -> Mapping[TopicPartition, int]:
        """Return the first records that are not older."""
        found = {place: [r.offset for r in log if r.timestamp_us >= time_us] for place, log in self.logs.items()}
        return {place: offsets[0] for place, offsets in found.items() if offsets}

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue from these offsets."""
        self.next |= offsets

    async def poll(self, timeout_ms: int) -> list[Record]:
        """Return up to three records of each partition."""
        found: list[Record] = []
        for place, log in self.logs.items():
            records = [record for record in log if record.offset >= self.next.setdefault(place, 0)][:3]
            if records:
                self.next[place] = records[-1].offset + 1
            found += records
        if not found:
            self.idle.set()
        await asyncio.sleep(0)
        return found

    def make_anew(self, topic: str, count: int) -> None:
        """Delete a topic and create it again, with so many records: a reader is sent to its beginning."""
        self.logs[topic, 0] = log(topic, count)
        self.next[topic, 0] = 0
        self.idle.clear()

    def position(self, place: TopicPartition) -> int | None:
        """Return what is read next; nothing follows the last record."""
        return self.next.get(place)

    def unread(self) -> int:
        """Return how much is left."""
        return sum(self._end(place) - at for place, at in self.next.items())

    async def stop(self, timeout_s: float) -> None:
        """Do nothing."""

    def _end(self, place: TopicPartition) -> int:
        return self.logs[place][-1].offset + 1 if self.logs[place] else self.oldest


def log(topic: str, count: int, partition: int = 0, first: int = 0) -> list[Record]:
    """Return records of a partition, one a second."""
    return [Record(topic, partition, at, at * SECOND, None, b"%d" % at) for at in range(first, first + count)]


def later(topic: str, count: int, first: int) -> list[Record]:
    """Return records that were written a minute after those that `log` has at the same offsets."""
    return [one._replace(timestamp_us=one.timestamp_us + 60 * SECOND) for one in log(topic, count, first=first)]


async def record(
    folder: Path, logs: FakeLogs, span: RecordedSpan = ALL, now_us: int = 1_000 * SECOND, *, until_idle: bool = False
) -> TraceManifest:
    """Record a span; return the manifest."""
    stop = asyncio.Event()
    with TraceWriter(folder, ABOUT) as writer:
        running = asyncio.create_task(Recorder(logs, writer, span, lambda: now_us).run(stop))
        if until_idle:
            await logs.idle.wait()
            stop.set()
        await running
    return writer.manifest


def offsets(folder: Path, topic: str = "queries", partition: int = 0) -> list[int]:
    """Return which records a trace holds of a partition."""
    return [record.offset for record in Trace.open(folder).records(topic, partition)]


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (RecordedSpan(), range(20)),
        (RecordedSpan(Offset(5)), range(5, 20)),
        (RecordedSpan(Offset(5), Offset(8)), range(5, 8)),
        (RecordedSpan(Time(15 * SECOND - 1)), range(15, 20)),
        (RecordedSpan(Time(15 * SECOND), Time(18 * SECOND)), range(15, 18)),
        (RecordedSpan(Time(99 * SECOND)), range(0)),
        (RecordedSpan(Offset(99)), range(0)),
    ],
)
async def test_a_span_is_recorded(tmp_path: Path, span: RecordedSpan, expected: range) -> None:
    """From a place to a place, by number or by time; the recorder ends by itself."""
    await record(tmp_path, FakeLogs({("queries", 0): log("queries", 20), ("queries", 1): []}), span)
    assert offsets(tmp_path) == [*expected]


async def test_compacted_topics_are_recorded_from_their_beginning(tmp_path: Path) -> None:
    """What was set long ago still holds."""
    logs = {("models", 0): log("models", 4), ("queries", 0): log("queries", 20)}
    await record(tmp_path, FakeLogs(logs), RecordedSpan(Offset(18)))
    assert offsets(tmp_path, "models") == [0, 1, 2, 3]
    assert offsets(tmp_path) == [18, 19]


async def test_a_second_run_records_what_has_come_since(tmp_path: Path) -> None:
    """Whatever span it is given: nothing is lost between the two, and nothing is doubled."""
    logs = FakeLogs({("queries", 0): log("queries", 5)})
    await record(tmp_path, logs)
    logs.logs["queries", 0] += log("queries", 7, first=5)
    await record(tmp_path, logs, RecordedSpan(Offset(0)))
    assert offsets(tmp_path) == [*range(12)]


async def test_one_that_follows_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """What was read by then is in the trace."""
    await record(tmp_path, FakeLogs({("queries", 0): log("queries", 9)}), RecordedSpan(follows=True), until_idle=True)
    assert offsets(tmp_path) == [*range(9)]


async def test_a_partition_that_is_added_is_recorded_from_its_beginning(tmp_path: Path) -> None:
    """A model may get more of them while it is recorded."""
    logs = FakeLogs({("queries", 0): log("queries", 2)})
    stop = asyncio.Event()
    with TraceWriter(tmp_path, ABOUT) as writer:
        running = asyncio.create_task(Recorder(logs, writer, RecordedSpan(follows=True), lambda: 0).run(stop))
        await logs.idle.wait()
        logs.logs["queries", 1] = log("queries", 3, partition=1)
        logs.idle.clear()
        await logs.idle.wait()
        stop.set()
        await running
    assert offsets(tmp_path, partition=1) == [0, 1, 2]


async def test_records_that_kafka_has_deleted_meanwhile_are_counted(tmp_path: Path) -> None:
    """They cannot be had any more; the trace says how many there were."""
    logs = FakeLogs({("queries", 0): log("queries", 5)})
    await record(tmp_path, logs)
    logs.logs["queries", 0], logs.oldest = log("queries", 5, first=20), 20
    manifest = await record(tmp_path, logs)
    assert offsets(tmp_path) == [*range(5), *range(20, 25)]
    assert manifest.topics["queries"].missed == 15


async def test_another_log_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """The topic was deleted and created again: its records do not go on where the trace ends."""
    await record(tmp_path, FakeLogs({("queries", 0): log("queries", 5)}))
    with pytest.raises(MisconfiguredError, match="new folder"):
        await record(tmp_path, FakeLogs({("queries", 0): log("queries", 2)}))


async def test_another_log_is_refused_though_it_has_grown_beyond_what_was_recorded(tmp_path: Path) -> None:
    """Nobody looked while it was made anew, or cut off, and grew: its record where the trace ends has another time."""
    await record(tmp_path, FakeLogs({("queries", 0): log("queries", 5), ("feedback", 0): log("feedback", 2)}))
    grown = [*log("queries", 3), *later("queries", 6, first=3)]
    with pytest.raises(OtherLogError, match="queries-0 has another record at offset 4"):
        await record(tmp_path, FakeLogs({("queries", 0): grown, ("feedback", 0): log("feedback", 3)}))
    assert offsets(tmp_path) == [*range(5)]


async def test_where_the_last_record_is_gone_the_trace_goes_on(tmp_path: Path) -> None:
    """Compaction has removed it, or retention: what lies behind it may be of any time."""
    await record(tmp_path, FakeLogs({("models", 0): log("models", 5)}))
    compacted = FakeLogs({("models", 0): [*log("models", 4), *later("models", 2, first=6)]})
    await record(tmp_path, compacted)
    assert offsets(tmp_path, "models") == [*range(5), 6, 7]


async def test_a_trace_of_before_goes_on_without_the_time_of_its_last_record(tmp_path: Path) -> None:
    """Its manifest has none."""
    await record(tmp_path, FakeLogs({("queries", 0): log("queries", 5)}))
    known = manifests.read(tmp_path)
    manifests.write(tmp_path, known.with_topic(replace(known.topics["queries"], last_us={})))
    await record(tmp_path, FakeLogs({("queries", 0): log("queries", 8)}))
    assert offsets(tmp_path) == [*range(8)]


async def test_a_batch_that_cannot_be_unpacked_is_passed(tmp_path: Path) -> None:
    """The records around it are recorded."""
    broken = corrupt(("queries", 0), (2, 4), 0, b"?", "bad codec")
    await record(tmp_path, FakeLogs({("queries", 0): [*log("queries", 2), broken, *log("queries", 2, first=5)]}))
    assert offsets(tmp_path) == [0, 1, 5, 6]


async def test_a_full_disk_ends_the_command_and_not_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The role tries again and loses nothing; the command says what to do."""
    monkeypatch.setattr("streams.recorder.recorder.RETRY_S", 0.0)
    full = [errno.ENOSPC, errno.ENOSPC]
    write = TraceWriter.write

    def once_full(writer: TraceWriter) -> None:
        if full:
            raise OSError(full.pop(), "No space left on device")
        write(writer)

    monkeypatch.setattr(TraceWriter, "write", once_full)
    with pytest.raises(TraceError, match="make room"), TraceWriter(tmp_path / "command", ABOUT) as writer:
        await Recorder(FakeLogs({("queries", 0): log("queries", 5)}), writer, RecordedSpan(), lambda: 0).run(
            asyncio.Event()
        )
    logs = FakeLogs({("queries", 0): log("queries", 5)})
    with TraceWriter(tmp_path / "role", ABOUT) as writer:
        recorder = Recorder(logs, writer, RecordedSpan(), lambda: 0, is_patient=True)
        await recorder.run(asyncio.Event())
    assert recorder.statistics()["trace_write_failures_total"] == 1
    assert offsets(tmp_path / "role") == [*range(5)]


async def test_the_role_waits_for_kafka_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has recorded, what is left to read, what the trace takes on disk; at the end that it stops."""
    monkeypatch.setattr("streams.recorder.recorder.RETRY_S", 0.0)
    monkeypatch.setattr("streams.recorder.role.REPORT_S", 0.0)
    logs, stop, reports = FakeLogs({("queries", 0): log("queries", 9)}), asyncio.Event(), list[Report]()
    logs.refusals = 2
    running = asyncio.create_task(role(tmp_path, logs, reports).run(stop))
    await logs.idle.wait()
    async with asyncio.timeout(10):
        while not reports or not reports[-1].gauges["partitions"]:  # noqa: ASYNC110 - reports ring no bell
            await asyncio.sleep(0)
    stop.set()
    await running
    assert reports[-1].role == "record"
    assert reports[-1].counters["recorded_total{topic=queries}"] == 9
    assert reports[-1].gauges["trace_bytes"] == Trace.open(tmp_path).manifest.bytes > 0
    assert reports[-1].gauges[STOPPED] == 1


def role(folder: Path, logs: FakeLogs, reports: list[Report]) -> RecordRole:
    """Return the role on these logs."""

    def told(report: Report) -> None:
        reports.append(report)

    def begin(folder: Path) -> FolderRecording:
        writer = TraceWriter(folder, ABOUT)
        recorder = Recorder(logs, writer, RecordedSpan(follows=True), lambda: 0, is_patient=True)
        return FolderRecording(recorder, writer.close)

    return RecordRole(folder, begin, Reporting("record@1", _Sink(), lambda _: b"", lambda: 0, (told,)))


async def test_a_topic_that_is_made_anew_is_recorded_into_a_new_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was read before is in the old one; a restart goes on in the new one; and so it goes each time."""
    first, second, third = (tmp_path / name for name in ("trace", "trace.2", "trace.3"))
    logs, reports = FakeLogs({("queries", 0): log("queries", 3), ("feedback", 0): log("feedback", 2)}), list[Report]()

    async def recorded() -> None:
        stop = asyncio.Event()
        logs.idle.clear()
        running = asyncio.create_task(role(first, logs, reports).run(stop))
        await logs.idle.wait()
        logs.make_anew("queries", 7)
        await logs.idle.wait()
        stop.set()
        await running

    await recorded()
    assert (offsets(first), offsets(second)) == ([*range(3)], [*range(7)])
    assert (offsets(first, "feedback"), offsets(second, "feedback")) == ([0, 1], [0, 1])
    assert reports[-1].counters["traces_begun_anew_total"] == 1
    assert f"is recorded into {second}" in caplog.text
    logs.logs["queries", 0] += log("queries", 2, first=7)
    await recorded()
    assert (offsets(first), offsets(second), offsets(third)) == ([*range(3)], [*range(9)], [*range(7)])


async def test_nothing_of_another_log_gets_into_a_trace_though_it_has_grown_beyond_it(tmp_path: Path) -> None:
    """What is read in one go begins below what was recorded, and ends beyond it."""
    logs = FakeLogs({("queries", 0): log("queries", 2)})
    with TraceWriter(tmp_path, ABOUT) as writer:
        recorder = Recorder(logs, writer, RecordedSpan(follows=True), lambda: 0)
        running = asyncio.create_task(recorder.run(asyncio.Event()))
        await logs.idle.wait()
        logs.make_anew("queries", 3)
        with pytest.raises(OtherLogError, match="name a new folder"):
            await running
    assert offsets(tmp_path) == [0, 1]


class _Sink:
    """Takes reports."""

    async def send(self, topic: str, partition: int, emits: Sequence[Emit]) -> int:
        """Take all."""
        return len(emits)

    def post(self, offers: Sequence[object]) -> list[None]:
        """Take none."""
        return [None] * len(offers)

    async def send_batch(self, batch: EmitBatch) -> None:
        """Take it."""
