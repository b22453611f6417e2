"""Record batches, numbers, texts and ids in C: against what reads and writes them in Python."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from streams.operators.ids import IdTimes
from streams.runtime.kafka.fast.record_batches import by_aiokafka

batches = pytest.importorskip("streams.columns.batches", reason="Skysail has been installed without a compiler")
probes = pytest.importorskip("streams.columns.probes", reason="Skysail has been installed without a compiler")

Rows: TypeAlias = list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes]]]]
TIME_MS = 1_700_000_000_000
texts = st.binary(max_size=300)
longs = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 63).map(lambda n: 2**n - 1),
    st.integers(0, 63).map(lambda n: -(2**n)),
)
headers = st.lists(st.tuples(st.text(max_size=5), texts), max_size=3)
rows = st.lists(
    st.tuples(st.none() | texts, st.none() | texts, st.integers(0, 10_000), headers), min_size=1, max_size=20
)


def built(given_rows: Rows, base: int = 0) -> bytes:
    """Return a batch as aiokafka makes it."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 22)
    for index, (key, value, later_ms, named) in enumerate(given_rows):
        assert builder.append(index, TIME_MS + later_ms, key, value, named) is not None
    data = bytearray(builder.build())
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


def sealed(data: bytes) -> bytes:
    """Return a batch whose length and checksum are right again."""
    data = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
    return data[:17] + calc_crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def is_decoded(data: bytes) -> bool:
    """Tell whether Python decodes a text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(rows, st.integers(0, 2**40), st.booleans())
def test_a_batch_has_the_records_that_aiokafka_finds(given_rows: Rows, base: int, is_appended: bool) -> None:
    """Offsets, times, keys and values are the same, whoever's clock the times are by."""
    data = bytearray(built(given_rows, base))
    data[22] |= 8 if is_appended else 0
    data = sealed(bytes(data))
    expected, end = by_aiokafka(data, "queries", 0, 0)
    found = batches.records(data)
    assert found == [(r.offset, r.timestamp_us, r.key, r.value, len(r.headers)) for r in expected]
    assert end == base + len(found)


@given(st.lists(st.tuples(st.none() | texts, texts), min_size=1, max_size=200))
def test_a_written_batch_is_the_one_that_aiokafka_builds(pairs: list[tuple[bytes | None, bytes]]) -> None:
    """Every byte is the same."""
    assert batches.written(pairs, TIME_MS) == built([(key, value, 0, []) for key, value in pairs])


@given(rows, st.data())
def test_a_spoilt_batch_is_refused(given_rows: Rows, data: st.DataObject) -> None:
    """Whatever bit is another one, the checksum tells; in front of it are length and format."""
    whole = built(given_rows)
    at = data.draw(st.sampled_from([*range(8, 12), *range(16, len(whole))]))
    spoilt = whole[:at] + bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :]
    with pytest.raises(ValueError, match="record batch"):
        batches.records(spoilt)


@given(rows, st.data())
def test_what_contradicts_itself_is_refused_or_read_as_aiokafka_reads_it(given_rows: Rows, data: st.DataObject) -> None:
    """Bytes behind the checksum may be anything, with a checksum that is right: another client has made them."""
    whole = built(given_rows)
    at = data.draw(st.integers(21, len(whole) - 1))
    other = sealed(
        whole[:at] + data.draw(st.binary(min_size=1, max_size=4)) + whole[at + data.draw(st.integers(0, 4)) :]
    )
    try:
        found = batches.records(other)
    except ValueError:
        return
    expected, end = by_aiokafka(other, "queries", 0, 0)
    assert found == [(r.offset, r.timestamp_us, r.key, r.value, len(r.headers)) for r in expected]
    assert end == len(found)


@given(st.integers(0, 255))
def test_attributes_of_a_record_are_read_as_aiokafka_reads_them(attributes: int) -> None:
    """One byte by the protocol; aiokafka takes a number of several bytes, so those with the highest bit are refused."""
    data = bytearray(built([(b"key", b"value", 0, [])]))
    data[62] = attributes
    if attributes < 128:
        assert batches.records(sealed(bytes(data))) == [(0, TIME_MS * 1000, b"key", b"value", 0)]
        return
    with pytest.raises(ValueError, match="contradicts itself"):
        batches.records(sealed(bytes(data)))


