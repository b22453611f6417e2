"""The columns of a query and of a prediction: a few numbers and words of each, whatever its size."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from policies.confidence import own_confidence
from schemas.records import NamedTensors, Outcome, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from schemas.records import Input, Prediction, Query, Value

# Of one array: a wider one is hashed down to so many sums, whose signs are drawn, so that few changes cancel out.
MOST_OF_ARRAY: Final = 16
_LONGEST: Final = 64  # characters of a word, and of a name
_HASH, _BITS = 2_654_435_761, 0xFFFFFFFF  # Knuth's multiplicative hash

Reading: TypeAlias = float | str | None  # None = missing


class DriftColumn(NamedTuple):
    """What is followed: of an application, or of one of its models (`model`, else empty)."""

    model: str
    name: str


def of_query(query: Query) -> dict[DriftColumn, Reading]:
    """Return the columns of what was asked."""
    found = of_input(query.input)
    for place, value in enumerate(query.features[:MOST_OF_ARRAY]):
        found[f"feature[{place}]"] = _number(value)
    return {DriftColumn("", name): value for name, value in found.items()}


def of_input(given: Input) -> dict[str, Reading]:
    """Return the columns of a row."""
    return dict(_of_input(given))


def of_answer(value: Value | None) -> dict[str, Reading]:
    """Return the columns of an answer."""
    return dict(_of_value("answer", value))


def worded(value: object) -> str:
    """Return a word or a name as it may be shown: short, and without halves of characters, which no JSON may have."""
    return str(value)[:_LONGEST].encode("utf-8", "replace").decode()


def of_prediction(made: Prediction) -> dict[DriftColumn, Reading]:
    """Return the columns of what was answered, and of what each model said."""
    found: dict[DriftColumn, Reading] = {}
    if made.outputs or made.stages:
        found |= {DriftColumn("", name): value for name, value in of_answer(made.answer).items()}
        found[DriftColumn("", "confidence")] = _number(made.confidence)
    for output in made.outputs:
        if output.outcome is Outcome.OK:
            found |= {DriftColumn(output.model, name): value for name, value in of_answer(output.answer).items()}
            if (sure := own_confidence(output)) is not None:
                found[DriftColumn(output.model, "confidence")] = _number(sure)
    return found


def _of_input(given: Input) -> Iterator[tuple[str, Reading]]:
    if isinstance(given, Tensor | NamedTensors):
        yield from _of_array("input", given)
        return
    if isinstance(given, str) and given.startswith("{") and (row := _row(given)) is not None:
        for name in sorted(row)[:MOST_OF_ARRAY]:
            yield worded(name), _of_cell(row[name])
        return
    yield "input length", float(len(given))


def _of_array(name: str, given: Tensor | NamedTensors) -> Iterator[tuple[str, Reading]]:
    array: NDArray[Any] = given.numpy()
    if array.dtype.names is not None:
        for field in array.dtype.names[:MOST_OF_ARRAY]:
            yield from _sums(worded(field), array[field])
    elif array.dtype.kind in "biuf":
        yield from _sums(name, array)


def _sums(name: str, array: NDArray[Any]) -> Iterator[tuple[str, Reading]]:
    """Yield the numbers of a narrow array, or sums of those of a wide one."""
    values = np.asarray(array, dtype=np.float64).ravel()
    if values.size <= MOST_OF_ARRAY:
        plain = [name] if values.size == 1 else [f"{name}[{place}]" for place in range(values.size)]
        yield from ((one, _number(value)) for one, value in zip(plain, values.tolist(), strict=True))
        return
    hashed = np.arange(1, values.size + 1, dtype=np.uint64) * _HASH & _BITS
    signed = np.where(hashed & 1, values, -values)
    found = np.bincount((hashed >> np.uint64(16)).astype(np.int64) % MOST_OF_ARRAY, signed, MOST_OF_ARRAY)
    yield from ((f"{name} sum {place}", _number(value)) for place, value in enumerate(found.tolist()))


def _of_value(name: str, value: Value | None) -> Iterator[tuple[str, Reading]]:
    if isinstance(value, Tensor | NamedTensors):
        yield from _of_array(name, value)
    elif isinstance(value, float):
        yield name, _number(value)
    else:
        yield name, None if value is None else worded(value)


def _of_cell(value: object) -> Reading:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    return None if value is None else worded(value)


def _row(text: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # nested too deep
        return None
    return found if isinstance(found, dict) else None


def _number(value: float) -> float | None:
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if isfinite(found) else None
