"""How values of other topics are written: JSON, lines of CSV, Avro, Protobuf.

bytes ─▶ Reader ─▶ row (names and values)          row ─▶ Writer ─▶ bytes
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson

from streams.mapping import avro, protobuf
from streams.mapping.errors import MappingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.mapping.schemas import RegisteredSchemas

    Row: TypeAlias = Mapping[str, Any]
    Reader: TypeAlias = Callable[[bytes], Row]
    Writer: TypeAlias = Callable[[Row], bytes]

# What `schema` says where each record names its own.
REGISTRY: Final = "registry"
# Digits of a whole number in CSV. Longer ones take a time that grows with their square.
MOST_DIGITS: Final = 400
_END_OF_LINE: Final = "\r\n"


class TopicForm(NamedTuple):
    """A topic, and how its values are written.

    Attributes:
        topic: as the broker knows it, without a prefix.
        format: one of `FORMATS`.
        columns: of a line, for `csv`.
        delimiter: of them.
        schema: `REGISTRY`; an Avro schema as JSON; or one of Protobuf, compiled and in base64.
        message: which one of it, for `protobuf`; empty = the first.
    """

    topic: str
    format: str = "json"
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    schema: str = ""
    message: str = ""


def reader(form: TopicForm, schemas: RegisteredSchemas) -> Reader:
    """Return what reads a topic's values; it raises `MappingError` for those that are not what the form says.

    By a registry's schemas it raises `UnknownSchemaError`, too: of those that are still to be looked up.

    Raises:
        MappingError: the form has no such schema.
    """
    return FORMATS[form.format][0](form, schemas)


def writer(form: TopicForm, schemas: RegisteredSchemas) -> Writer:
    """Return what writes a topic's values; it raises `MappingError` for rows that the form does not take.

    By a registry's schemas it raises `UnknownSchemaError`, too, as `reader` does.

    Raises:
        MappingError: the form has no such schema.
    """
    return FORMATS[form.format][1](form, schemas)


def _json_reader(_: TopicForm, __: RegisteredSchemas) -> Reader:
    loads = orjson.loads  # 0.7 us for a row of nine fields, where json takes 3.2; it bounds depth and numbers

    def read(value: bytes) -> Row:
        try:
            row = loads(value)
        except ValueError as error:
            raise MappingError("value", f"is no JSON: {error}") from error
        if not isinstance(row, dict):
            raise MappingError("value", f"is a JSON object, not {type(row).__name__}")
        return row

    return read


def _json_writer(_: TopicForm, __: RegisteredSchemas) -> Writer:
    def write(row: Row) -> bytes:
        try:
            return orjson.dumps(row, default=_plain)  # what is not finite is null
        except TypeError as error:
            raise MappingError("value", f"cannot be written as JSON: {error}") from error

    return write


def _plain(value: object) -> object:
    """Return what JSON has for a value that is none of its own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _csv_reader(form: TopicForm, _: RegisteredSchemas) -> Reader:
    def read(value: bytes) -> Row:
        try:
            lines = [*csv.reader(io.StringIO(value.decode(), newline=""), delimiter=form.delimiter, strict=True)]
        except (ValueError, csv.Error) as error:
            raise MappingError("value", f"is no line of CSV: {error}") from error
        if len(lines) != 1 or len(lines[0]) != len(form.columns):
            found = f"{len(lines[0])} fields" if len(lines) == 1 else f"{len(lines)} lines"
            raise MappingError("value", f"is one line of {len(form.columns)} fields, not {found}")
        return {name: _cell(text) for name, text in zip(form.columns, lines[0], strict=True)}

    return read


def _cell(text: str) -> str | int | float | None:
    """Return a number as one, nothing as null, all else as a text."""
    if not text:
        return None
    try:
        return int(text) if text.lstrip("-").isdecimal() and len(text) < MOST_DIGITS else float(text)
    except ValueError:
        return text


def _csv_writer(form: TopicForm, _: RegisteredSchemas) -> Writer:
    def write(row: Row) -> bytes:
        line = io.StringIO(newline="")
        # It quotes texts in which there is a character of the end of a line, so both have to be in it.
        writes = csv.writer(line, delimiter=form.delimiter, lineterminator=_END_OF_LINE)
        writes.writerow([_text(row.get(name)) for name in form.columns])
        return line.getvalue().removesuffix(_END_OF_LINE).encode()

    return write


def _text(cell: Any) -> str | int | float:
    """Return what stands in a field of CSV; lists and objects are JSON."""
    if cell is None:
        return ""
    found = cell if isinstance(cell, str | int | float | list | Mapping) else _plain(cell)
    return found if isinstance(found, str | int | float) else json.dumps(found, default=_plain)


def _avro_reader(form: TopicForm, schemas: RegisteredSchemas) -> Reader:
    if form.schema == REGISTRY:
        return avro.framed_reader(schemas)
    return avro.plain_reader(avro.parsed(f"{form.topic}.schema", form.schema))


def _avro_writer(form: TopicForm, schemas: RegisteredSchemas) -> Writer:
    if form.schema == REGISTRY:
        return avro.framed_writer(schemas, form.topic)
    return avro.plain_writer(avro.parsed(f"{form.topic}.schema", form.schema))


def _protobuf_reader(form: TopicForm, schemas: RegisteredSchemas) -> Reader:
    if form.schema == REGISTRY:
        return protobuf.framed_reader(schemas)
    return protobuf.plain_reader(protobuf.message_type(f"{form.topic}.schema", form.schema, form.message))


def _protobuf_writer(form: TopicForm, schemas: RegisteredSchemas) -> Writer:
    if form.schema == REGISTRY:
        return protobuf.framed_writer(schemas, form.topic, form.message)
    return protobuf.plain_writer(protobuf.message_type(f"{form.topic}.schema", form.schema, form.message))


FORMATS: Final[
    Mapping[
        str,
        tuple[Callable[[TopicForm, RegisteredSchemas], Reader], Callable[[TopicForm, RegisteredSchemas], Writer]],
    ]
] = {
    "json": (_json_reader, _json_writer),
    "csv": (_csv_reader, _csv_writer),
    "avro": (_avro_reader, _avro_writer),
    "protobuf": (_protobuf_reader, _protobuf_writer),
}
