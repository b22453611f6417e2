"""Avro schemas as values: `.avsc` text in, a tree of frozen types and the fingerprint out.

Only types of the project's own schemas are known (no fixed, no float, no recursion). Others are refused when the
package is loaded, not when a record arrives. fastavro computes canonical form and fingerprint (Avro 1.12, "Parsing
Canonical Form" and "Schema Fingerprints").
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TypeAlias

from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from schemas.errors import SchemaError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "double", "string", "bytes"})
# Logical types over `bytes`: one fixed-width value a row, so that a column costs one copy instead of a varint a row.
COLUMNS = frozenset({"outcomes", "int32s", "int64s"})


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without structure; `name` is one of PRIMITIVES or COLUMNS."""

    name: str


@dataclass(frozen=True, slots=True)
class Enumeration:
    """A choice of symbols; readers map a symbol they do not know to `default`."""

    name: str
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of items."""

    items: Type


@dataclass(frozen=True, slots=True)
class Map:
    """Items by string key."""

    values: Type


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types; the branch's index on the wire says which."""

    branches: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A record's field; `default` counts only where `optional`."""

    name: str
    type: Type
    optional: bool
    default: Json = field(hash=False)  # may be a list or a dict


@dataclass(frozen=True, slots=True)
class AvroRecord:
    """Named fields in wire order."""

    name: str
    fields: tuple[Field, ...]

    def field(self, name: str) -> Field | None:
        """Return the field of this name, if there is one."""
        return next((one for one in self.fields if one.name == name), None)


Type: TypeAlias = Primitive | Enumeration | Array | Map | Union | AvroRecord


@dataclass(frozen=True, slots=True)
class Schema:
    """One `.avsc` file.

    Attributes:
        record: The tree.
        text: The file, as registered.
        fingerprint: CRC-64-AVRO of the canonical form, 8 bytes in the order of the single-object encoding.
    """

    record: AvroRecord
    text: str
    fingerprint: bytes


def load(text: str) -> Schema:
    """Parse a schema file; raises SchemaError (or fastavro's own error) if it is not one we can compile."""
    raw = json.loads(text)
    parse_schema(raw)
    record = _parse(raw, {})
    if not isinstance(record, AvroRecord):
        raise SchemaError(f"the top level must be a record, not {raw!r}")
    return Schema(record, text, bytes.fromhex(fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO")))


def records_within(kind: Type) -> tuple[AvroRecord, ...]:
    """Return every record type inside a type and itself, once each, inner ones first."""
    match kind:
        case AvroRecord(fields=fields):
            inner = [*(record for one in fields for record in records_within(one.type)), kind]
        case Union(branches):
            inner = [record for branch in branches for record in records_within(branch)]
        case Array(item) | Map(item):
            inner = list(records_within(item))
        case _:
            inner = []
    return tuple(dict.fromkeys(inner))


def _parse(raw: Json, known: dict[str, Type]) -> Type:
    """Turn one JSON type into a value; `known` collects the named types seen so far."""
    match raw:
        case str() if raw in PRIMITIVES or raw in known:
            return known.get(raw, Primitive(raw))
        case list():
            return Union(tuple(_parse(branch, known) for branch in raw))
        case {"type": "bytes", "logicalType": str(column)} if column in COLUMNS:
            return Primitive(column)
        case {"type": "array", "items": items}:
            return Array(_parse(items, known))
        case {"type": "map", "values": values}:
            return Map(_parse(values, known))
        case {"type": "enum", "name": str(name), "symbols": list(symbols), **rest}:
            default = rest.get("default")
            known[name] = Enumeration(name, tuple(map(str, symbols)), None if default is None else str(default))
        case {"type": "record", "name": str(name), "fields": list(fields)}:
            known[name] = AvroRecord(name, tuple([_parse_field(one, known) for one in fields]))
        case _:
            known_names = sorted(PRIMITIVES | COLUMNS)
            raise SchemaError(f"schema type not supported: {raw!r}; known are {known_names} and nested types")
    return known[name]


def _parse_field(raw: Json, known: dict[str, Type]) -> Field:
    """Turn one field of a JSON record into a value."""
    match raw:
        case dict() as one if isinstance(name := one.get("name"), str) and "type" in one:
            return Field(name, _parse(one["type"], known), "default" in one, one.get("default"))
    raise SchemaError(f"not a field of a record: {raw!r}")
