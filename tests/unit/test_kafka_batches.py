"""From what a broker sent for a partition to records."""

from __future__ import annotations

import contextlib
import struct

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.operators.contract import Record
from streams.runtime import kafka_batches
from streams.runtime.kafka_batches import unpack

Said = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
SAID = st.tuples(
    st.binary(max_size=5) | st.none(),
    st.binary(max_size=9) | st.none(),
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3) | st.none()), max_size=2),
)


def batch(base: int, said: list[Said], compression: int = 0) -> bytes:
    """Build a batch as a broker has it: with its first offset."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, 0, 1 << 20)
    for number, (key, value, headers) in enumerate(said):
        builder.append(number, 1_000 + number, key, value, headers)
    return struct.pack(">q", base) + bytes(builder.build())[8:]


def with_checksum(data: bytes) -> bytes:
    """Correct a batch's checksum."""
    return data[:17] + struct.pack(">I", calc_crc32c(data[21:])) + data[21:]


@pytest.fixture(params=["compiled", "aiokafka"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to take a batch apart give the same."""
    if request.param == "aiokafka":
        monkeypatch.setattr(kafka_batches, "kafka_unpacking", None)
    elif kafka_batches.kafka_unpacking is None:
        pytest.skip("the extension was not built: no C compiler at installation")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(SAID, min_size=1, max_size=4), max_size=3), st.integers(0, 9), st.sampled_from([0, 2, 4]))
def test_every_record_from_the_wanted_offset_on_is_there(
    said: list[list[Said]], skipped: int, compression: int
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
def test_the_compiled_way_takes_spoilt_bytes_or_leaves_them(data: st.DataObject) -> None:
    """Bytes changed behind a checksum that is right again: no crash, whether they are taken for records or not."""
    compiled = kafka_batches.kafka_unpacking
    if compiled is None:
        return
    value = bytearray(batch(0, [(b"k", b"value", [("h", b"v")]), (None, None, [])]))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(21, len(value) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        compiled.records(with_checksum(bytes(value)), calc_crc32c, "t", 0, 0, Record)
