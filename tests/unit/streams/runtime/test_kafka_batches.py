"""From what a broker sent for a partition to records."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import zlib
from itertools import islice

import cramjam
import pytest
from aiokafka.errors import CorruptRecordException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from load.hostile.batches import gzip_with_a_tail, lz4_with_a_wrong_checksum
from streams.operators.contract import Record
from streams.runtime.corrupt import KEPT_BYTES, CorruptBatch
from streams.runtime.kafka.fast import record_batches as kafka_batches
from streams.runtime.kafka.fast.inflation import MOST_BYTES, InflationError, inflate
from streams.runtime.kafka.fast.record_batches import leniently, unpack
from tests.batches import TWO, AnswerColumn, batch, bomb, compressed, with_checksum

HEADER = struct.Struct(">qiibIhiqqqhii")
SAID = st.tuples(
    st.binary(max_size=5) | st.none(),
    st.binary(max_size=9) | st.none(),
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3) | st.none()), max_size=2),
)


@pytest.fixture(params=["compiled", "aiokafka"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to take a batch apart give the same."""
    if request.param == "aiokafka":
        monkeypatch.setattr(kafka_batches, "compiled", None)
    elif kafka_batches.compiled is None:
        pytest.skip("the extension was not built: no C compiler at installation")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(SAID, min_size=1, max_size=4), max_size=3), st.integers(0, 9), st.sampled_from([0, 1, 2, 3, 4])
)
def test_every_record_from_the_wanted_offset_on_is_there(
    said: list[list[AnswerColumn]], skipped: int, compression: int
) -> None:
    """A batch is sent whole; what lies before the wanted offset is passed over."""
    data, base = b"", 100
    expected: list[Record] = []
    for batches in said:
        data += batch(base, batches, compression)
        for number, (key, value, headers) in enumerate(batches):
            record = Record("t", 3, base + number, (1_000 + number) * 1_000, key, value, tuple(headers))
            expected += [record] * (record.offset >= 100 + skipped)
        base += len(batches)
    start = 100 + skipped
    assert unpack(data, "t", 3, start) == (expected, base if said else start)


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    """The broker cuts at the size that was asked for."""
    first, second = batch(0, [(None, b"a", [])]), batch(1, [(None, b"b", [])])
    for cut in range(len(first), len(first) + len(second)):
        records, end = unpack((first + second)[:cut], "t", 0, 0)
        assert ([record.value for record in records], end) == ([b"a"], 1)


def test_a_wrong_checksum_is_an_error() -> None:
    """What the disk or the wire has changed is never handed out."""
    data = bytearray(batch(5, [(None, b"abc", [])]))
    data[-2] ^= 1
    with pytest.raises(CorruptRecordException, match="t-0 has a batch with a wrong checksum behind offset 5"):
        unpack(bytes(data), "t", 0, 5)


def test_the_mark_of_a_transaction_is_no_record() -> None:
    """It takes an offset all the same."""
    data = bytearray(batch(7, [(b"\0\0\0\1", b"\0\0\0\0\0\0", [])]))
    data[22] |= 0x20  # the attributes' bit for control batches
    assert unpack(with_checksum(bytes(data)), "t", 0, 7) == ([], 8)


