"""Records to bytes and back, and what is refused on either way."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, cast

import fastavro
import numpy as np
import pytest

from schemas import avsc, records, wire
from schemas.codec import Codec
from schemas.compiling import IS_COMPILED, reader_of_one
from schemas.definitions import CURRENT, RECORDS, field_names
from schemas.errors import DecodeError, SchemaError
from schemas.records import (
    Feedback,
    JoinStatus,
    Measurements,
    ModelPredictions,
    Observation,
    Observations,
    Outcome,
    PolicyState,
    Prediction,
    Query,
    Status,
    Tensor,
)
from tests.samples import ALL, DECISION, FULL, ROW, SEEN, name_of

if TYPE_CHECKING:
    from enum import Enum

CODEC = Codec()
IDS = {name: number for number, name in enumerate(CURRENT, start=1)}
HEAD = 10


def body(value: bytes) -> bytes:
    """Return what follows the single-object framing."""
    return value[HEAD:]


def refusal(record: type, value: bytes | None) -> str:
    """Return the cause for which a value is refused."""
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(record, value)
    assert caught.value.message
    return caught.value.cause


@pytest.mark.parametrize("record", ALL, ids=name_of)
def test_a_record_comes_back_equal(record: object) -> None:
    """Every record survives its trip through bytes, with Avro's framing and with the registry's."""
    for codec in (CODEC, Codec(IDS)):
        assert codec.decode(type(record), codec.encode(record)) == record


@pytest.mark.parametrize("record", ALL, ids=name_of)
def test_fastavro_reads_and_writes_the_same_bytes(record: object) -> None:
    """The bytes are plain Avro: an independent implementation decodes them and encodes them back alike."""
    schema = json.loads(CURRENT[type(record).__name__].text)
    value = body(CODEC.encode(record))
    document = fastavro.schemaless_reader(io.BytesIO(value), schema, None, return_named_type=True)
    again = io.BytesIO()
    fastavro.schemaless_writer(again, schema, document)
    assert again.getvalue() == value


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_schema_and_class_have_the_same_fields_in_the_same_order(record: type) -> None:
    """Each schema file lists exactly the fields of its class, and its nested records those of theirs."""
    for inner in avsc.records_within(CURRENT[record.__name__].record):
        names = list(field_names(getattr(records, inner.name)))
        assert [field.name for field in inner.fields] == names


@pytest.mark.parametrize("enumeration", [Status, Outcome, JoinStatus])
def test_symbols_are_those_of_the_enumeration(enumeration: type[Enum]) -> None:
    """A column of outcomes counts on the class and the schemas having one order."""
    text = "".join(schema.text for schema in CURRENT.values())
    symbols = json.dumps([member.value for member in enumeration])
    assert f'"symbols": {symbols}' in text


def test_query_ids_come_first() -> None:
    """What is about one query starts with its id, so that it can be read alone."""
    for name in ("Query", "Prediction", "Feedback", "Observation"):
        assert CURRENT[name].record.fields[0].name == "query_id"


def test_an_observation_alone_is_read_as_observations_too() -> None:
    """Whoever reads the log asks for several, and takes what was written as one; not the other way round."""
    assert CODEC.decode(Observations, CODEC.encode(SEEN)) == Observations((SEEN,))
    assert CODEC.decode(Observations, CODEC.encode(Observations((SEEN, SEEN)))) == Observations((SEEN, SEEN))
    assert refusal(Observation, CODEC.encode(Observations((SEEN,)))) == "unknown_schema"
    assert refusal(Observations, CODEC.encode(SEEN)[:-1]) == "truncated"


def test_what_is_read_alone_is_the_same_compiled_and_not() -> None:
    """The compiled reader of one item and the Python one."""
    schema, value = CURRENT["Observation"], CODEC.encode(SEEN)
    read = [reader_of_one(schema, Observations, is_compiled=compiled) for compiled in (IS_COMPILED, False)]
    assert [each(value, HEAD) for each in read] == [(Observations((SEEN,)), len(value))] * 2


def test_a_query_of_64_floats_takes_317_bytes() -> None:
    """Framing and fields cost 61 bytes on top of the 256 of the input, and an unset option one byte."""
    query = Query("q-0123456789abcdef", "digits", ROW, None, 1_766_000_000_000_000)
    assert len(CODEC.encode(query)) == 317


def test_a_column_costs_its_width_a_row() -> None:
    """A row of model predictions costs its id, one byte of outcome, four of waiting and eight of an int64 answer."""

    def size(rows: int) -> int:
        ids = tuple(f"{row:016x}" for row in range(rows))
        outcomes = (Outcome.OK,) * rows
        answers = Tensor.of(np.zeros(rows, np.int64))
        batch = ModelPredictions("m", "1", "w", ids, outcomes, answers, None, (0,) * rows, 0, 0, 0, 0)
        return len(CODEC.encode(batch))

    assert size(1200) - size(1100) == 100 * (17 + 1 + 4 + 8)


def test_readers_of_observations_see_none_in_measurements() -> None:
    """Both stand in one topic: nobody learns from a measurement, and bytes that are none are refused all the same."""
    value = CODEC.encode(next(record for record in FULL if isinstance(record, Measurements)))
    assert CODEC.decode(Observations, value) == Observations(())
    assert refusal(Observations, value[:-1]) == "truncated"


def test_the_registrys_framing_is_written_when_ids_are_given() -> None:
    """A zero byte and the id, big endian, stand before the record; both framings are read."""
    codec = Codec(IDS)
    value = codec.encode(FULL[0])
    assert value[:5] == bytes((0, 0, 0, 0, IDS["Query"]))
    assert value[5:] == body(CODEC.encode(FULL[0]))
    assert codec.decode(Query, CODEC.encode(FULL[0])) == FULL[0]


def test_a_foreign_id_is_read_once_it_is_accepted() -> None:
    """An id under which the registry holds an allow-listed schema is as good as our own."""
    value = b"\0\0\0\x01\x00" + body(CODEC.encode(FULL[0]))
    assert refusal(Query, value) == "unknown_schema"
    assert Codec(accepted={256: CURRENT["Query"].fingerprint}).decode(Query, value) == FULL[0]


def test_an_id_for_an_unknown_schema_cannot_be_accepted() -> None:
    """The allow-list is closed: a fingerprint that was never released is refused at the start."""
    with pytest.raises(SchemaError, match=r"\[7\]"):
        Codec(accepted={7: b"12345678"})


def test_ids_must_name_every_record() -> None:
    """A codec that could not write one record with the registry's framing is refused at once."""
    with pytest.raises(SchemaError, match="ModelQueries"):
        Codec({"Query": 1})


