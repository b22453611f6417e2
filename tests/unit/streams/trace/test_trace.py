"""Traces on disk: what is recorded comes back as it was, damage is found, a killed recorder goes on."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from schemas.codec import Codec
from schemas.records import Query
from streams.operators.contract import Record
from streams.trace.manifest import FILE, TraceError, TraceManifest
from streams.trace.reader import Trace
from streams.trace.writer import Limits, TraceWriter
from tests.samples import FULL, NOW_US

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CODEC = Codec()
ABOUT = TraceManifest("shop", "0.1.0", {"partitions": 2})
QUERY = next(record for record in FULL if isinstance(record, Query))


def query(offset: int, partition: int = 0, at_us: int | None = None, **more: Any) -> Record:
    """Return a record of the queries; a second passes from one to the next."""
    value = CODEC.encode(QUERY._replace(query_id=f"q-{partition}-{offset}"))
    time_us = NOW_US + 1_000_000 * offset if at_us is None else at_us
    return Record("queries", partition, offset, time_us, b"key", value)._replace(**more)


def write(
    folder: Path, records: Sequence[Record], limits: Limits | None = None, about: TraceManifest = ABOUT
) -> TraceManifest:
    """Write records to a trace, in several goes; return the manifest."""
    with TraceWriter(folder, about, CODEC, limits) as writer:
        for topic in {record.topic for record in records}:
            writer.expect(topic, {0: 0, 1: 0})
        for begin in range(0, len(records), 250):
            writer.add(records[begin : begin + 250])
            writer.write()
    return writer.manifest


def test_what_was_recorded_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    """Values without a schema, of another topic, cut off, and none at all; keys and headers of every kind."""
    odd = [b"", b"\x00", b"no record of ours", CODEC.encode(QUERY)[:-1], CODEC.encode(QUERY) + b"x", None]
    odd += [Codec(ids=_ids()).encode(QUERY)]
    values = [*odd, *(CODEC.encode(record) for record in FULL)]
    headers = [(), (("traceparent", b"00-1"), ("traceparent", None), ("ü", b"\xff"))]
    records = [
        query(at, value=value, key=[b"\xff", None, b""][at % 3], headers=headers[at % 2])
        for at, value in enumerate(values)
    ]
    write(tmp_path, records)
    assert [*Trace.open(tmp_path).records("queries")] == records


def test_nobody_else_on_the_machine_reads_what_was_recorded(tmp_path: Path) -> None:
    """It is what applications say: inputs, contexts, feedback."""
    write(tmp_path, [query(5), query(6, partition=1)])
    parts = [*tmp_path.glob("*.avro")]
    assert len(parts) > 1
    assert {part.stat().st_mode & 0o077 for part in parts} == {0}


def test_any_avro_tool_shows_what_a_query_asked(tmp_path: Path) -> None:
    """A value that follows the topic's schema is a record, whatever stood before it in Kafka; another one is bytes."""
    codec = Codec(ids=_ids())
    with TraceWriter(tmp_path, ABOUT, codec) as writer:
        writer.expect("queries", {0: 0})
        writer.add([query(0), query(1, value=codec.encode(QUERY)), query(2, value=b"?"), query(3, value=None)])
    manifest = writer.manifest
    with (tmp_path / manifest.topics["queries"].parts[0].file).open("rb") as file:
        values = [one["value"] for one in fastavro.reader(file)]
    assert values[0]["query_id"] == "q-0-0"
    assert values[1]["application"] == QUERY.application
    assert values[2:] == [b"?", None]
    assert len(manifest.topics["queries"].schemas) == 2


def test_partitions_are_merged_by_time_and_each_keeps_its_order(tmp_path: Path) -> None:
    """One partition alone can be read as well; a clock that was set back changes no order within a partition."""
    records = [query(0, 0, 10), query(1, 0, 30), query(2, 0, 20), query(0, 1, 15), query(1, 1, 40)]
    write(tmp_path, records)
    trace = Trace.open(tmp_path)
    assert [(one.partition, one.offset) for one in trace.records("queries")] == [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)]
    assert [one.offset for one in trace.records("queries", 1)] == [0, 1]


def test_several_topics_are_merged_by_time(tmp_path: Path) -> None:
    """At the same time the topic that is named first leads."""
    records = [query(0), query(1), query(0, topic="feedback"), query(0, topic="predictions", at_us=NOW_US + 1)]
    write(tmp_path, records)
    found = Trace.open(tmp_path).merged(["feedback", "queries", "predictions"])
    assert [one.topic for one in found] == ["feedback", "queries", "predictions", "queries"]


def test_a_trace_says_what_it_holds(tmp_path: Path) -> None:
    """Counts, offsets and times; the manifest on disk is the one that the writer has."""
    manifest = write(tmp_path, [query(5), query(7), query(9, 1)])
    trace = Trace.open(tmp_path)
    topic = trace.manifest.topics["queries"]
    assert trace.manifest == manifest
    assert trace.topics() == ("queries",)
    assert (topic.partitions, topic.count, topic.first, topic.next) == (2, 3, {0: 0, 1: 0}, {0: 8, 1: 10})
    assert (trace.manifest.from_us, trace.manifest.until_us) == (NOW_US + 5_000_000, NOW_US + 9_000_000)
    assert trace.manifest.settings == {"partitions": 2}


@pytest.mark.parametrize("where", [0, 200, -1])
def test_a_changed_byte_is_found(tmp_path: Path, where: int) -> None:
    """Nothing of a damaged trace is read; the message names the file."""
    manifest = write(tmp_path, [query(at) for at in range(20)])
    path = tmp_path / manifest.topics["queries"].parts[0].file
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
    with pytest.raises(TraceError, match=f"{path.name} is damaged"):
        Trace.open(tmp_path)


