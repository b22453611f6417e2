"""Rows and answers of several named tensors; JSON objects, for models that take or answer texts.

INPUT0 INT32[2, 16], INPUT1 INT32[2, 16] ─▶ two rows of named tensors, where the models' signature has these
                                         ─▶ else two texts, each {"INPUT0": [16 numbers], "INPUT1": [16 numbers]}
two answers, tensors or texts {"OUTPUT0": [...], "OUTPUT1": [...]} ─▶ OUTPUT0 INT64[2, 16], OUTPUT1 INT64[2, 16]
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from schemas.records import NamedTensors, element, rows_of
from streams.gateway.protocol import tensors
from streams.gateway.protocol.answers import OutputColumn
from streams.gateway.protocol.values import RequestRefusedError, few, few_named, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.records import Input, TensorForm, Value
    from streams.gateway.protocol.tensors import Array

_TYPES: Final = {"b": "BOOL", "i": "INT64", "f": "FP64", "U": tensors.BYTES}  # by NumPy's kind


def rows(inputs: Mapping[str, tuple[tuple[int, ...], Array | list[str | bytes]]]) -> tuple[Input, ...]:
    """Return one JSON object a row, with a member for each input.

    Args:
        inputs: shape and values by name; the first dimension counts rows.

    Raises:
        RequestRefusedError: they have not as many rows, a text is not in UTF-8, or repeated names take too much.
    """
    counts = {shape[0] for shape, _ in inputs.values()}
    if len(counts) != 1:
        raise RequestRefusedError(400, "all inputs have the same number of rows")
    few_named(counts.pop(), [*inputs])
    columns = [_nested(name, shape, found) for name, (shape, found) in inputs.items()]
    return tuple([orjson.dumps(dict(zip(inputs, row, strict=True))).decode() for row in zip(*columns, strict=True)])


def packed(
    inputs: Mapping[str, tuple[tuple[int, ...], Array | list[str | bytes]]], forms: Sequence[TensorForm]
) -> tuple[Input, ...]:
    """Return one row of named tensors for each query.

    Args:
        inputs: shape and values by name; the first dimension counts rows.
        forms: that are taken.

    Raises:
        RequestRefusedError: they have other names or forms, or not as many rows.
    """
    if inputs.keys() != {form.name for form in forms}:
        taken = ", ".join([form.name for form in forms])
        raise RequestRefusedError(400, f"the inputs {taken} are taken, not {', '.join(map(shown, inputs))}")
    if len(counts := {shape[0] for shape, _ in inputs.values()}) != 1:
        raise RequestRefusedError(400, "all inputs have the same number of rows")
    count, arrays = few(counts.pop()), {}
    for name, dtype, wanted in forms:
        shape, found = inputs[name]
        if isinstance(found, list):
            raise RequestRefusedError(400, f"input {name}: numbers are taken, not {tensors.BYTES}")
        tensors.check_form(shape[1:], dtype, wanted, f"input {name}")
        arrays[name] = tensors.travelling(found).reshape(count, *wanted)
    return tuple(rows_of(NamedTensors.named(arrays, (count,))))


def columns(answers: Sequence[Value | None]) -> dict[str, OutputColumn]:
    """Return the tensors of answers, or the members of JSON objects, as outputs; empty = they are not all alike."""
    known = next((answer for answer in answers if isinstance(answer, NamedTensors)), None)
    if known is not None:
        return _stacked(answers, known.dtype)
    found = [dict(_record(answer)) for answer in answers]
    if not found or any(one.keys() != found[0].keys() for one in found):
        return {}
    told = {name: _column([one[name] for one in found]) for name in found[0]}
    return {name: one for name, one in told.items() if one is not None}


def _stacked(answers: Sequence[Value | None], dtype: tuple[TensorForm, ...]) -> dict[str, OutputColumn]:
    """Return each tensor of all rows; where there is no answer it is NaN, or 0 of whole numbers."""
    blank = np.zeros((), element(dtype))
    for name, kind, _ in dtype:
        blank[name] = math.nan if kind.startswith("float") else 0
    if any(
        answer is not None and (not isinstance(answer, NamedTensors) or answer.dtype != dtype) for answer in answers
    ):
        return {}
    parts = [answer.numpy() if isinstance(answer, NamedTensors) else blank for answer in answers]
    records = np.stack(parts)
    return {
        name: OutputColumn(tensors.NAMES[kind], records[name].shape, records[name].copy().ravel())
        for name, kind, _ in dtype
    }


def _nested(name: str, shape: tuple[int, ...], found: Array | list[str | bytes]) -> list[Any]:
    """Return a value for each row: nested lists of the shape's rest."""
    if isinstance(found, np.ndarray):
        nested: list[Any] = found.reshape(shape).tolist()
        return nested
    if not all(isinstance(one, str) for one in found):
        raise RequestRefusedError(400, f"input {name}: texts in a record are in UTF-8")
    given: list[Any] = list(found)
    for size in reversed(shape[1:]):
        count = math.prod(shape) // size if size else 0
        given = [given[at * size : (at + 1) * size] for at in range(count)] if given else []
        shape = shape[:-1]
    return given or [[] for _ in range(shape[0])]


def _record(answer: Value | None) -> Iterator[tuple[str, object]]:
    if isinstance(answer, str) and answer.startswith("{"):
        try:
            yield from orjson.loads(answer).items()
        except orjson.JSONDecodeError:
            return


def _column(values: list[object]) -> OutputColumn | None:
    """Return one output of all rows; None where its values are no tensor."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        return None
    datatype = _TYPES.get(array.dtype.kind)
    return None if datatype is None else OutputColumn(datatype, array.shape, array.ravel().tolist())
