"""Avro and Protobuf with a registry's framing: read by the schemas that records name, once these are looked up."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2

from deploy.config.protobuf_compiler import compiled
from deploy.errors import UsageError
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Feedback, Prediction, Query, Status
from streams.mapping.errors import MappingError
from streams.mapping.kernel import TopicMapper
from streams.mapping.protobuf import message_type, plain_reader, plain_writer
from streams.mapping.spec import TopicMapping
from streams.mapping.waiting import MOST_BYTES
from streams.operators.contract import LOOKED_UP, DeadLetter, Emit, FetchFeatures, Record

CODEC = Codec()
NOW = 1_700_000_000_000_000
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": ["null", "double"]}],
}
SCORED: dict[str, Any] = {
    "type": "record",
    "name": "Scored",
    "fields": [{"name": "id", "type": "string"}, {"name": "score", "type": ["null", "long"]}],
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 x = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { string item = 1; double price = 2; }
  string id = 1;
  optional double amount = 2;
  repeated Line lines = 3;
  map<string, int64> counts = 4;
  State state = 5;
  google.protobuf.Timestamp at = 6;
  bytes raw = 7;
}
"""
COMPILED = compiled(PROTO)


def mapper(kind: str, **changes: Any) -> TopicMapper:
    """Return a mapper of one application over a registry's schemas."""
    mapping = {
        "from": {"topic": "orders", "format": kind, "schema": "registry", "id": "id", "input": "amount"},
        "to": {"topic": "scored", "format": kind, "schema": "registry", "fields": {"id": "id", "score": "answer"}},
        "feedback": [{"topic": "truths", "id": "id", "label": "truth"}],
    } | changes
    made = TopicMapper(CODEC, 4, {})
    application = Application("fraud", ("forest",), mapping=json.dumps(mapping))
    assert not made.on_records([Record(topics.APPLICATIONS, 0, 0, NOW, b"fraud", CODEC.encode(application))], NOW)
    return made


def given(value: bytes, offset: int = 0, partition: int = 0, topic: str = "/orders") -> Record:
    """Return a record of an outside topic."""
    return Record(topic, partition, offset, NOW, b"k", value)


def told(key: str, number: int = 0, kind: str = "AVRO", text: str = "", references: tuple[str, ...] = ()) -> Record:
    """Return a registry's answer; without a text that it has none."""
    answer = {"id": number, "type": kind, "schema": text, "references": references}
    value = json.dumps(answer).encode() if text else None
    return Record(topics.FEATURES, LOOKED_UP, LOOKED_UP, 0, key.encode(), value)


def framed(number: int, row: dict[str, Any]) -> bytes:
    """Return what Confluent's own client writes."""
    client = SchemaRegistryClient.new_client({"url": "mock://framed"})
    for other in range(1, number):
        client.register_schema(f"filler-{other}", Schema(json.dumps({**SCORED, "name": f"F{other}"}), "AVRO"))
    write = AvroSerializer(client, json.dumps(ORDER))
    return bytes(write(row, SerializationContext("orders", MessageField.VALUE)) or b"")


def asked(effects: list[Any]) -> list[tuple[str, float]]:
    """Return ids and inputs of queries."""
    queries = [CODEC.decode(Query, each.value) for each in effects if isinstance(each, Emit)]
    return [(query.query_id, float(query.input.numpy()[0])) for query in queries]  # type: ignore[union-attr]


def test_a_record_of_an_unknown_id_waits_until_its_schema_is_there_and_those_behind_it_too() -> None:
    """Order is kept within a partition; others go on; each id is asked for once."""
    made = mapper("avro")
    value = framed(1, {"id": "o-1", "amount": 2.5})
    number = int.from_bytes(value[1:5], "big")
    records = [given(value, 0), given(value.replace(b"o-1", b"o-2"), 1), given(b"\x07nonsense", 0, partition=1)]
    fetch, letter = sorted(made.on_records(records, NOW), key=lambda effect: type(effect).__name__ != "FetchFeatures")

    assert fetch == FetchFeatures((f"schema/{number}",))
    assert isinstance(letter, DeadLetter)
    assert made.statistics()["schema_waiting"] == 2
    assert not made.on_records([given(value.replace(b"o-1", b"o-3"), 2)], NOW + 1_000_000)
    effects = made.on_records([told(fetch.keys[0], number, text=json.dumps(ORDER))], NOW + 1_500_000)
    assert asked(effects) == [("o-1", 2.5), ("o-2", 2.5), ("o-3", 2.5)]
    assert made.statistics()["schema_waiting_bytes"] == 0
    assert asked(made.on_records([given(value, 3)], NOW)) == [("o-1", 2.5)]


