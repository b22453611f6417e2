"""How values of other topics are written: JSON, lines of CSV, Avro.

bytes ─▶ Reader ─▶ row (names and values)          row ─▶ Writer ─▶ bytes
"""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import fastavro
import numpy as np
import orjson

from streams.mapping.errors import MappingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Row: TypeAlias = Mapping[str, Any]
    Reader: TypeAlias = Callable[[bytes], Row]
    Writer: TypeAlias = Callable[[Row], bytes]

# Digits of a whole number in CSV. Longer ones take a time that grows with their square.
MOST_DIGITS: Final = 400


class TopicForm(NamedTuple):
    """A topic, and how its values are written.

    Attributes:
        topic: as the broker knows it, without a prefix.
        format: one of `FORMATS`.
        columns: of a line, for `csv`.
        delimiter: of them.
        schema: an Avro schema as JSON, for `avro`.
    """

    topic: str
    format: str = "json"
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    schema: str = ""


def reader(form: TopicForm) -> Reader:
    """Return what reads a topic's values; it raises `MappingError` for those that are not what the form says.

    Raises:
        MappingError: the form has no such schema.
    """
    return FORMATS[form.format][0](form)


def writer(form: TopicForm) -> Writer:
    """Return what writes a topic's values; it raises `MappingError` for rows that the form does not take.

    Raises:
        MappingError: the form has no such schema.
    """
    return FORMATS[form.format][1](form)


def _json_reader(_: TopicForm) -> Reader:
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


def _json_writer(_: TopicForm) -> Writer:
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


def _csv_reader(form: TopicForm) -> Reader:
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


def _csv_writer(form: TopicForm) -> Writer:
    def write(row: Row) -> bytes:
        line = io.StringIO(newline="")
        cells = [row.get(name) for name in form.columns]
        csv.writer(line, delimiter=form.delimiter, lineterminator="").writerow(
            ["" if cell is None else cell if isinstance(cell, str | int | float) else json.dumps(cell, default=_plain)
             for cell in cells]
        )  # fmt: skip
        return line.getvalue().encode()

    return write


def _schema(form: TopicForm) -> Any:
    try:
        return fastavro.parse_schema(json.loads(form.schema))
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise MappingError(f"{form.topic}.schema", f"is no Avro schema: {error}") from error


def _avro_reader(form: TopicForm) -> Reader:
    schema = _schema(form)

    def read(value: bytes) -> Row:
        stream = io.BytesIO(value)
        try:
            row = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:  # fastavro raises what its reader in C meets: EOFError, IndexError, ValueError
            raise MappingError(
                "value", f"is not written by the schema: {str(error) or type(error).__name__}"
            ) from error
        if stream.tell() != len(value) or not isinstance(row, dict):
            raise MappingError("value", "is not one record of the schema")
        return row

    return read


def _avro_writer(form: TopicForm) -> Writer:
    schema = _schema(form)

    def write(row: Row) -> bytes:
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, schema, row)
        except Exception as error:  # as above
            raise MappingError("value", f"does not fit the schema: {str(error) or type(error).__name__}") from error
        return stream.getvalue()

    return write


FORMATS: Final[Mapping[str, tuple[Callable[[TopicForm], Reader], Callable[[TopicForm], Writer]]]] = {
    "json": (_json_reader, _json_writer),
    "csv": (_csv_reader, _csv_writer),
    "avro": (_avro_reader, _avro_writer),
}
