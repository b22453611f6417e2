"""What stands before a record's bytes: Avro single-object encoding or Confluent framing, and a look past it.

    C3 01 | fingerprint, 8 bytes, little endian | record        Avro 1.12, "Single-object encoding"
    00    | registry id, 4 bytes, big endian    | record        Confluent wire format
"""

from __future__ import annotations

from typing import Final

from schemas.errors import DecodeError, SchemaError
from schemas.wire import read_size

SINGLE_OBJECT: Final = b"\xc3\x01"
SINGLE_OBJECT_BYTES: Final = 10
CONFLUENT: Final = b"\x00"
CONFLUENT_BYTES: Final = 5


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


def peek_texts(value: bytes | None, count: int) -> tuple[str, ...]:
    """Return the first `count` fields, all strings, without decoding the rest or checking that the schema is known.

    Raises:
        DecodeError: Where the framing or those strings are not whole.
    """
    if not value:
        raise DecodeError("empty", "no value")
    if not value.startswith((CONFLUENT, SINGLE_OBJECT)):
        raise _unreadable(value)
    end = SINGLE_OBJECT_BYTES if value[0] else CONFLUENT_BYTES
    texts = []
    try:
        for _ in range(count):
            size, start = read_size(value, end)
            end = start + size
            texts.append(value[start:end].decode())
    except IndexError:
        raise DecodeError("truncated", f"{describe(value)}: {len(value)} bytes end before the first fields do") from None
    except UnicodeDecodeError:
        cause = "truncated" if end > len(value) else "invalid"
        raise DecodeError(cause, f"{describe(value)}: the first fields are not UTF-8") from None
    if end > len(value):
        raise _unreadable(value)
    return tuple(texts)


def peek_id(value: bytes | None) -> str:
    """Return the first field, the query id, as `peek_texts` does."""
    return peek_texts(value, 1)[0]


def _unreadable(value: bytes) -> DecodeError:
    """Return the error for a value whose framing is not ours or whose first field is not whole."""
    if value[0] == 0 or value.startswith(SINGLE_OBJECT):
        return DecodeError("truncated", f"{len(value)} bytes end before the first field does")
    return DecodeError("unknown_schema", describe(value))
