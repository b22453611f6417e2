"""Fingerprints, canonical forms and framing against Avro's own published vectors."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas import framing
from schemas.avsc import load
from schemas.codec import Codec
from schemas.decoders import reader
from schemas.definitions import CURRENT
from schemas.errors import DecodeError, SchemaError
from schemas.records import Query

VECTORS = Path(__file__).parents[4] / "shared" / "data" / "vectors" / "avro_share_test_data"
needs_vectors = pytest.mark.skipif(not VECTORS.is_dir(), reason="../shared/data/vectors is not on this machine")

# Avro's share/test/data/messageV1: written by the Java implementation.
MESSAGE = bytes.fromhex("c301a92de1f8a242f53d540842696c6c0412646f675f6c6f766572126361745f686174657200")
MESSAGE_SCHEMA = """{"type": "record", "namespace": "org.apache.avro", "name": "TestMessage", "doc": "any", "fields": [
  {"name": "id", "type": "long"},
  {"name": "name", "type": "string", "doc": "not part of the canonical form"},
  {"name": "tags", "type": {"type": "array", "items": "string"}}]}"""


@dataclass
class TestMessage:
    """The record of the vector."""

    __test__ = False
    id: int
    name: str
    tags: tuple[str, ...]


def test_the_single_object_vector_is_read() -> None:
    """Java's message has the fingerprint that we compute, in our order of bytes, and our reader understands it."""
    schema = load(MESSAGE_SCHEMA)
    assert framing.single_object(schema.fingerprint) == MESSAGE[:10]
    message, end = reader(schema, TestMessage)(MESSAGE, framing.SINGLE_OBJECT_BYTES)
    assert (message.id, message.name, message.tags) == (42, "Bill", ("dog_lover", "cat_hater"))
    assert end == len(MESSAGE)


@needs_vectors
def test_the_single_object_vector_is_the_published_one() -> None:
    """The bytes in this file are those of Avro's repository."""
    assert (VECTORS / "messageV1" / "test_message.bin").read_bytes() == MESSAGE


@needs_vectors
def test_fingerprints_agree_with_the_published_ones() -> None:
    """Every case of Avro's schema-tests.txt gives its canonical form and its CRC-64-AVRO."""
    text = re.sub(r"^// ?<<.*$", "", (VECTORS / "schema-tests.txt").read_text("utf-8"), flags=re.MULTILINE)
    checked = 0
    for case in re.split(r"^// \d+$", text, flags=re.MULTILINE)[1:]:
        schema = re.search(r"<<INPUT\s+(.*?)\s*(?:^INPUT\n|<<canonical)", case, re.DOTALL | re.MULTILINE)
        canonical = re.search(r"<<canonical (.*)", case)
        number = re.search(r"<<fingerprint (-?\d+)", case)
        assert schema, case
        assert canonical, case
        form = to_parsing_canonical_form(json.loads(schema[1]))
        assert form == canonical[1].strip()
        if number:
            assert int.from_bytes(bytes.fromhex(fingerprint(form, "CRC-64-AVRO")), "little", signed=True) == int(
                number[1]
            )
            checked += 1
    assert checked > 20


def test_columns_are_plain_bytes_in_the_canonical_form() -> None:
    """Our logical types change no fingerprint, so other implementations read the columns as bytes."""
    form = to_parsing_canonical_form(json.loads(CURRENT["ModelPredictions"].text))
    assert '{"name":"outcomes","type":"bytes"}' in form
    assert "logicalType" not in form


def test_a_change_of_documentation_keeps_the_fingerprint() -> None:
    """What a schema says for people is not part of what it means."""
    text = CURRENT["Query"].text
    changed = load(re.sub(r'"doc": "[^"]*"', '"doc": "other"', text))
    assert changed.fingerprint == CURRENT["Query"].fingerprint


@pytest.mark.parametrize(("number", "framed"), [(1, "0000000001"), (0x01020304, "0001020304"), (0, "0000000000")])
def test_confluent_framing_is_a_zero_and_the_id_big_endian(number: int, framed: str) -> None:
    """The registry's wire format, as its documentation spells it."""
    assert framing.confluent(number).hex() == framed


@pytest.mark.parametrize("number", [-1, 2**31])
def test_ids_out_of_range_are_refused(number: int) -> None:
    """The registry numbers its schemas with a positive int."""
    with pytest.raises(SchemaError):
        framing.confluent(number)


def test_schema_kinds_we_cannot_compile_are_refused_at_once() -> None:
    """A float or a fixed in a schema file is found when it is loaded, not when a record arrives."""
    text = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "float"}]}'
    with pytest.raises(SchemaError, match="float"):
        load(text)
    with pytest.raises(SchemaError, match="record"):
        load('"string"')


class TestPeek:
    """The first fields, without the rest."""

    VALUE = Codec().encode(Query("q-1", "digits", b""))

    def test_the_id_is_read_through_both_framings(self) -> None:
        """Neither framing nor what follows matters."""
        assert framing.peek_id(self.VALUE) == "q-1"
        assert framing.peek_id(framing.confluent(9) + self.VALUE[10:]) == "q-1"
        assert framing.peek_id(framing.confluent(9) + b"\x02q") == "q"
        assert framing.peek_texts(self.VALUE, 2) == ("q-1", "digits")

    def test_long_ids_are_read_too(self) -> None:
        """More than 63 bytes take a size of two bytes."""
        assert framing.peek_id(Codec().encode(Query("ü" * 500, "digits", b""))) == "ü" * 500

    @pytest.mark.parametrize(
        ("value", "cause"),
        [
            (None, "empty"),
            (b"", "empty"),
            (b"\x07" * 20, "unknown_schema"),
            (b"\xc3\x02" + b"\x02" * 20, "unknown_schema"),
            (VALUE[:1], "truncated"),
            (VALUE[:9], "truncated"),
            (VALUE[:12], "truncated"),
            (b"\0\0\0\0", "truncated"),
            (VALUE[:10] + b"\x01abc", "invalid"),
            (VALUE[:10] + b"\x02\xff", "invalid"),
            (VALUE[:10] + b"\x04\xc3", "truncated"),
            (VALUE[:10] + b"\xff" * 20, "invalid"),
            (VALUE[:10] + b"\xfe" * 3, "truncated"),
        ],
    )
    def test_what_is_not_whole_has_a_cause(self, value: bytes | None, cause: str) -> None:
        """The causes are those of the decoder."""
        with pytest.raises(DecodeError) as caught:
            framing.peek_id(value)
        assert caught.value.cause == cause


def test_fastavro_takes_what_we_refuse() -> None:
    """The reason for a reader of our own: a negative branch and a padded number pass through fastavro silently."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "long"]}]}
    assert fastavro.schemaless_reader(io.BytesIO(b"\x01\x0e"), schema, None) == {"x": 7}
    assert fastavro.schemaless_reader(io.BytesIO(b"\x02\x8e\x00"), schema, None) == {"x": 7}
