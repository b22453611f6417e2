"""Rows as JSON has them: lists of numbers, texts, base64, mappings of columns; one input each."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.errors import SchemaError
from schemas.inputs import NUMBERS, as_input, kinds, named_tensors, row_text
from streams.gateway.protocol import tensors
from streams.gateway.protocol.values import RequestRefusedError, few, few_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Input
    from streams.gateway.protocol.values import InputForm


def of_list(rows: object, takes: InputForm | None, what: str) -> tuple[Input, ...]:
    """Return one input for each entry.

    Raises:
        RequestRefusedError: an entry is no row.
    """
    if not isinstance(rows, list):
        raise RequestRefusedError(400, f"{what} is a list with a row for each query")
    few(len(rows))
    if not isinstance(rows[0], dict | str):
        array = _numbers(rows)
        if array is not None:
            found: tuple[Input, ...] = tensors.split(array)
            tensors.check(found, takes, what)
            return found
    found = tuple([_row(row, takes, f"{what}[{at}]") for at, row in enumerate(rows)])
    tensors.check(found, takes, what)
    return found


def of_columns(names: Sequence[str], rows: Sequence[Sequence[Any]], takes: InputForm | None) -> tuple[Input, ...]:
    """Return rows of a data frame: numbers in the order of the columns where a tensor is taken, else by name.

    Raises:
        RequestRefusedError: there are none or too many, or names that all rows repeat take too much.
    """
    few_named(len(rows), names)
    if takes is not None and takes.inputs:
        return of_list([dict(zip(names, row, strict=True)) for row in rows], takes, "data")
    if takes is not None and takes.dtype is not None:
        return of_list([list(row) for row in rows], takes, "data")
    return tuple([_named(dict(zip(names, row, strict=True)), f"data[{at}]") for at, row in enumerate(rows)])


def _numbers(rows: list[Any]) -> np.ndarray[Any, Any] | None:
    """Return all rows as one array; None where they are no numbers of one form."""
    if not kinds(rows) <= NUMBERS:
        return None
    try:
        array = np.asarray(rows)
    except ValueError:
        return None
    if array.dtype.kind == "u":
        array = array.astype(np.uint64)
    return array if array.dtype.kind in "biuf" else None


def _row(row: object, takes: InputForm | None, what: str) -> Input:
    if isinstance(row, dict) and not (takes is not None and takes.inputs):
        if row.keys() == {"b64"}:
            return _decoded(row["b64"], what)
        if len(row) == 1 and (takes is None or takes.dtype is not None):  # a named tensor
            return _row(next(iter(row.values())), takes, what)
        if takes is not None and takes.dtype is not None:
            row = list(row.values())
        else:
            return _named(row, what)
    if row is None:
        raise RequestRefusedError(400, f"{what} is null")
    if isinstance(row, list | dict) and not kinds([*row.values()] if isinstance(row, dict) else row) <= NUMBERS:
        raise RequestRefusedError(400, f"{what} holds more than numbers; give a mapping of columns, or a text")
    try:
        return named_tensors(row) if isinstance(row, dict) else as_input(row)  # type: ignore[arg-type] # raises TypeError for what is no row
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestRefusedError(400, f"{what}: {error}") from error


def _named(row: Mapping[str, object], what: str) -> Input:
    if any(isinstance(value, list | dict) for value in row.values()):
        raise RequestRefusedError(400, f"{what}: a column has a number, a text, true, false or null")
    try:
        return row_text(row)
    except SchemaError as error:
        raise RequestRefusedError(400, f"{what}: {error}") from error


def _decoded(given: object, what: str) -> bytes:
    try:
        return base64.b64decode(str(given), validate=True)
    except binascii.Error as error:
        raise RequestRefusedError(400, f"{what}: {error}") from error
