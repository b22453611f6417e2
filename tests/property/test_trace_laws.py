"""Laws of traces: whatever was in Kafka comes back, and a kill between any two writes loses and doubles nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import Codec
from streams.operators.contract import Record
from streams.trace.manifest import TraceManifest
from streams.trace.reader import Trace
from streams.trace.writer import Limits, TraceWriter
from tests.strategies import ANY_RECORD, LONGS, TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

CODEC = Codec()
ABOUT = TraceManifest("p", "0")
TOPICS = ("queries", "observations", "predictions.dlq", "reports", "unheard-of")
VALUES = st.none() | st.binary(max_size=40) | ANY_RECORD.map(CODEC.encode)
HEADERS = st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(
        Record,
        topic=st.sampled_from(TOPICS),
        partition=st.integers(0, 2),
        offset=st.just(0),
        timestamp_us=LONGS,
        key=st.none() | st.binary(max_size=5),
        value=VALUES,
        headers=HEADERS,
    ),
    max_size=30,
)


def numbered(records: Sequence[Record], gaps: Sequence[int]) -> list[Record]:
    """Give records offsets that grow within each partition, with gaps where the log has no records."""
    ends: dict[tuple[str, int], int] = {}
    found = []
    for at, record in enumerate(records):
        place = record.topic, record.partition
        offset = ends.get(place, 0) + gaps[at % len(gaps)]
        found.append(record._replace(offset=offset))
        ends[place] = offset + 1
    return found


@given(RECORDS, st.lists(st.integers(0, 3), min_size=1, max_size=5), st.data())
def test_a_recorder_that_is_killed_at_any_time_loses_and_doubles_nothing(
    records: list[Record], gaps: list[int], data: st.DataObject
) -> None:
    """Each life of the recorder begins where the manifest says, and reads on from there."""
    records = numbered(records, gaps)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(data.draw(st.integers(0, 3), "kills")):
            live(Path(folder), records, data.draw(st.integers(0, 30), "written"), is_killed=True)
        live(Path(folder), records, len(records), is_killed=False)
        trace = Trace.open(Path(folder))
        for topic in TOPICS:
            for partition in range(3):
                expected = [one for one in records if (one.topic, one.partition) == (topic, partition)]
                assert [*trace.records(topic, partition)] == expected
        assert trace.manifest.count == len(records)


def live(folder: Path, records: Sequence[Record], written: int, *, is_killed: bool) -> None:
    """Let a recorder read what is not in the trace yet; the kill leaves half a write behind the manifest's bytes."""
    writer = TraceWriter(folder, ABOUT, CODEC, Limits(rotate_bytes=500))
    starts = {topic: writer.expect(topic, dict.fromkeys(range(3), 0)) for topic in TOPICS}
    left = [one for one in records if one.offset >= starts[one.topic][one.partition]]
    for begin in range(0, min(len(left), written), 7):
        writer.add(left[begin : min(begin + 7, written)])
        writer.write()
    if not is_killed:
        writer.add(left)
        writer.write()
    writer.close()
    if is_killed:
        for path in folder.glob("*.avro"):
            path.write_bytes(path.read_bytes() + b"torn")