def test_a_registry_that_does_not_answer_is_asked_again() -> None:
    """A record never waits for a question that was lost."""
    made = mapper("avro")
    (first,) = made.on_records([given(framed(1, {"id": "o", "amount": 1.0}))], NOW)
    due_us = made.needs().deadline_us

    assert due_us is not None
    assert not made.on_timer(due_us - 1)
    assert made.on_timer(due_us) == [first]


def test_an_id_that_the_registry_does_not_have_is_a_dead_letter_and_asked_for_again_after_a_minute() -> None:
    """Those behind it go on."""
    made = mapper("avro")
    bad, good = b"\0\0\0\0\x63zzz", framed(1, {"id": "o", "amount": 1.0})
    number = int.from_bytes(good[1:5], "big")
    made.on_records([given(bad, 0), given(good, 1)], NOW)
    letter, fetch = made.on_records([told("schema/99")], NOW)

    assert isinstance(letter, DeadLetter)
    assert "the registry has no schema 99" in letter.message
    assert fetch == FetchFeatures((f"schema/{number}",))
    made.on_records([told(f"schema/{number}", number, text=json.dumps(ORDER))], NOW)
    (again,) = made.on_records([given(bad, 2)], NOW + 1_000_000)
    assert isinstance(again, DeadLetter)
    assert made.needs().deadline_us is None  # no timer comes: nothing waits
    assert made.on_records([given(bad, 3)], NOW + 62_000_000) == [FetchFeatures(("schema/99",))]


def test_topics_are_left_unread_while_too_much_of_them_waits() -> None:
    """So memory is bounded; they are read on when the schema is there."""
    made = mapper("avro")
    big = b"\0\0\0\0\x09" + bytes(1 << 20)
    made.on_records([given(big, offset) for offset in range(MOST_BYTES >> 20)], NOW)
    assert made.needs().paused == {"/orders"}
    made.on_records([told("schema/9")], NOW)
    assert not made.needs().paused
    made.on_records([given(big)], NOW + 90_000_000)
    made.on_partitions({0: None})
    assert made.statistics()["schema_waiting"] == 0


def test_an_answer_is_written_by_the_latest_schema_of_its_subject() -> None:
    """Confluent's framing; predictions wait for it, too."""
    made = mapper("avro")
    prediction = Prediction("o-1", "fraud", None, None, Status.COMPLETE, None, 3, 1.0, (), 0, 0, 0, 0)
    record = Record(topics.PREDICTIONS, 1, 5, NOW, b"k", CODEC.encode(prediction))
    assert made.on_records([record], NOW) == [FetchFeatures(("subject/scored-value",))]
    (emit,) = made.on_records([told("subject/scored-value", 258, text=json.dumps(SCORED))], NOW)

    assert isinstance(emit, Emit)
    assert emit.value[:5] == b"\0\0\0\1\2"
    assert fastavro.schemaless_reader(io.BytesIO(emit.value[5:]), SCORED, None) == {"id": "o-1", "score": 3}


def test_types_of_other_schemas_are_found_by_their_names() -> None:
    """As references of the registry bring them."""
    money = {"type": "record", "name": "Money", "fields": [{"name": "amount", "type": "double"}]}
    order = {**ORDER, "fields": [ORDER["fields"][0], {"name": "paid", "type": "Money"}]}
    made = mapper("avro", **{"from": {
        "topic": "orders", "format": "avro", "schema": "registry", "id": "id", "input": "paid.amount",
    }})  # fmt: skip
    made.on_records([told("schema/1", 1, text=json.dumps(order), references=(json.dumps(money),))], NOW)
    assert asked(made.on_records([given(b"\0\0\0\0\1\x02o" + b"\0\0\0\0\0\0\xf8\x3f")], NOW)) == [("o", 1.5)]


def message(**fields: Any) -> bytes:
    """Return an order, as Protobuf's own library writes it."""
    return bytes(plain_writer(message_type("test", COMPILED, "shop.Order"))(fields))


# As Confluent's page "Formats, Serializers, and Deserializers" has it: [1] is one number, 1, and both are zigzag.
SECOND = b"\0\0\0\0\x05\x02\x02"


