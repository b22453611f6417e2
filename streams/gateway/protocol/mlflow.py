"""MLflow's scoring server, as Databricks' endpoints: `/invocations` with one of four forms, or CSV."""

from __future__ import annotations

import csv
import io
import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from streams.gateway.protocol import rows, tensorflow
from streams.gateway.protocol.values import (
    MOST_BYTES,
    MOST_ROWS,
    HttpQuestion,
    ParsedRequest,
    RequestRefusedError,
    document,
    few,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Input
    from streams.gateway.protocol.values import HttpRequest

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DIGITS: Final = 300  # a longer cell is a text
_CELL: Final = 64  # bytes that one takes
FORMS: Final = ("dataframe_split", "dataframe_records", "instances", "inputs")


def parse(request: HttpRequest) -> ParsedRequest:
    """Return what `/invocations` asks.

    Raises:
        RequestRefusedError: it has not exactly one of the forms, or its rows are none.
    """
    given: dict[str, Any] = {}
    if request.kind == "text/csv":
        found = _of_csv(request)
    else:
        given = document(request.body)
        named = [form for form in FORMS if form in given]
        if len(named) != 1:
            raise RequestRefusedError(400, f"give exactly one of {', '.join(FORMS)}")
        found = _READERS[named[0]](given[named[0]], request)
    name = text(given, "client_request_id") or request.id
    return ParsedRequest(
        HttpQuestion(request.application, found, name, version=request.version),
        partial(tensorflow.render, "predictions"),
    )


def _split(given: object, request: HttpRequest) -> tuple[Input, ...]:
    if not isinstance(given, dict) or not isinstance(given.get("data"), list):
        raise RequestRefusedError(400, "dataframe_split has columns and data")
    data, names = given["data"], given.get("columns")
    few(len(data))
    if names is None:
        return rows.of_list(data, request.takes, "dataframe_split")
    if not isinstance(names, list) or not all(isinstance(row, list) and len(row) == len(names) for row in data):
        raise RequestRefusedError(400, "dataframe_split: each row of data has a value for each of columns")
    return rows.of_columns([str(name) for name in names], data, request.takes)


def _records(given: object, request: HttpRequest) -> tuple[Input, ...]:
    if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
        raise RequestRefusedError(400, "dataframe_records is a list of objects, one a row")
    few(len(given))
    names = list(given[0])
    if any(row.keys() != given[0].keys() for row in given):
        if request.takes is not None and request.takes.dtype is not None:
            raise RequestRefusedError(400, "dataframe_records: all rows have the same columns")
        return rows.of_list(given, request.takes, "dataframe_records")
    return rows.of_columns(names, [[row[name] for name in names] for row in given], request.takes)


def _instances(given: object, request: HttpRequest) -> tuple[Input, ...]:
    return rows.of_list(given, request.takes, "instances")


def _inputs(given: object, request: HttpRequest) -> tuple[Input, ...]:
    return tensorflow.of_inputs(given, request.takes)


def _of_csv(request: HttpRequest) -> tuple[Input, ...]:
    """Return rows of a CSV text with a line of names; what reads as a number is one."""
    if request.body.count(b",") * _CELL > MOST_BYTES:
        raise RequestRefusedError(413, "the body has too many cells: send fewer rows")
    try:
        reader = csv.reader(io.StringIO(request.body.decode("utf-8-sig")), strict=True)
        lines = list(islice(reader, MOST_ROWS + 2))
    except (csv.Error, UnicodeDecodeError) as error:
        raise RequestRefusedError(400, f"the body is no CSV in UTF-8: {error}") from error
    if len(lines) < 2 or any(len(line) != len(lines[0]) for line in lines):
        raise RequestRefusedError(400, "CSV has a line of column names, then rows of as many values")
    few(len(lines) - 1)
    return rows.of_columns(lines[0], [[_value(cell) for cell in line] for line in lines[1:]], request.takes)


def _value(cell: str) -> object:
    if len(cell) <= _DIGITS and _NUMBER.fullmatch(cell):
        return int(cell) if cell.lstrip("+-").isdigit() else float(cell)
    return cell or None


_READERS: Final[Mapping[str, Any]] = {
    "dataframe_split": _split, "dataframe_records": _records, "instances": _instances, "inputs": _inputs,
}  # fmt: skip