@pytest.mark.parametrize("value", [None, b""])
def test_no_value_is_empty(value: bytes | None) -> None:
    """A tombstone and an empty value have a cause of their own."""
    assert refusal(Query, value) == "empty"


def test_an_oversized_value_is_refused_unread() -> None:
    """One byte above the limit is refused in both directions, the limit itself is not."""
    value = CODEC.encode(FULL[0])
    assert Codec(max_bytes=len(value)).decode(Query, value) == FULL[0]
    with pytest.raises(DecodeError, match="oversized"):
        Codec(max_bytes=len(value) - 1).decode(Query, value)
    with pytest.raises(SchemaError, match="Query"):
        Codec(max_bytes=len(value) - 1).encode(FULL[0])


@pytest.mark.parametrize("value", [b"\x01\x02\x03", b"\xc3\x02" + bytes(20), b"\xc3\x01" + bytes(20), bytes(5), b"{}"])
def test_other_framings_and_schemas_are_unknown(value: bytes) -> None:
    """No framing, a wrong version of it, and ids that are not on the allow-list have one cause."""
    assert refusal(Query, value) == "unknown_schema"


def test_a_record_of_another_kind_is_unknown() -> None:
    """A prediction on the topic of queries is not decoded as something it is not."""
    assert refusal(Query, CODEC.encode(FULL[3])) == "unknown_schema"


@pytest.mark.parametrize("record", FULL, ids=name_of)
def test_every_shorter_value_is_truncated(record: object) -> None:
    """Whatever is missing at the end, the cause is that something is missing."""
    value = CODEC.encode(record)
    assert {refusal(type(record), value[:length]) for length in range(1, len(value))} == {"truncated"}


@pytest.mark.parametrize("record", ALL, ids=name_of)
def test_trailing_bytes_are_refused(record: object) -> None:
    """Nothing may follow a record."""
    assert refusal(type(record), CODEC.encode(record) + b"\0") == "trailing"


def feedback(label: bytes, loss: bytes = b"\0", sent: bytes = b"\0") -> bytes:
    """Return feedback with hand-made fields."""
    return CODEC.encode(FULL[4])[:HEAD] + b"\x02q" + label + loss + sent + b"\0\0\0"  # no weight, nobody's