def test_a_file_that_is_cut_off_or_gone_is_found(tmp_path: Path) -> None:
    """The message says how much is missing."""
    manifest = write(tmp_path, [query(at) for at in range(20)])
    path = tmp_path / manifest.topics["queries"].parts[0].file
    os.truncate(path, path.stat().st_size - 3)
    with pytest.raises(TraceError, match="3 bytes are missing"):
        Trace.open(tmp_path)
    path.unlink()
    with pytest.raises(TraceError, match="cannot be read"):
        Trace.open(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}', '{"format": 1}', '{"format": 1, "topics": 5}'])
def test_a_damaged_manifest_is_found(tmp_path: Path, text: str) -> None:
    """The message says what to do."""
    (tmp_path / FILE).write_text(text)
    with pytest.raises(TraceError, match=r"manifest.json"):
        Trace.open(tmp_path)


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    """To read as to record to."""
    with pytest.raises(TraceError, match="skysail record"):
        Trace.open(tmp_path)
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(TraceError, match="into a new folder"):
        Trace.open(tmp_path)  # such as a dataset: what is there is not to be written over
    with pytest.raises(TraceError, match="no trace"):
        TraceWriter(tmp_path, ABOUT)


def test_a_topic_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    """Together with those that were."""
    write(tmp_path, [query(0)])
    with pytest.raises(TraceError, match=r"feedback is not in .*queries"):
        next(Trace.open(tmp_path).records("feedback"))


def test_a_recorder_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    """What lay behind the manifest's bytes is cut off; records that are read again are not doubled."""
    records = [query(at) for at in range(30)]
    write(tmp_path, records[:10])
    path = next(tmp_path.glob("*.avro"))
    path.write_bytes(path.read_bytes() + b"half a block")
    assert [*Trace.open(tmp_path).records("queries")] == records[:10]
    with TraceWriter(tmp_path, ABOUT, CODEC) as writer:
        assert writer.expect("queries", {0: 0, 1: 0}) == {0: 10, 1: 0}
        assert writer.add(records[5:]) == 20
    assert [*Trace.open(tmp_path).records("queries")] == records


def test_a_part_that_no_manifest_names_is_written_anew(tmp_path: Path) -> None:
    """The recorder was killed between its first write and the manifest."""
    write(tmp_path, [query(0)])
    path = next(tmp_path.glob("*.avro"))
    manifest = json.loads((tmp_path / FILE).read_text())
    manifest["topics"]["queries"] |= {"parts": [], "next": {"0": 0, "1": 0}}
    (tmp_path / FILE).write_text(json.dumps(manifest))
    write(tmp_path, [query(0), query(1)])
    assert path.exists()
    assert [*Trace.open(tmp_path).records("queries")] == [query(0), query(1)]


def test_parts_rotate_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    """The bound holds; what is left is the newest, and the manifest says what is gone."""
    records = [query(at, at % 2) for at in range(4000)]
    manifest = write(tmp_path, records, Limits(rotate_bytes=20_000, keep_bytes=60_000))
    topic = manifest.topics["queries"]
    trace, kept = Trace.open(tmp_path), 0
    assert topic.bytes <= 60_000
    assert sum(path.stat().st_size for path in tmp_path.glob("*.avro")) == topic.bytes
    for partition in (0, 1):
        found = [*trace.records("queries", partition)]
        kept += len(found)
        assert found == [record for record in records if record.partition == partition][-len(found) :]
        assert found[0].offset - 2 < topic.first[partition] <= found[0].offset
    assert 0 < kept == 4000 - topic.dropped


def test_only_one_recorder_writes_to_a_folder(tmp_path: Path) -> None:
    """The second one is told so; another deployment's records go elsewhere."""
    with TraceWriter(tmp_path, ABOUT), pytest.raises(TraceError, match="another process"):
        TraceWriter(tmp_path, ABOUT)
    with pytest.raises(TraceError, match="deployment shop"):
        TraceWriter(tmp_path, TraceManifest("other", "0.1.0"))


def test_a_disk_that_was_full_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is written the next time."""
    with TraceWriter(tmp_path, ABOUT, CODEC) as writer:
        writer.expect("queries", {0: 0})
        writer.add([query(0)])
        writer.write()
        writer.add([query(1)])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _full)
            with pytest.raises(OSError, match="full"):
                writer.write()
        writer.add([query(2)])
    assert [*Trace.open(tmp_path).records("queries")] == [query(0), query(1), query(2)]


def test_a_disk_that_fills_between_two_files_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file has been written and is complete, the second one has no room."""
    synced = os.fsync
    with TraceWriter(tmp_path, ABOUT, CODEC, Limits(rotate_bytes=1)) as writer:
        writer.expect("queries", {0: 0, 1: 0})
        writer.add([query(0), query(0, 1)])
        with monkeypatch.context() as patch:
            room = iter([True, False])
            patch.setattr(os, "fsync", lambda file: synced(file) if next(room) else _full(file))
            with pytest.raises(OSError, match="full"):
                writer.write()
        writer.add([query(1), query(1, 1)])
    assert sorted(Trace.open(tmp_path).records("queries")) == sorted([query(0), query(0, 1), query(1), query(1, 1)])


def _full(_: int) -> None:
    raise OSError("disk full")


def _ids() -> dict[str, int]:
    return {type(record).__name__: at for at, record in enumerate(FULL)}
