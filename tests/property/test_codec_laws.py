"""Laws of the codec: what is written is read back, and whatever arrives is read or refused with one error."""

from __future__ import annotations

import io
import json
import random
import time
from functools import partial
from typing import TYPE_CHECKING

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import wire
from schemas.codec import Codec
from schemas.definitions import CURRENT, RECORDS
from schemas.errors import DecodeError
from schemas.framing import peek_id, peek_texts
from schemas.records import Application, Feedback, Query, Tensor
from tests.samples import ALL
from tests.strategies import ANY_RECORD, LONGS

if TYPE_CHECKING:
    from collections.abc import Callable

CODEC = Codec()
HEAD = 10
KINDS = st.sampled_from(RECORDS)
CAUSES = {"empty", "oversized", "unknown_schema", "truncated", "trailing", "invalid"}


def attempt(read: Callable[[], object]) -> object:
    """Return what is read, or the DecodeError; any other exception is a failure of the test."""
    try:
        return read()
    except DecodeError as refusal:
        return refusal


def decoded_or_refused(record: type, value: bytes) -> object | None:
    """Decode; None stands for a DecodeError with a known cause and a short message."""
    result = attempt(lambda: CODEC.decode(record, value))
    if not isinstance(result, DecodeError):
        return result
    assert result.cause in CAUSES
    assert len(result.message) < 300
    return None


def head_of(record: type) -> bytes:
    """Return the framing of a kind of record."""
    return b"\xc3\x01" + CURRENT[record.__name__].fingerprint


@given(ANY_RECORD)
def test_what_is_written_is_read_back(record: object) -> None:
    """Every record that the schemas have a place for comes back equal."""
    value = CODEC.encode(record)
    assert CODEC.decode(type(record), value) == record
    if hasattr(record, "query_id"):
        assert peek_id(value) == record.query_id  # type: ignore[attr-defined]


@given(ANY_RECORD)
def test_fastavro_reads_the_same_and_writes_the_same(record: object) -> None:
    """An independent implementation takes our bytes for the same values."""
    schema = json.loads(CURRENT[type(record).__name__].text)
    value = CODEC.encode(record)[HEAD:]
    document = fastavro.schemaless_reader(io.BytesIO(value), schema, None, return_named_type=True)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, document)
    assert out.getvalue() == value


@given(KINDS, st.binary(max_size=300))
def test_any_bytes_decode_or_are_refused(record: type, noise: bytes) -> None:
    """With our framing before them, and without."""
    decoded_or_refused(record, noise)
    decoded_or_refused(record, head_of(record) + noise)


@settings(max_examples=150)
@given(st.sampled_from(ALL), st.data())
def test_spoilt_records_decode_or_are_refused(record: object, data: st.DataObject) -> None:
    """A few bytes changed, cut out or put in: what still decodes is a whole record that can be written again."""
    value = bytearray(CODEC.encode(record))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEAD, len(value)))
        width = data.draw(st.integers(0, 2))
        value[at : at + width] = data.draw(st.binary(max_size=11))
    decoded = decoded_or_refused(type(record), bytes(value))
    if decoded is not None:
        again = CODEC.encode(decoded)
        assert CODEC.decode(type(record), again) == decoded


@given(st.sampled_from(ALL), st.data())
def test_what_we_accept_means_the_same_to_fastavro(record: object, data: st.DataObject) -> None:
    """Being strict only ever refuses: it never reads something else."""
    value = bytearray(CODEC.encode(record))
    value[data.draw(st.integers(HEAD, len(value) - 1))] = data.draw(st.integers(0, 255))
    decoded = decoded_or_refused(type(record), bytes(value))
    if decoded is None:
        return
    schema = json.loads(CURRENT[type(record).__name__].text)
    theirs = fastavro.schemaless_reader(io.BytesIO(bytes(value[HEAD:])), schema, None, return_named_type=True)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, theirs)
    assert CODEC.encode(decoded)[HEAD:] == out.getvalue()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@pytest.mark.parametrize("seed", range(4))
def test_100_kilobytes_of_garbage_are_refused(record: type, seed: int) -> None:
    """Noise, zeros, or one byte over and over: no crash, no hang, no gigabyte."""
    garbage = [random.Random(seed).randbytes(100_000), bytes(100_000), b"\xff" * 100_000, b"\x02" * 100_000][seed]
    assert decoded_or_refused(record, garbage) is None
    assert decoded_or_refused(record, head_of(record) + garbage) is None


def _in_single_blocks(count: int) -> bytes:
    """Return a query whose features are `count` blocks of one number each, as no writer of ours makes them."""
    whole = CODEC.encode(Query("q", "digits", "text", features=(0.5,)))
    block = wire.write_long(1) + wire.pack_double(0.5)
    return whole.replace(block, block * count)


def test_arrays_of_many_blocks_are_read_in_linear_time() -> None:
    """Eight times the blocks take about eight times as long, where copying all at each block takes 64 times."""

    def seconds(value: bytes) -> float:
        started = time.process_time()
        CODEC.decode(Query, value)
        return time.process_time() - started

    small, large = _in_single_blocks(5_000), _in_single_blocks(40_000)
    assert len(CODEC.decode(Query, large).features) == 40_000
    assert min(seconds(large) for _ in range(5)) < 24 * min(seconds(small) for _ in range(9))


SMALL = Tensor("uint8", (2, 3, 5, 7), bytes(210))


@pytest.mark.parametrize(
    "record", [Query("q", "d", SMALL), Feedback("q", SMALL), Application("d", (), default_output=SMALL)]
)
def test_a_tensor_larger_than_any_memory_is_refused(record: object) -> None:
    """Dimensions whose product takes more than 64 bits are an invalid record, not an exception of another kind."""
    dimensions = [b"".join(map(wire.write_int, shape)) for shape in (SMALL.shape, (2**31 - 1,) * 4)]
    value = CODEC.encode(record)
    assert dimensions[0] in value
    with pytest.raises(DecodeError, match="more than 2147483647 bytes"):
        CODEC.decode(type(record), value.replace(*dimensions))


@given(st.binary(max_size=40), st.integers(1, 3))
def test_peeking_reads_or_refuses(noise: bytes, count: int) -> None:
    """A look at the first fields of any bytes ends in texts or in a DecodeError, and both ways to look agree."""
    for value in (noise, b"\0\0\0\0\x01" + noise, b"\xc3\x0112345678" + noise):
        one, first = attempt(partial(peek_id, value)), attempt(partial(peek_texts, value, 1))
        several = attempt(partial(peek_texts, value, count))
        expected = getattr(first, "cause", first)
        assert getattr(one, "cause", (one,)) == expected
        assert isinstance(several, tuple) or getattr(several, "cause", None) in CAUSES


@given(LONGS, st.binary(max_size=9))
def test_numbers_are_read_whatever_follows(number: int, rest: bytes) -> None:
    """The path for eight bytes at once and the loop are one function."""
    value = wire.write_long(number)
    assert wire.read_long(value + rest, 0) == (number, len(value))


@given(st.binary(min_size=1, max_size=12))
def test_a_number_has_one_spelling(noise: bytes) -> None:
    """Bytes that are read as a number are the bytes that write it."""
    try:
        number, end = wire.read_long(noise, 0)
    except (DecodeError, IndexError):
        return
    assert wire.write_long(number) == noise[:end]
