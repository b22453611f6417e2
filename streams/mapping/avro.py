"""Values written as Avro: by a schema of the settings without framing, or by one of a registry.

registry's framing    0 │ id, 4 bytes │ record
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import fastavro
from fastavro._read_py import schemaless_reader as read_in_python

from streams.mapping.errors import MappingError
from streams.mapping.schemas import BY_ID, BY_SUBJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from streams.mapping.schemas import RegisteredSchemas

    Row: TypeAlias = Mapping[str, Any]

FRAME_BYTES: Final = 5
KIND: Final = "AVRO"


class ParsedSchema(NamedTuple):
    """An Avro schema; `nests` if a value of one of its types may hold another one of it, and so have any depth."""

    schema: Any
    nests: bool


def parsed(where: str, text: str, references: Iterable[str] = ()) -> ParsedSchema:
    """Return an Avro schema, which may name types of others.

    Raises:
        MappingError: it is none.
    """
    try:
        named: dict[str, Any] = {}
        for reference in references:
            fastavro.parse_schema(json.loads(reference), named)
        schema = fastavro.parse_schema(json.loads(text), named)
        return ParsedSchema(schema, _nests(schema, named, frozenset(), set()))
    except (ValueError, RecursionError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise MappingError(where, f"is no Avro schema: {error}") from error


def _nests(schema: Any, named: Mapping[str, Any], around: frozenset[str], flat: set[str]) -> bool:
    """Tell whether a type stands in itself; `around` has those that it stands in, `flat` those that do not."""
    if isinstance(schema, list):
        return any(_nests(one, named, around, flat) for one in schema)
    if isinstance(schema, str):
        known = schema not in flat and schema in named
        return schema in around or (known and _nests(named[schema], named, around, flat))
    if "fields" not in schema:
        parts = [schema[key] for key in ("type", "items", "values") if key in schema]
        return _nests(parts, named, around, flat)
    around = around | {schema["name"]}
    found = _nests([each["type"] for each in schema["fields"]], named, around, flat)
    if not found:
        flat.add(schema["name"])
    return found


def plain_reader(schema: ParsedSchema) -> Callable[[bytes], Row]:
    """Return what reads values without framing."""
    return lambda value: _read(value, 0, schema)


def plain_writer(schema: ParsedSchema) -> Callable[[Row], bytes]:
    """Return what writes values without framing."""
    return lambda row: _written(b"", row, schema)


def framed_reader(schemas: RegisteredSchemas) -> Callable[[bytes], Row]:
    """Return what reads values by the schemas that they name."""

    def read(value: bytes) -> Row:
        key = f"{BY_ID}{schema_id(value)}"
        schema = schemas.parsed(key, KIND)
        if schema is None:
            found = schemas.get(key, KIND)
            schema = parsed(key.replace("/", " "), found.text, found.references)
            schemas.keep(key, KIND, schema)
        return _read(value, FRAME_BYTES, schema)

    return read


def framed_writer(schemas: RegisteredSchemas, topic: str) -> Callable[[Row], bytes]:
    """Return what writes values by the latest schema of a topic's subject."""
    key = f"{BY_SUBJECT}{topic}-value"

    def write(row: Row) -> bytes:
        found = schemas.get(key, KIND)
        schema = schemas.parsed(key, KIND)
        if schema is None:
            schema = parsed(key.replace("/", " "), found.text, found.references)
            schemas.keep(key, KIND, schema)
        return _written(b"\0" + found.id.to_bytes(4, "big"), row, schema)

    return write


def schema_id(value: bytes) -> int:
    """Return the id of the schema by which a value is written.

    Raises:
        MappingError: it has no registry's framing.
    """
    if len(value) < FRAME_BYTES or value[0]:
        raise MappingError("value", "has no registry's framing: it begins with 0 and the schema's id in 4 bytes")
    return int.from_bytes(value[1:FRAME_BYTES], "big")


def _read(value: bytes, begin: int, schema: ParsedSchema) -> Row:
    stream = io.BytesIO(value)
    stream.seek(begin)
    # Its reader in C follows a value to any depth, until the process has no stack; the one in Python raises.
    read = read_in_python if schema.nests else fastavro.schemaless_reader
    try:
        row = read(stream, schema.schema, None)
    except Exception as error:  # fastavro raises what its reader meets: EOFError, IndexError, RecursionError, ...
        raise MappingError("value", f"is not written by the schema: {str(error) or type(error).__name__}") from error
    if stream.tell() != len(value) or not isinstance(row, dict):
        raise MappingError("value", "is not one record of the schema")
    return row


def _written(head: bytes, row: Row, schema: ParsedSchema) -> bytes:
    stream = io.BytesIO()
    stream.write(head)
    try:
        fastavro.schemaless_writer(stream, schema.schema, row)
    except Exception as error:  # as above
        raise MappingError("value", f"does not fit the schema: {str(error) or type(error).__name__}") from error
    return stream.getvalue()
