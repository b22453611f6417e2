"""Traces that somebody else has written: no file outside of them is touched, nothing is held up, the fault is told."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from schemas.wire import write_long
from streams.trace.container import BLOCK_BYTES
from streams.trace.layout import HEADERS, schema_of
from streams.trace.manifest import FILE, TraceError
from streams.trace.reader import Trace
from streams.trace.writer import TraceWriter
from tests.unit.streams.trace.test_trace import ABOUT, CODEC, query, write

if TYPE_CHECKING:
    from collections.abc import Callable

PRECIOUS = b"all of a thesis"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Return a file of the user, beside the trace."""
    file = tmp_path / "thesis.txt"
    file.write_bytes(PRECIOUS)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a sound trace of one part that is not complete."""
    write(tmp_path / "trace", [query(at) for at in range(20)])
    return tmp_path / "trace"


def part_of(folder: Path) -> Path:
    """Return the file of the only part."""
    (file,) = folder.glob("*.avro")
    return file


def change(folder: Path, place: str, value: object) -> None:
    """Change a field of the manifest: `topics.queries.parts.0.file`."""
    document = json.loads((folder / FILE).read_text())
    inner: Any = document
    *path, last = place.split(".")
    for key in path:
        inner = inner[int(key) if isinstance(inner, list) else key]
    inner[last] = value
    (folder / FILE).write_text(json.dumps(document))


def pretend(folder: Path, content: bytes, count: int | None = None) -> None:
    """Put content into the part, and let the manifest speak for it, as who hands out a trace can."""
    part_of(folder).write_bytes(content)
    change(folder, "topics.queries.parts.0.bytes", len(content))
    change(folder, "topics.queries.parts.0.sha256", hashlib.sha256(content).hexdigest())
    if count is not None:
        change(folder, "topics.queries.parts.0.count", count)


def is_refused(folder: Path) -> None:
    """Hold that neither a reader nor a recorder takes the folder."""
    with pytest.raises(TraceError):
        [*Trace.open(folder).merged(["queries"])]
    with pytest.raises(TraceError):
        write(folder, [query(at) for at in range(40)])


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize(
    "name", ["{outside}", "../thesis.txt", "./{own}", "sub/../{own}", "manifest.json", "", "\0", 5]
)
def test_no_part_lies_anywhere_else(folder: Path, precious: Path, name: str | int, is_complete: bool) -> None:
    """A part has the name that a recorder gives it; no other file is read, cut, written or deleted."""
    named = name.format(outside=precious, own=part_of(folder).name) if isinstance(name, str) else name
    part = "topics.queries.parts.0"
    change(folder, f"{part}.file", named)
    change(folder, f"{part}.bytes", 0)
    change(folder, f"{part}.sha256", hashlib.sha256().hexdigest())
    change(folder, f"{part}.is_complete", is_complete)
    is_refused(folder)
    assert precious.read_bytes() == PRECIOUS


@pytest.mark.parametrize("topic", ["../queries", "/queries", "a/b", "", "a" * 300, "que\nries"])
def test_no_topic_leads_anywhere_else(folder: Path, precious: Path, topic: str) -> None:
    """The name of a part begins with its topic's: only what Kafka takes for a topic is one."""
    document = json.loads((folder / FILE).read_text())
    known = document["topics"].pop("queries")
    known["name"] = topic
    for part in known["parts"]:
        part["file"] = f"{topic}-0000-000000000000.avro"
    document["topics"][topic] = known
    (folder / FILE).write_text(json.dumps(document))
    with pytest.raises(TraceError, match="damaged"):
        Trace.open(folder)
    with pytest.raises(TraceError, match="damaged"):
        TraceWriter(folder, ABOUT, CODEC)
    assert precious.read_bytes() == PRECIOUS


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["part", "next", "manifest.json.new"])
def test_a_link_in_a_trace_changes_no_other_file(
    folder: Path, precious: Path, link: Callable[[Path, Path], None], name: str
) -> None:
    """Whichever of a trace's files it stands for: one that grows, one that is about to be made, the next manifest."""
    place = {"part": part_of(folder), "next": folder / "feedback-0000-000000000000.avro"}
    path = place.get(name, folder / name)
    path.unlink(missing_ok=True)
    link(precious, path)
    if name == "part":
        change(folder, "topics.queries.parts.0.bytes", 0)
        change(folder, "topics.queries.parts.0.sha256", hashlib.sha256().hexdigest())
    try:
        with TraceWriter(folder, ABOUT, CODEC) as writer:
            writer.expect("feedback", {0: 0})
            writer.expect("queries", {0: 0, 1: 0})
            writer.add([query(0, topic="feedback"), query(20)])
    except (TraceError, OSError):
        assert name in {"part", "next"}
    assert precious.read_bytes() == PRECIOUS