def tensor(layout: bytes, data: bytes) -> bytes:
    """Return feedback whose label is a tensor with a hand-made layout."""
    return feedback(b"\x08" + layout + wire.write_long(len(data)) + data)


def test_hand_made_bytes_are_read() -> None:
    """The bytes that the next tests spoil are right as they stand."""
    assert CODEC.decode(Feedback, feedback(b"\x02\x0e")) == Feedback("q", 7)
    assert CODEC.decode(Feedback, tensor(b"\x04\x02\x06\0", b"abc")) == Feedback("q", Tensor("int8", (3,), b"abc"))
    assert CODEC.decode(Feedback, tensor(b"\x04\0", b"a")) == Feedback("q", Tensor("int8", (), b"a"))
    assert CODEC.decode(Feedback, tensor(b"\x04\x04\0\x06\0", b"")) == Feedback("q", Tensor("int8", (0, 3), b""))
    assert CODEC.decode(Feedback, tensor(b"\x04\x01\x02\x06\0", b"abc")) == Feedback("q", Tensor("int8", (3,), b"abc"))


@pytest.mark.parametrize(
    "value",
    {
        "a union's branch that is too high": feedback(b"\x0c"),
        "a union's branch below zero": feedback(b"\x01"),
        "a union's branch of two bytes": feedback(b"\x80\x01"),
        "a number of eleven bytes": feedback(b"\x02" + b"\xff" * 10 + b"\x01"),
        "a number of 65 bits": feedback(b"\x02" + b"\xff" * 9 + b"\x03"),
        "a padded number": feedback(b"\x02\x8e\x00"),
        "not a number": feedback(b"\x04" + wire.pack_double(float("nan"))),
        "an infinite loss": feedback(b"\0", b"\x02" + wire.pack_double(float("inf"))),
        "text that is not UTF-8": feedback(b"\x06\x02\xff"),
        "text of negative length": feedback(b"\x06\x01"),
        "an unknown dtype": tensor(b"\x16\x02\x06\0", b"abc"),
        "a dtype below zero": tensor(b"\x01\x02\x06\0", b"abc"),
        "a negative dimension": tensor(b"\x04\x02\x05\0", b"abc"),
        "two negative dimensions": tensor(b"\x04\x04\x01\x05\0", b"abc"),
        "ten dimensions": tensor(b"\x04\x14" + b"\x02" * 10 + b"\0", b"a"),
        "a dimension of 33 bits": tensor(b"\x04\x02" + wire.write_long(2**32) + b"\0", b"a"),
        "fewer elements than the shape says": tensor(b"\x04\x02\x08\0", b"abc"),
        "elements of the wrong size": tensor(b"\0\x02\x06\0", b"abc"),
    }.items(),
    ids=lambda case: cast("tuple[str, bytes]", case)[0],
)
def test_invalid_bytes_are_refused(value: tuple[str, bytes]) -> None:
    """Each of these decodes, or fails without a word, in fastavro; here all have the cause `invalid`."""
    assert refusal(Feedback, value[1]) == "invalid"


def test_an_unknown_symbol_is_refused() -> None:
    """A status that nobody defined, or one below zero, is no status."""
    value = CODEC.encode(FULL[5])
    at = value.index(wire.pack_double(7.5)) + 8
    assert value[at] == 2
    for symbol in (4, 1, 3, 255):
        assert refusal(Observation, value[:at] + bytes((symbol,)) + value[at + 1 :]) == "invalid"


def test_a_boolean_is_zero_or_one() -> None:
    """Fastavro takes any byte for True."""
    value = CODEC.encode(FULL[7])
    at = value.index(wire.pack_double(20.0)) - 1
    assert refusal(type(FULL[7]), value[:at] + b"\x02" + value[at + 1 :]) == "invalid"


def test_an_infinite_state_is_refused() -> None:
    """Arrays of numbers are checked as single ones are; a sum that overflows is no reason."""
    big = PolicyState("p", (), 0, (1.7e308, 1.7e308))
    value = CODEC.encode(big)
    assert CODEC.decode(PolicyState, value) == big
    assert refusal(PolicyState, value.replace(wire.pack_double(1.7e308), wire.pack_double(float("inf")))) == "invalid"


def test_an_outcome_beyond_the_known_is_refused() -> None:
    """A byte of the column of outcomes that stands for none is invalid."""
    value = CODEC.encode(FULL[2])
    at = value.index(b"\x04\x00\x02", HEAD)
    assert refusal(ModelPredictions, value[:at] + b"\x04\x00\x07" + value[at + 3 :]) == "invalid"


