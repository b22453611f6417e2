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

from fastavro import parse_schema, schemaless_writer

from schemas import framing, records, topics
from schemas.definitions import CURRENT
from schemas.errors import DecodeError, FormatError
from schemas.wire import read_count, read_int, read_long, read_size, write_long
from streams import topology
from streams.operators.contract import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.avsc import Json
    from schemas.codec import Codec

# Of a record, the first ones: each takes a reader thirty times its bytes.
HEADERS: Final = 1 << 16
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
    headers = [{"name": name, "value": content} for name, content in one.headers[:HEADERS]]
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


def unpack(topic: str, data: bytes, count: int) -> Iterator[Record]:
    """Yield the records of a block.

    Raises:
        DecodeError, IndexError, UnicodeDecodeError: it does not hold so many records and nothing else.
    """
    at = 0
    for _ in range(count):
        partition, at = read_int(data, at)
        offset, at = read_long(data, at)
        timestamp_us, at = read_long(data, at)
        key, at = _optional(data, at)
        headers, at = _headers(data, at)
        start, at = _bytes(data, at)
        size, at = read_size(data, at)
        branch, at = data[at : at + 1], at + 1
        if branch == _BYTES:
            _, at = read_size(data, at)
        value = None if branch == _NULL else start + data[at : at + size]
        at += 0 if branch == _NULL else size
        if at > len(data):
            raise DecodeError("truncated", f"the record ends behind byte {len(data)}, where its block ends")
        yield Record(topic, partition, offset, timestamp_us, key, value, headers)
    if at != len(data):
        raise DecodeError("trailing", f"{len(data) - at} bytes follow the last record of a block")


def _headers(data: bytes, at: int) -> tuple[tuple[tuple[str, Any], ...], int]:
    if not data[at]:
        return (), at + 1
    found: list[tuple[str, Any]] = []  # bytes, or None as Kafka has it
    while True:
        count, at = read_count(data, at)
        if not count:
            return tuple(found), at
        if len(found) + count > HEADERS:
            raise DecodeError("oversized", f"a record has more than {HEADERS} headers")
        for _ in range(count):
            name, at = _bytes(data, at)
            value, at = _optional(data, at)
            found.append((name.decode(), value))


def _optional(data: bytes, at: int) -> tuple[bytes | None, int]:
    return _bytes(data, at + 1) if data[at] else (None, at + 1)


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_size(data, at)
    return data[at : at + size], at + size