def test_a_lock_that_is_a_link_makes_no_file(folder: Path, tmp_path: Path) -> None:
    """Nor is it waited for, if it is a pipe."""
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(tmp_path / "made")
    with pytest.raises(TraceError, match="cannot be recorded to"):
        TraceWriter(folder, ABOUT, CODEC)
    assert not (tmp_path / "made").exists()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


def _vast(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("what", [_pipe, _device, _folder, _vast])
@pytest.mark.parametrize("name", [FILE, "part"])
@pytest.mark.timeout(20)
def test_what_is_no_plain_file_holds_nobody_up(folder: Path, name: str, what: Callable[[Path], None]) -> None:
    """A pipe that nobody writes to, a device without an end, a file of a TiB that holds nothing."""
    path = part_of(folder) if name == "part" else folder / name
    if name == "part":
        change(folder, "topics.queries.parts.0.bytes", 1 << 40)
    path.unlink()
    what(path)
    is_refused(folder)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("prefix", 5),
        ("version", ["0"]),
        ("settings", 5),
        ("source", None),
        ("topics", {"queries": 5}),
        ("topics.queries.record", ["Query"]),
        ("topics.queries.schemas", [5]),
        ("topics.queries.partitions", 1e300),
        ("topics.queries.first", {"a": 0}),
        ("topics.queries.next", {"0": "20"}),
        ("topics.queries.parts.0.count", 21),
        ("topics.queries.parts.0.count", -1),
        ("topics.queries.parts.0.bytes", "9"),
        ("topics.queries.parts.0.partition", 1),
        ("topics.queries.parts.0.partition", 0.0),
        ("topics.queries.parts.0.next", 3),
        ("topics.queries.parts.0.from_us", None),
        ("topics.queries.parts.0.until_us", 0),
        ("topics.queries.parts.0.sha256", 7),
    ],
)
def test_a_manifest_that_does_not_fit_its_files_is_refused(folder: Path, place: str, value: object) -> None:
    """Types, and numbers that the records do not bear out."""
    change(folder, place, value)
    with pytest.raises(TraceError, match="damaged"):
        [*Trace.open(folder).merged(["queries"])]


def test_deep_json_is_a_damaged_manifest(folder: Path) -> None:
    """As deep as Python's own reader gives up."""
    (folder / FILE).write_text("[" * 200_000)
    is_refused(folder)


def test_a_record_class_is_one_of_ours(folder: Path) -> None:
    """No other name of the module of records stands for one."""
    change(folder, "topics.queries.record", "annotations")
    with pytest.raises(TraceError, match="no record of this version"):
        TraceWriter(folder, ABOUT, CODEC)


def container(codec: str, payload: bytes, count: int = 1) -> bytes:
    """Return a container file of one block, as its author likes."""
    out = io.BytesIO()
    fastavro.writer(out, schema_of(None), [], codec="null", sync_marker=b"s" * 16)
    head = out.getvalue().replace(b"avro.codec\x08null", b"avro.codec" + write_long(len(codec)) + codec.encode())
    return head + write_long(count) + write_long(len(payload)) + payload + b"s" * 16


