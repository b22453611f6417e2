"""Chooses the compiled readers and writers, or the generated Python ones, which define the format."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from schemas import avsc, decoders, encoders, records, wire
from schemas.definitions import field_names, members
from schemas.memo import SHARED

try:
    from schemas import compiled
except ImportError:
    compiled = None  # type: ignore[assignment] # the module is there for the checker

__all__ = ["IS_COMPILED", "compiled"]

# Doubles and columns are copied as they lie in memory.
IS_COMPILED: Final = compiled is not None and sys.byteorder == "little"


if TYPE_CHECKING:
    from collections.abc import Callable

    Read: TypeAlias = Callable[[bytes, int], tuple[object, int]]
    Write: TypeAlias = Callable[[object, bytes], bytes]

    _R = TypeVar("_R")

    class Explain(Protocol):
        """Decodes a value of one class of records."""

        def __call__(self, record: type[_R], value: bytes | None, /) -> _R:
            """Return the record."""
            ...


_WIDTHS: Final = tuple(wire.ITEM_BYTES[name] for name in records.DTYPES)


@cache
def reader(schema: avsc.Schema, record: type, *, is_compiled: bool = IS_COMPILED) -> Read:
    """Return the reader of one writer's schema; see `decoders.reader`."""
    read: Read = decoders.reader(schema, record)
    if not is_compiled or not _is_covered(schema.record):
        return read
    return compiled.Reader(_node(schema.record, record), read)


@cache
def writer(schema: avsc.AvroRecord, *, is_compiled: bool = IS_COMPILED) -> Write:
    """Return the writer of a current schema; see `encoders.writer`."""
    write: Write = encoders.writer(schema)
    if not is_compiled or not _is_covered(schema) or not _is_in_order(schema):
        return write
    return compiled.Writer(_node(schema, getattr(records, schema.name)), write)


def reader_of_one(schema: avsc.Schema, record: type, *, is_compiled: bool = IS_COMPILED) -> Read:
    """Return what reads one item as a batch: `record` has one field, a tuple of items of this schema."""
    made = getattr(records, schema.record.name)
    item: Read = decoders.reader(schema, made)

    def read(buffer: bytes, start: int) -> tuple[object, int]:
        one, end = item(buffer, start)
        return record((one,)), end

    if not is_compiled or not _is_covered(schema.record):
        return read
    alone = compiled.Node("alone", (_node(schema.record, made),))
    return compiled.Reader(compiled.Node("record", (alone,), (None,), record, (0,)), read)


def values(readers: dict[type, dict[bytes, Read]], max_bytes: int, python: Explain) -> Explain:
    """Return what reads whole values; `python` takes what is unusual."""
    return compiled.Values(readers, max_bytes, python) if IS_COMPILED else python


def _is_covered(record: avsc.AvroRecord) -> bool:
    """Tell whether all of a record is what the extension knows: tuples, tensors, no maps."""
    return all(
        one.name in {"Tensor", "NamedTensors"}
        or (issubclass(getattr(records, one.name), tuple) and not any(_has_map(part.type) for part in one.fields))
        for one in avsc.records_within(record)
    )


def _is_in_order(record: avsc.AvroRecord) -> bool:
    """Tell whether classes and schema name the same fields in the same order."""
    return all(
        one.name == "Tensor" or field_names(getattr(records, one.name)) == tuple(part.name for part in one.fields)
        for one in avsc.records_within(record)
    )


def _has_map(kind: avsc.Type) -> bool:
    match kind:
        case avsc.Union(branches):
            return any(map(_has_map, branches))
        case avsc.Array(items):
            return _has_map(items)
    return isinstance(kind, avsc.Map)


def _node(kind: avsc.Type, record: type | None = None) -> compiled.Node:  # noqa: PLR0911 - a table: one line a type
    """Return the tree of a type; `record` is the class of the outermost one."""
    match kind:
        case avsc.Primitive(name):
            return compiled.Node(name, members=tuple(records.Outcome))
        case avsc.Enumeration():
            return compiled.Node("enum", members=members(kind))
        case avsc.Array(items):
            is_numbers = items == avsc.Primitive("double")
            return compiled.Node("doubles") if is_numbers else compiled.Node("array", (_node(items),))
        case avsc.Union(branches):
            return compiled.Node("union", tuple(map(_node, branches)))
        case avsc.AvroRecord(name="Tensor"):
            return compiled.Node("tensor", (), records.DTYPES, records.Tensor, widths=_WIDTHS)
        case avsc.AvroRecord(name="NamedTensors", fields=fields):
            parts = tuple([_node(field.type) for field in fields])
            return compiled.Node("object", parts, field_names(records.NamedTensors), records.NamedTensors)
        case avsc.AvroRecord():
            return _record(kind, record or getattr(records, kind.name))
    raise AssertionError("maps are left to Python")


def _record(writer: avsc.AvroRecord, made: type) -> compiled.Node:
    names = field_names(made)
    places = tuple(names.index(field.name) if field.name in names else -1 for field in writer.fields)
    written = {field.name for field in writer.fields}
    defaults = tuple(None if name in written else decoders.default(made.__name__, name) for name in names)
    parts = tuple(_node(field.type) for field in writer.fields)
    return compiled.Node("shared" if writer.name in SHARED else "record", parts, defaults, made, places)
