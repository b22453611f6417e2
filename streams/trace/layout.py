"""One record in a part of a trace: decoded, so that any Avro tool shows it, and bit for bit as it was in Kafka.

    partition | offset | timestamp_us | key | headers | framing | size | value
                                                                        └ null, bytes, or the topic's record

Avro encodes a record as its fields in a row. So the value's own encoding can stand where the field is, behind its union
branch. `framing` holds what stood before it in Kafka, `size` its bytes: a reader takes them without decoding.
"""

from __future__ import annotations

import io
import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from schemas import framing, records, topics
from schemas.definitions import CURRENT
from schemas.errors import FormatError
from schemas.wire import read_size, write_long
from streams import topology
from streams.operators.contract import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.avsc import Json
    from schemas.codec import Codec

_NULL, _BYTES, _RECORD = (write_long(branch) for branch in range(3))
_FIELDS: Final[list[dict[str, Json]]] = [
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "timestamp_us", "type": "long", "doc": "Kafka's timestamp, microseconds since the epoch."},
    {"name": "key", "type": ["null", "bytes"]},
    {
        "name": "headers",
        "type": {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Header",
                "fields": [{"name": "name", "type": "string"}, {"name": "value", "type": ["null", "bytes"]}],
            },
        },
    },
    {"name": "framing", "type": "bytes", "doc": "What stands before the value in Kafka and names its schema."},
    {"name": "size", "type": "int", "doc": "Bytes of the value, without framing."},
]
_ENVELOPE: Final[Any] = parse_schema({"type": "record", "namespace": "trace", "name": "Envelope", "fields": _FIELDS})


class Packed(NamedTuple):
    """A record as bytes of a part, and the schema that its value was written under, if it is known."""

    data: bytes
    schema: str | None


def record_of(topic: str) -> type | None:
    """Return the class of a topic's values; a dead letter is what its source topic carries."""
    source = topic.removesuffix(topics.dead_letters(""))
    models = [source.split(".")[1]] if source.startswith("models.") else []
    known = topology.build(models).topics
    return getattr(records, known[source].value, None) if source in known else None


@cache
def schema_of(record: type | None) -> Any:
    """Return the parsed schema of a part whose values are of this class."""
    value: list[Json] = ["null", "bytes"]
    if record is not None:
        value.append(json.loads(CURRENT[record.__name__].text))
    fields: list[dict[str, Json]] = [*_FIELDS, {"name": "value", "type": value}]
    return parse_schema({"type": "record", "namespace": "trace", "name": "Recorded", "fields": fields})


def pack(one: Record, record: type | None, codec: Codec) -> Packed:
    """Return a record's bytes; its value decoded if it is a whole record in the current schema, else as bytes."""
    value = one.value or b""
    start = _start(value, record, codec) if record is not None else 0
    schema = framing.describe(value) if start else None
    out = io.BytesIO()
    headers = [{"name": name, "value": content} for name, content in one.headers]
    envelope = one._asdict() | {"headers": headers, "framing": value[:start], "size": len(value) - start}
    schemaless_writer(out, _ENVELOPE, envelope)
    if one.value is None:
        tail = _NULL
    elif start:
        tail = _RECORD + value[start:]
    else:
        tail = _BYTES + write_long(len(value)) + value
    out.write(tail)
    return Packed(out.getvalue(), schema)


def _start(value: bytes, record: type, codec: Codec) -> int:
    """Return where a record begins behind its framing; 0 if the current schema would write it otherwise."""
    try:
        again = codec.encode(codec.decode(record, value))
    except FormatError:
        return 0
    start = framing.SINGLE_OBJECT_BYTES if value[0] else framing.CONFLUENT_BYTES
    other = framing.SINGLE_OBJECT_BYTES if again[0] else framing.CONFLUENT_BYTES
    return start if value[start:] == again[other:] else 0


def unpack(topic: str, block: io.BytesIO, count: int) -> Iterator[Record]:
    """Yield the records of a block that has been inflated."""
    data = block.getvalue()
    for _ in range(count):
        given: Any = schemaless_reader(block, _ENVELOPE, None)
        branch, size = block.read(1), given["size"]
        if branch == _BYTES:
            block.seek(read_size(data, block.tell())[1])
        value = None if branch == _NULL else given["framing"] + block.read(size)
        headers = tuple((header["name"], header["value"]) for header in given["headers"])
        yield Record(topic, given["partition"], given["offset"], given["timestamp_us"], given["key"], value, headers)