@pytest.mark.parametrize(
    "change",
    [
        {"outcomes": (Outcome.OK,)},
        {"waited_us": (1, 2, 3)},
        {"answers": ("a",)},
        {"answers": Tensor.of(np.zeros((3, 2)))},
        {"scores": Tensor.of(np.array(1.0))},
    ],
    ids=str,
)
def test_columns_of_unequal_length_are_refused(change: dict[str, object]) -> None:
    """A batch whose columns disagree about its rows is refused by the writer and, from another writer, the reader."""
    batch = cast("ModelPredictions", FULL[2])
    uneven = batch._replace(**change)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=next(iter(change))):
        CODEC.encode(uneven)
    schema = json.loads(CURRENT["ModelPredictions"].text)
    document = cast(
        "dict[str, object]", fastavro.schemaless_reader(io.BytesIO(body(CODEC.encode(batch))), schema, None)
    )
    column = next(iter(change))
    encoded = {"outcomes": b"\0", "waited_us": bytes(12), "answers": ["a"], "scores": None}
    if column != "scores" and not isinstance(change[column], Tensor):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {**document, column: encoded[column]})
        assert refusal(ModelPredictions, CODEC.encode(batch)[:HEAD] + out.getvalue()) == "invalid"


def test_blocks_of_other_writers_are_read() -> None:
    """Avro lets a writer split arrays into blocks and put their size in bytes before them."""
    state = PolicyState("p", ("a", "b"), 1, (1.0, 2.0))
    arms = b"\x02\x02a" + b"\x01\x04\x02b" + b"\0"
    values = b"\x02" + wire.pack_double(1.0) + b"\x01\x10" + wire.pack_double(2.0) + b"\0"
    head = CODEC.encode(state)[:HEAD]
    assert CODEC.decode(PolicyState, head + b"\x02p" + arms + b"\x02" + values + b"\0\0\0\0") == state


@pytest.mark.parametrize("count", [2**20, 2**40, 2**62, -(2**62)])
def test_an_announced_number_of_items_allocates_nothing(count: int) -> None:
    """A few bytes that announce a billion items are refused before room is made for them."""
    head = CODEC.encode(FULL[10])[:HEAD] + b"\x02p"
    for value in (head + wire.write_long(count), head + b"\0\x02" + wire.write_long(count)):
        assert refusal(PolicyState, value) in {"truncated", "invalid"}


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (Query("q", "a", cast("str", 7)), "Query.input"),
        (Query(cast("str", 7), "a", b""), "Query.query_id"),
        (Query("\ud800", "a", b""), "Query.query_id"),
        (Query("q", "a", b"", slo_ms=float("nan")), "Query.slo_ms"),
        (Query("q", "a", b"", sent_us=2**63), "Query.sent_us"),
        (Query("q", "a", b"", sent_us=cast("int", 1.5)), "Query.sent_us"),
        (Query("q", "a", Tensor("float32", (3,), b"1234")), "Query.input"),
        (Query("q", "a", Tensor("float16", (2,), b"1234")), "Query.input"),
        (Query("q", "a", Tensor("int8", (-1, -4), b"1234")), "Query.input"),
        (Feedback("q", cast("int", np.int64(3))), "Feedback.label"),
        (PolicyState("p", cast("tuple[str, ...]", "ab"), 0, ()), "PolicyState.arms"),
        (PolicyState("p", (), 0, (float("inf"),)), "PolicyState.values"),
        (cast("Prediction", FULL[3])._replace(status=cast("Status", "partial")), "Prediction.status"),
        (cast("ModelPredictions", FULL[2])._replace(waited_us=(1, 2**31)), "ModelPredictions.waited_us"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_what_does_not_fit_is_named(record: object, field: str) -> None:
    """Misuse is a ValueError that says which field of which record it is about."""
    with pytest.raises(SchemaError, match=field) as caught:
        CODEC.encode(record)
    assert isinstance(caught.value, ValueError)


def test_only_whole_records_travel() -> None:
    """A nested record, or anything else, cannot be written by itself."""
    with pytest.raises(SchemaError, match="Decision"):
        CODEC.encode(DECISION)


def test_decoded_records_are_as_frozen_as_others() -> None:
    """Readers build records without their constructors, yet return ordinary frozen ones with a hash."""
    query = CODEC.decode(Query, CODEC.encode(FULL[0]))
    assert hash(query) == hash(FULL[0])
    with pytest.raises(AttributeError):
        query.query_id = "other"  # type: ignore[misc]
