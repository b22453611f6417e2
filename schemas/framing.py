"""The framing before a record's bytes, Avro single-object or Confluent, and a look past it.

    C3 01 | fingerprint, 8 bytes, little endian | record        Avro 1.12, "Single-object encoding"
    00    | registry id, 4 bytes, big endian    | record        Confluent wire format

The first field of a record about a query is its id, so a role that only routes or matches peeks at it.
"""

from __future__ import annotations

from typing import Final

from schemas.errors import DecodeError, SchemaError
from schemas.extension import IS_COMPILED, compiled
from schemas.wire import read_size

SINGLE_OBJECT: Final = b"\xc3\x01"
SINGLE_OBJECT_BYTES: Final = 10
CONFLUENT: Final = b"\x00"
CONFLUENT_BYTES: Final = 5
_FRAMINGS: Final = (SINGLE_OBJECT, CONFLUENT)


def single_object(fingerprint: bytes) -> bytes:
    """Return the ten bytes before a record whose schema has this fingerprint."""
    return SINGLE_OBJECT + fingerprint


def confluent(schema_id: int) -> bytes:
    """Return the five bytes before a record whose schema has this registry id; raises SchemaError out of range."""
    if not 0 <= schema_id < 1 << 31:
        raise SchemaError(f"registry ids are 0 to 2^31 - 1, not {schema_id}")
    return CONFLUENT + schema_id.to_bytes(4, "big")


def describe(value: bytes) -> str:
    """Say in words which schema a value's framing names; raises DecodeError where there is no whole framing."""
    if value.startswith(CONFLUENT):
        if len(value) < CONFLUENT_BYTES:
            raise DecodeError("truncated", f"{len(value)} bytes end inside the Confluent framing")
        return f"registry id {int.from_bytes(value[1:CONFLUENT_BYTES], 'big')}"
    if value.startswith(SINGLE_OBJECT) or value == SINGLE_OBJECT[:1]:
        if len(value) < SINGLE_OBJECT_BYTES:
            raise DecodeError("truncated", f"{len(value)} bytes end inside the single-object framing")
        return f"fingerprint {value[2:SINGLE_OBJECT_BYTES].hex()}"
    return f"no framing (first bytes {value[:2].hex()})"


def peek_id(value: bytes | None) -> str:
    """Return the first field, the query id, without decoding the rest or checking that the schema is known.

    Raises:
        DecodeError: Where the framing or that string is not whole.
    """
    text = compiled.first_text(value) if IS_COMPILED else None
    return _peeked(value, 1)[0] if text is None else text


def peek_texts(value: bytes | None, count: int) -> tuple[str, ...]:
    """Return the first `count` fields, which must be strings, as `peek_id` does with one."""
    texts = compiled.first_texts(value, count) if IS_COMPILED else None
    return _peeked(value, count) if texts is None else texts


def _peeked(value: bytes | None, count: int) -> tuple[str, ...]:
    """Peek field by field, so that an error can say what is wrong."""
    if not value:
        raise DecodeError("empty", "no value")
    if not value.startswith(_FRAMINGS):
        raise DecodeError("unknown_schema", describe(value))
    end = SINGLE_OBJECT_BYTES if value[0] else CONFLUENT_BYTES
    texts = []
    try:
        for _ in range(count):
            start, size = end + 1, value[end]
            if size & 129:
                size, start = read_size(value, end)
            else:
                size >>= 1
            end = start + size
            texts.append(value[start:end].decode())
    except UnicodeDecodeError:
        if end <= len(value):
            raise DecodeError("invalid", f"{describe(value)}: a field before byte {end} is not UTF-8") from None
    except IndexError:
        end = len(value) + 1
    if end > len(value):
        raise DecodeError("truncated", f"{describe(value)}: {len(value)} bytes end before the first {count} fields do")
    return tuple(texts)