def test_a_header_name_that_is_no_text_is_made_readable() -> None:
    """A client in C writes any bytes; the role must neither stop nor lose the record's neighbours."""
    data = batch(0, [(None, b"a", []), (b"k", b"b", [("name", b"v")]), (None, b"c", [])])
    records, end = unpack(with_checksum(data.replace(b"name", b"n\xff\xfee")), "t", 0, 0)
    assert [record.value for record in records] == [b"a", b"b", b"c"]
    assert records[1].headers == (("n\\xff\\xfee", b"v"),)
    assert end == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_spoilt_bytes_are_records_or_a_corrupt_batch_whatever_they_are(data: st.DataObject) -> None:
    """Bytes changed behind a checksum that is right again: nothing is raised, and what follows is read."""
    value = bytearray(batch(0, [(b"k", b"value", [("h", b"v")]), (b"k", None, [])], data.draw(st.integers(0, 4))))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(27, len(value) - 1))] = data.draw(st.integers(0, 255))
    records, end = unpack(with_checksum(bytes(value)) + batch(2, TWO[:1]), "t", 0, 0)
    assert (records[-1].value, end) == (b"a", 3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_the_compiled_way_takes_spoilt_bytes_or_leaves_them(data: st.DataObject) -> None:
    """Bytes changed behind a checksum that is right again: no crash, whether they are taken for records or not."""
    compiled = kafka_batches.compiled
    if compiled is None:
        return
    value = bytearray(batch(0, [(b"k", b"value", [("h", b"v")]), (None, None, [])]))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(21, len(value) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        compiled.records(with_checksum(bytes(value)))


NUMBERS = st.sampled_from([0, 1, -1, 2**62, 2**63 - 2, 2**63 - 1, -(2**63), 9_223_372_036_854_775]) | st.integers(
    -(2**63), 2**63 - 1
)


def numbered(base: int, behind: int, first_ms: int, latest_ms: int, attributes: int, deltas: tuple[int, int]) -> bytes:
    """Build a batch of one record whose numbers may be any."""
    record = b"\0" + b"".join(map(zigzag, deltas)) + b"\1\1\0"
    records = zigzag(len(record)) + record
    head = HEADER.pack(base, 49 + len(records), 0, 2, 0, attributes, behind, first_ms, latest_ms, -1, -1, -1, 1)
    return with_checksum(head + records)


def zigzag(number: int) -> bytes:
    """Write a number of 64 bits as Kafka does."""
    rest, found = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    NUMBERS, st.integers(-(2**31), 2**31 - 1), NUMBERS, NUMBERS, st.sampled_from([0, 8]), st.tuples(NUMBERS, NUMBERS)
)
def test_the_compiled_way_adds_as_python_does_or_not_at_all(
    base: int, behind: int, first_ms: int, latest_ms: int, attributes: int, deltas: tuple[int, int]
) -> None:
    """Times and offsets up to the ends of 64 bits: a sum that has more is left to the other way."""
    compiled = kafka_batches.compiled
    if compiled is None:
        return
    made = numbered(base, behind, first_ms, latest_ms, attributes, deltas)
    with contextlib.suppress(ValueError):
        ((offset, time_us, *_),) = compiled.records(made)
        (one,) = leniently(made)
        assert (offset, time_us) == (one.offset, one.timestamp * 1000)
        assert offset == base + behind


def test_a_batch_that_cannot_be_unpacked_is_one_outcome_and_what_follows_is_read() -> None:
    """Brokers take what Java unpacks; the offsets stand in the header, so nothing is stuck."""
    spoilt = compressed(7, TWO, 3, lz4_with_a_wrong_checksum(batch(0, TWO)[61:]))
    records, end = unpack(batch(6, TWO[:1]) + spoilt + batch(9, TWO[1:]), "t", 3, 6)
    first, lost, last = records
    assert (first.value, last.value, end) == (b"a", b"b", 10)
    assert isinstance(lost, CorruptBatch)
    assert lost[:6] == ("t", 3, 8, 1_001_000, None, spoilt)
    assert lost.what.startswith(f"offsets 7 to 8, {len(spoilt)} bytes: InflationError: not unpacked to")


def test_bytes_behind_a_gzip_member_are_nobodys_business() -> None:
    """As for Java, and so for the broker."""
    data = compressed(0, TWO, 1, gzip_with_a_tail(batch(0, TWO)[61:]))
    assert [record.value for record in unpack(data, "t", 0, 0)[0]] == [b"a", b"b"]


@pytest.mark.parametrize("codec", range(1, 8))
def test_whatever_is_said_to_be_compressed_is_read_on_behind(codec: int) -> None:
    """No records, a negative Snappy block, an unknown codec: neither an exception nor an endless loop."""
    for records in (b"", b"\x00" * 40, b"\x82SNAPPY\x00" + bytes(8) + b"\xff\xff\xff\xfcabcd", b"\x1f\x8b" * 20):
        (lost,), end = unpack(compressed(5, TWO, codec, records), "t", 0, 5)
        assert (type(lost), lost.offset, end) == (CorruptBatch, 6, 7)


def test_only_the_beginning_of_a_large_corrupt_batch_is_kept() -> None:
    """Its dead letter has to fit; how large it was is said."""
    data = compressed(0, TWO, 4, b"x" * 1_000_000)
    (lost,), _ = unpack(data, "t", 0, 0)
    assert lost.value == data[:KEPT_BYTES]
    assert isinstance(lost, CorruptBatch)
    assert f"{len(data)} bytes" in lost.what


def test_an_old_format_is_a_corrupt_batch() -> None:
    """It has another header, in which no compression can be seen; no broker of today writes it."""
    data = bytearray(batch(4, TWO))
    data[16] = 1
    (lost,), end = unpack(bytes(data), "t", 0, 4)
    assert (lost.offset, end) == (4, 5)


def test_records_that_are_not_as_many_as_said_are_a_corrupt_batch() -> None:
    """What a broker would have refused is not handed out by halves."""
    data = bytearray(batch(0, TWO))
    data[57:61] = (3).to_bytes(4, "big")
    (lost,), end = unpack(with_checksum(bytes(data)), "t", 0, 0)
    assert (type(lost), end) == (CorruptBatch, 2)


def test_a_wrong_checksum_behind_other_batches_is_left_for_the_next_fetch() -> None:
    """What came whole is handed out first."""
    second = bytearray(batch(1, [(None, b"b", [])]))
    second[-2] ^= 1
    records, end = unpack(batch(0, [(None, b"a", [])]) + bytes(second), "t", 0, 0)
    assert ([record.value for record in records], end) == ([b"a"], 1)


def test_what_inflates_to_more_than_a_batch_may_be_is_left_for_the_next_fetch() -> None:
    """A thousand batches of 2 KB each would be as much as one of 2 MB."""
    zeros = batch(0, [(None, bytes(MOST_BYTES // 3), [])])[61:]
    packed = bytes(cramjam.zstd.compress(zeros))
    data = b"".join(compressed(base, TWO[:1], 4, packed) for base in range(9))
    records, end = unpack(data, "t", 0, 0)
    assert ([record.offset for record in records], end) == ([0, 1, 2], 3)
    assert unpack(data[2 * len(data) // 3 :], "t", 0, 6)[1] == 9


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SAID, min_size=1, max_size=5), st.data())
def test_the_lenient_way_reads_the_same_and_no_further_than_the_batch(
    said: list[AnswerColumn], data: st.DataObject
) -> None:
    """Cut off or changed anywhere, a batch gives records or a ValueError, whatever its numbers say."""
    sound = batch(7, said)
    assert [(r.offset, r.timestamp, (r.key, r.value, r.headers)) for r in leniently(sound)] == [
        (7 + number, 1_000 + number, one) for number, one in enumerate(said)
    ]
    spoilt = bytearray(sound[: data.draw(st.integers(61, len(sound)))])
    for _ in range(data.draw(st.integers(0, 3))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        assert len(list(islice(leniently(bytes(spoilt)), 1_000))) < 1_000


UNPACK_WITHIN_160_MIB = """
import resource, sys
from streams.runtime.kafka.fast.record_batches import unpack
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) for line in status if line.startswith("VmData")) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + (160 << 20),) * 2)
(lost,), end = unpack(sys.stdin.buffer.read(), "t", 0, 0)
print(lost.what, end)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compression_bomb_is_a_corrupt_batch_and_not_the_end_of_the_process(codec: int) -> None:
    """A few kilobytes may be gigabytes: they are unpacked up to a bound, in a process that could not hold them."""
    data = compressed(0, TWO, codec, bomb(codec))
    child = [sys.executable, "-c", UNPACK_WITHIN_160_MIB]
    done = subprocess.run(child, input=data, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert "InflationError" in done.stdout.decode()
    assert done.stdout.endswith(b" 2\n")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_exactly_as_much_as_is_allowed_is_unpacked(codec: int) -> None:
    """And a byte more is not."""
    pack = {
        1: lambda data: zlib.compress(data, wbits=31),
        2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
        3: lambda data: bytes(cramjam.lz4.compress(data)),
        4: lambda data: bytes(cramjam.zstd.compress(data)),
    }[codec]
    packed = pack(bytes(300_000))
    assert inflate(codec, packed, 300_000) == bytes(300_000)
    with pytest.raises(InflationError):
        inflate(codec, packed, 299_999)
