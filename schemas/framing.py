"""The framing before a record's bytes, Avro single-object or Confluent, and a look past it.

    C3 01 | fingerprint, 8 bytes, little endian | record        Avro 1.12, "Single-object encoding"
    00    | registry id, 4 bytes, big endian    | record        Confluent wire format

The first field of a record about a query is its id, so a role that only routes or matches peeks at it.
"""

from __future__ import annotations

from typing import Final

from schemas.compiling import IS_COMPILED, compiled
from schemas.errors import DecodeError, SchemaError
from schemas.wire import read_size

SINGLE_OBJECT: Final = b"\xc3\x01"
SINGLE_OBJECT_BYTES: Final = 10
CONFLUENT: Final = b"\x00"
CONFLUENT_BYTES: Final = 5
_FRAMINGS: Final = (SINGLE_OBJECT, CONFLUENT)
_NULL: Final = 0  # the first branch of a union, as one byte


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


def may_be_decided(value: bytes, query_id: str, application: str) -> bool:
    """Look past the first two fields of a prediction, whose texts are known, without decoding the rest.

    Returns:
        False where the record, if it is one, has no decision.
    """
    at = SINGLE_OBJECT_BYTES if value and value[0] else CONFLUENT_BYTES
    if query_id.isascii() and application.isascii() and len(query_id) < 64 > len(application):  # as most are
        at += len(query_id) + len(application) + 2
    else:
        at += _written(query_id) + _written(application)
    try:
        if value[at] == _NULL:  # no context
            return value[at + 1] != _NULL
        size, start = read_size(value, at + 1)
        return value[start + size] != _NULL
    except (DecodeError, IndexError):
        return True  # decoding it finds the fault


def _written(text: str) -> int:
    """Return how many bytes a text takes with its size before it."""
    size = len(text) if text.isascii() else len(text.encode())
    return size + (1 if size < 64 else 2 if size < 8_192 else 3)