@pytest.mark.parametrize(
    "change", [(16, 1), (22, 1), (22, 0x20), (26, 9)], ids=["format", "compressed", "control", "gaps"]
)
def test_another_kind_of_batch_is_refused(change: tuple[int, int]) -> None:
    """Format 1, compressed ones, marks of transactions, and those of compacted topics."""
    data = bytearray(built([(b"a", b"b", 0, [])]))
    data[change[0]] |= change[1]
    with pytest.raises(ValueError, match="record batch"):
        batches.records(sealed(bytes(data)))


@given(
    st.integers(1, 20), st.integers(0, 2**40), st.lists(st.tuples(st.integers(0, 25), st.integers(0, 25)), max_size=6)
)
def test_a_batch_may_be_read_in_slices(count: int, base: int, cuts: list[tuple[int, int]]) -> None:
    """One behind the other, or again from the beginning."""
    data = built([(None, b"value", 0, [])] * count, base)
    wanted = [(base + begin, base + end) for begin, end in cuts]
    expected = [[base + at for at in range(count) if begin <= at < end] for begin, end in cuts]
    assert probes.sliced(wanted, data) == expected


@given(st.binary(max_size=200))
def test_checksums_by_instruction_and_by_table_are_equal(data: bytes) -> None:
    """CRC-32C is CRC-32C."""
    assert probes.checksum(data) == probes.checksum(data, by_table=True) == calc_crc32c(data)


@given(longs)
def test_a_number_is_read_as_it_was_written(number: int) -> None:
    """Zigzag: any number of 64 bits, in as many bytes as it takes."""
    data = probes.number_written(number)
    assert probes.number(data + b"\x80") == (number, len(data))
    assert (number << 1) ^ (number >> 63) == sum((byte & 127) << 7 * at for at, byte in enumerate(data))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\x80\x00", b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01"], ids=lambda data: data.hex()
)
def test_a_number_that_is_cut_off_or_too_long_is_refused(data: bytes) -> None:
    """So are forms that are longer than need be, as `schemas.compiled` refuses them."""
    with pytest.raises(ValueError):  # noqa: PT011 - it says no more
        probes.number(data)


@given(st.binary(max_size=20) | st.text(max_size=20).map(str.encode))
@example(b"\xed\xa0\x80")
@example(b"\xf4\x90\x80\x80")
@example(b"\xe0\x9f\xbf")
@example(b"\xf0\x8f\xbf\xbf")
@example(b"\xc1\xbf")
@example(b"aaaaaaa\xc3")
def test_a_text_is_what_python_decodes(data: bytes) -> None:
    """Neither overlong forms nor surrogates."""
    assert probes.is_text(data) == is_decoded(data)


def test_every_character_of_three_bytes_at_most_is_judged_as_python_judges_it() -> None:
    """All first and second bytes, with usual ones behind."""
    for first in range(128, 256):
        for second in range(256):
            for behind in (b"", b"\x80", b"\x80\x80", b"\xbf\x7f"):
                data = bytes((first, second)) + behind
                assert probes.is_text(data) == is_decoded(data)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["", "a", "é", "🦉" * 40, "b" * 130]), st.integers(1, 99))))
def test_an_id_is_the_same_by_its_text_and_by_its_bytes(steps: list[tuple[bool, str, int]]) -> None:
    """A table may be asked either way at any time."""
    one, mixed = IdTimes(), IdTimes()
    for is_bytes, name, time in steps:
        put = probes.put(mixed, name.encode(), time, 1) if is_bytes else mixed.put(name, time, 1)
        assert put == one.put(name, time, 1)
        assert probes.find(mixed, name.encode()) == mixed.find(name) == one.find(name) == time


@given(st.lists(rows, min_size=1, max_size=5))
def test_joined_batches_are_the_batch_that_aiokafka_builds_of_all_records(parts: list[Rows]) -> None:
    """With the times, keys and headers that they have; every byte is the same."""
    assert batches.joined([built(part) for part in parts]) == built([row for part in parts for row in part])


@given(rows, st.data())
def test_a_batch_that_is_spoilt_or_has_the_brokers_time_is_not_joined(given_rows: Rows, data: st.DataObject) -> None:
    """Nothing is written that was not there."""
    whole = built(given_rows)
    at = data.draw(st.sampled_from([*range(8, 12), *range(16, len(whole))]))
    spoilt = whole[:at] + bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :]
    for bad in (spoilt, sealed(whole[:22] + bytes([whole[22] | 8]) + whole[23:])):
        with pytest.raises(ValueError, match="record batch"):
            batches.joined([whole, bad])