def deflated(size: int) -> bytes:
    """Return so many zeros, deflated: a thousandth of them."""
    deflater = zlib.compressobj(9, wbits=-15)
    piece = bytes(1 << 20)
    return b"".join(deflater.compress(piece) for _ in range(size >> 20)) + deflater.flush()


def test_a_block_is_bounded_before_it_is_inflated(folder: Path) -> None:
    """400 MiB of zeros in 400 KB: refused, and never held."""
    import tracemalloc

    pretend(folder, container("deflate", deflated(400 << 20)), 1)
    opened = Trace.open(folder)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match="holds more than"):
            [*opened.records("queries")]
        assert tracemalloc.get_traced_memory()[1] < 3 * BLOCK_BYTES
    finally:
        tracemalloc.stop()


def test_headers_are_bounded_by_number(folder: Path) -> None:
    """Two bytes of a block make an object each: a record with more of them than a recorder writes is refused."""
    many = b"".join([bytes(4), write_long(HEADERS + 1), bytes(2 * (HEADERS + 1)), bytes(4)])
    squeezed = zlib.compressobj(9, wbits=-15)
    pretend(folder, container("deflate", squeezed.compress(many) + squeezed.flush()), 1)
    with pytest.raises(TraceError, match="headers"):
        [*Trace.open(folder).records("queries")]


def test_a_record_with_many_headers_is_recorded_and_read(tmp_path: Path) -> None:
    """Whoever writes to a topic may send them; the recorder keeps as many as a reader takes."""
    write(tmp_path, [query(0, headers=(("", b""),) * (HEADERS + 5))])
    (found,) = Trace.open(tmp_path).records("queries")
    assert len(found.headers) == HEADERS


@pytest.mark.parametrize("codec", ["bzip2", "xz", "snappy", "zstandard", "lz4", "null", "nonsense"])
def test_other_codecs_are_refused(folder: Path, codec: str) -> None:
    """A recorder writes deflate; what nobody inflates here cannot be a bomb."""
    pretend(folder, container(codec, bytes(20)), 1)
    with pytest.raises(TraceError, match="deflate"):
        [*Trace.open(folder).records("queries")]


def test_a_changed_part_that_its_manifest_bears_out_reads_or_is_refused(folder: Path) -> None:
    """Noise, cuts and changed bytes, in the header and behind it: a trace's error, and no other one."""
    sound = part_of(folder).read_bytes()
    draw = random.Random(7)
    cases = [b"", sound[:3], b"Obj\x01", b"Obj\x01" + draw.randbytes(200), draw.randbytes(300), sound[:-1]]
    for _ in range(300):
        changed = bytearray(sound)
        for _ in range(draw.choice([1, 1, 2, 8])):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        cases.append(bytes(changed))
    inflated = _payload(sound)
    for _ in range(300):
        changed = bytearray(inflated)
        for _ in range(draw.choice([1, 2, 8])):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        squeezed = zlib.compressobj(1, wbits=-15)
        cases.append(container("deflate", squeezed.compress(bytes(changed)) + squeezed.flush(), 20))
    refused = 0
    for case in cases:
        pretend(folder, case)
        try:
            assert len([*Trace.open(folder).records("queries")]) == 20
        except TraceError:
            refused += 1
    assert refused > len(cases) // 10


def _payload(sound: bytes) -> bytes:
    """Return what the only block of a part holds."""
    block: Any
    (block,) = fastavro.block_reader(io.BytesIO(sound))
    return bytes(block.bytes_.getvalue())


def test_a_trace_that_was_handed_on_is_continued(folder: Path, tmp_path: Path) -> None:
    """A copy is as good as the folder: nothing above refuses what a recorder writes."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    write(copy, [query(at) for at in range(40)])
    assert [one.offset for one in Trace.open(copy).records("queries")] == [*range(40)]
