"""Laws of the codec: what is written is read back, and whatever arrives is read or refused with one error."""

from __future__ import annotations

import io
import json
import math
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import avsc, records, wire
from schemas.codec import Codec
from schemas.definitions import CURRENT, RECORDS, members
from schemas.errors import DecodeError
from schemas.framing import peek_id, peek_texts
from schemas.records import DTYPES, ModelPredictions, ModelQueries, Outcome, Tensor
from tests.samples import ALL

if TYPE_CHECKING:
    from collections.abc import Callable

CODEC = Codec()
HEAD = 10
KINDS = st.sampled_from(RECORDS)

TEXT = st.text(st.characters(codec="utf-8"), max_size=80)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70) | st.integers(2**48 - 2, 2**48 + 2)
INTS = st.integers(-(2**31), 2**31 - 1)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": INTS,
    "long": LONGS,
    "double": DOUBLES,
    "string": TEXT,
    "bytes": st.binary(max_size=100),
    "outcomes": st.lists(st.sampled_from(Outcome), max_size=5).map(tuple),
    "int32s": st.lists(INTS, max_size=5).map(tuple),
    "int64s": st.lists(LONGS, max_size=5).map(tuple),
}


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Draw a tensor whose bytes are anything of the right length."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3) | st.lists(st.just(1), max_size=8)))
    size = math.prod(shape) * wire.ITEM_BYTES[dtype]
    return Tensor(dtype, shape, draw(st.binary(min_size=size, max_size=size)))


def values(kind: avsc.Type) -> st.SearchStrategy[Any]:  # noqa: PLR0911  (a table: one line a type)
    """Return a strategy for every value a type has a place for."""
    match kind:
        case avsc.Primitive(name):
            return PRIMITIVES[name]
        case avsc.Enumeration():
            return st.sampled_from(members(kind))
        case avsc.Array(items):
            return st.lists(values(items), max_size=4).map(tuple) | st.lists(values(items), max_size=1).map(tuple)
        case avsc.Map(items):
            return st.dictionaries(TEXT, values(items), max_size=4)
        case avsc.Union(branches):
            return st.one_of([values(branch) for branch in branches])
        case avsc.Record(name="Tensor"):
            return tensors()
        case avsc.Record(name, fields):
            return st.builds(getattr(records, name), **{field.name: values(field.type) for field in fields})


def batches() -> st.SearchStrategy[ModelPredictions]:
    """Return a strategy for model predictions whose columns agree."""
    return st.integers(0, 70).flatmap(
        lambda rows: st.builds(
            ModelPredictions,
            query_ids=st.just(tuple(f"q-{row}" for row in range(rows))),
            outcomes=st.lists(st.sampled_from(Outcome), min_size=rows, max_size=rows).map(tuple),
            answers=st.just(tuple("a" * rows)) | st.just(Tensor("int8", (rows,), bytes(rows))),
            scores=st.none() | st.just(Tensor("uint8", (rows, 2), bytes(2 * rows))),
            waited_us=st.lists(INTS, min_size=rows, max_size=rows).map(tuple),
            **dict.fromkeys(("predict_us", "batch_rows", "batch_cap", "queue_rows"), INTS),
            **dict.fromkeys(("model", "version", "worker"), TEXT),
        )
    )


def asked() -> st.SearchStrategy[ModelQueries]:
    """Return a strategy for model queries whose columns agree."""
    return st.integers(0, 70).flatmap(
        lambda rows: st.builds(
            ModelQueries,
            query_ids=st.just(tuple(f"q-{row}" for row in range(rows))),
            reply_partition=INTS,
            due_us=st.lists(LONGS, min_size=rows, max_size=rows).map(tuple),
            inputs=st.just(Tensor("uint8", (rows, 2), bytes(2 * rows)))
            | st.lists(TEXT | st.binary(max_size=9), min_size=rows, max_size=rows).map(tuple),
            priorities=st.just(()) | st.lists(INTS, min_size=rows, max_size=rows).map(tuple),
            spare_us=LONGS,
        )
    )


BATCHES = {ModelPredictions: batches(), ModelQueries: asked()}
ANY_RECORD = st.one_of([
    BATCHES[record] if record in BATCHES else values(CURRENT[record.__name__].record) for record in RECORDS
])  # fmt: skip


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