def test_a_message_is_the_one_that_the_frame_names() -> None:
    """Any of a file, also one inside another; `0` is the first."""
    made = mapper("protobuf")
    made.on_records([told("schema/5", 5, "PROTOBUF", COMPILED)], NOW)
    value = message(id="o-1", amount=2.5)
    assert asked(made.on_records([given(SECOND + value)], NOW)) == [("o-1", 2.5)]
    letters = made.on_records(
        [
            given(b"\0\0\0\0\x05\0" + b"\x08\x07", 1),  # `Other` has no id
            given(b"\0\0\0\0\x05\x02\x0e" + value, 2),  # the eighth message
            given(b"\0\0\0\0\x05\x01" + value, 3),  # minus one
            given(b"\0\0\0\0\x05\xff\xff", 4),
            given(SECOND + value[:-1], 5),
        ],
        NOW,
    )
    assert [type(letter) for letter in letters] == [DeadLetter] * 5
    for letter, words in zip(
        letters, ("no such field", "no message at", "-1 deep", "ends before", "is no shop.Order"), strict=True
    ):
        assert words in letter.message  # type: ignore[union-attr]


def test_a_message_is_written_with_the_place_of_its_type() -> None:
    """By default the first of the file; else the named one, however deep."""
    told_scored = "syntax = 'proto3'; message Scored { string id = 1; int64 score = 2; message In { string id = 1; } }"
    prediction = Prediction("o-1", "fraud", None, None, Status.COMPLETE, None, 3, 1.0, (), 0, 0, 0, 0)
    record = Record(topics.PREDICTIONS, 1, 5, NOW, b"k", CODEC.encode(prediction))
    for name, head, body in (("", b"\0", b"\x0a\x03o-1\x10\x03"), ("Scored.In", b"\x04\0\0", b"\x0a\x03o-1")):
        to = {"topic": "scored", "format": "protobuf", "schema": "registry", "message": name,
              "fields": {"id": "id", "score": "answer"}}  # fmt: skip
        made = mapper("protobuf", to=to)
        made.on_records([record], NOW)
        (emit,) = made.on_records([told("subject/scored-value", 6, "PROTOBUF", compiled(told_scored))], NOW)
        assert isinstance(emit, Emit)
        assert emit.value == b"\0\0\0\0\x06" + head + body


def test_fields_of_a_message_are_what_they_are_in_json() -> None:
    """What is not set is null where Protobuf knows it; enumerations by name, maps as objects."""
    read = plain_reader(message_type("test", COMPILED, "shop.Order"))
    empty = read(b"")
    assert empty == {
        "id": "", "amount": None, "lines": [], "counts": {}, "state": "NEW", "at": None, "raw": b"",
    }  # fmt: skip
    full = read(
        message(id="o", amount=0.0, lines=[{"item": "a", "price": 2.0}], counts={"x": 2}, state="PAID",
                at="1970-01-01T00:00:07Z", raw="aGk=")
    )  # fmt: skip
    assert full == {
        "id": "o", "amount": 0.0, "lines": [{"item": "a", "price": 2.0}], "counts": {"x": 2}, "state": "PAID",
        "at": {"seconds": 7, "nanos": 0}, "raw": b"hi",
    }  # fmt: skip


def test_a_schema_of_the_settings_needs_no_registry() -> None:
    """Values have no framing then."""
    made = mapper(
        "protobuf",
        **{
            "from": {
                "topic": "orders", "format": "protobuf", "schema": COMPILED, "message": "shop.Order", "id": "id",
                "input": "amount",
            },
            "to": None,
        },
    )  # fmt: skip
    assert asked(made.on_records([given(message(id="o", amount=1.5))], NOW)) == [("o", 1.5)]
    with pytest.raises(MappingError, match=r"has no message shop\.Nothing; there are: shop.Order, shop.Other"):
        message_type("schema", COMPILED, "shop.Nothing")
    with pytest.raises(MappingError, match=r"from\.schema: is needed for protobuf"):
        TopicMapping.of({"from": {"topic": "orders", "format": "protobuf", "input": "x"}})


def test_a_compiled_schema_brings_what_it_imports_and_its_own_file_last() -> None:
    """Imports come from beside it, and never from outside of its folder."""
    text = 'syntax = "proto3"; import "money.proto"; message Paid { Money money = 1; }'
    money = 'syntax = "proto3"; message Money { double amount = 1; }'
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(compiled(text, {"money.proto": money}))).file
    assert [file.name for file in files] == ["money.proto", "schema.proto"]
    with pytest.raises(UsageError, match="Expected"):
        compiled("message {")
    with pytest.raises(UsageError, match="leaves its folder"):
        compiled(text, {"../money.proto": money})


def test_feedback_is_read_by_the_same_schemas() -> None:
    """JSON beside Avro: each topic has its own form."""
    made = mapper("avro")
    (emit,) = made.on_records([given(b'{"id": "o-1", "truth": 1}', topic="/truths")], NOW)
    assert isinstance(emit, Emit)
    assert CODEC.decode(Feedback, emit.value).query_id == "o-1"
