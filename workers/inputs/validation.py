"""Stacks the rows of a batch that a model takes, and returns the reason for each row that it does not take. Pure.

    rows that fit ────────────────────────────────▶ one array, at no cost but the copy
    rows of another type or form ─▶ cast, if safe ─▶ the same array
                                 └▶ refused: a reason to count, a message to read

The checks come before predicting, because one NaN or one wrong width makes scikit-learn refuse the whole batch. They
work on columns, because a Python loop over 64 floats costs more than the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

import numpy as np

from schemas.records import DENSE, DTYPES, NamedTensors, Tensor, element
from workers.inputs.casting import cast, is_same_form
from workers.inputs.columns import Stacked
from workers.inputs.tables import MAGNITUDE, parsed
from workers.manifest import described

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Element, Input
    from workers.inputs.casting import Numbers
    from workers.manifest import Signature
    from workers.runtimes.contract import Rows

_SUMMED = 4096  # numbers of a batch whose squares are summed; beyond 10,000 OpenBLAS starts threads
_KINDS: Final = {"string": str, "bytes": bytes}
# Why a row is refused: a word for the counter, and a message without its subject.
_Refusals: TypeAlias = "dict[int, tuple[str, str]]"


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch after validation: the stacked good rows, their places, and the faults of the others."""

    rows: Rows
    good: list[int]
    reasons: Mapping[int, str] = field(default_factory=dict)  # row -> kind | dtype | shape | number
    messages: Mapping[int, str] = field(default_factory=dict)  # row -> "takes float32[4], got float32[5]"


def validate(signature: Signature, inputs: Sequence[Input]) -> Checked:
    """Refuse the rows that neither fit the signature nor can be cast, and stack the rest."""
    if signature.kind == "table":
        return _tables(signature, inputs)
    if signature.kind != "tensor" or signature.dtype is None:
        return _texts(signature, inputs)
    dtype, shape = signature.dtype, signature.shape
    size = _bytes(dtype, shape)
    if _is_column(inputs, dtype, shape, size):
        joined = bytearray(inputs.data)  # writable, as torch and Cython require
    else:
        data = [
            row.data
            for row in inputs
            if isinstance(row, DENSE) and row.dtype == dtype and row.shape == shape and len(row.data) == size
        ]
        if len(data) < len(inputs):
            return _cast(signature, inputs)
        joined = bytearray().join(data)
    rows = np.frombuffer(joined, element(dtype)).reshape(len(inputs), *shape)
    if signature.inputs:
        return _named_numbers(rows, {}, signature)
    return _refuse_numbers(rows, list(range(len(inputs))), {}, signature)


def _tables(signature: Signature, inputs: Sequence[Input]) -> Checked:
    found = [parsed(signature, row) for row in inputs]
    good = [i for i, row in enumerate(found) if not isinstance(row, str)]
    refused = {i: ("kind", row) for i, row in enumerate(found) if isinstance(row, str)}
    return _checked([found[i] for i in good], good, refused)  # type: ignore[arg-type] # all are tuples


def _texts(signature: Signature, inputs: Sequence[Input]) -> Checked:
    wanted = _KINDS[signature.kind]
    good = [i for i, row in enumerate(inputs) if type(row) is wanted]
    refused = {i: ("kind", _got(signature, row)) for i, row in enumerate(inputs) if type(row) is not wanted}
    return _checked([inputs[i] for i in good], good, refused)  # type: ignore[arg-type] # all are `wanted`


def _cast(signature: Signature, inputs: Sequence[Input]) -> Checked:
    if not signature.inputs:
        return _made_to_fit(signature, inputs)
    refused: _Refusals = {}
    return _named_numbers(_cast_by_name(signature, inputs, refused), refused, signature)


def _cast_by_name(signature: Signature, inputs: Sequence[Input], refused: _Refusals) -> NDArray[np.void]:
    """Cast the named tensors of each row; refuse rows whose tensors have other names or forms."""
    rows = np.zeros(len(inputs), element(signature.inputs))
    for i, row in enumerate(inputs):
        given = row.arrays() if isinstance(row, NamedTensors) and not row.shape else {}
        if given.keys() != {form.name for form in signature.inputs}:
            refused[i] = ("kind", _got(signature, row))
            continue
        for name, dtype, shape in signature.inputs:
            if not is_same_form(given[name].shape, shape):
                refused[i] = ("shape", _got(signature, row))
                break
            found, fits = cast(given[name], dtype)  # type: ignore[arg-type] # numbers
            if not fits.all():
                number = given[name].ravel()[fits.argmin()]
                refused[i] = ("dtype", f"{_got(signature, row)} with {number!s}, which {dtype} does not hold")
                break
            rows[name][i] = found.reshape(shape)
    return rows


def _named_numbers(rows: NDArray[np.void], refused: _Refusals, signature: Signature) -> Checked:
    """Refuse the rows of which some tensor has numbers that are refused; say which."""
    good = [i for i in range(len(rows)) if i not in refused]
    rows = rows[good] if refused else rows
    for name, dtype, shape in signature.inputs:
        checked = _refuse_numbers(rows[name], good, {}, replace(signature, dtype=dtype, shape=shape))
        if checked.reasons:
            refused |= {row: (why, f"in {name} {checked.messages[row]}") for row, why in checked.reasons.items()}
            rows, good = rows[[at for at, row in enumerate(good) if row in {*checked.good}]], checked.good
    return _checked(rows, good, refused)


def _is_column(inputs: Sequence[Input], dtype: Element, shape: tuple[int, ...], size: int) -> TypeGuard[Stacked]:
    """Tell whether these are rows of the right form that already lie one behind the other."""
    if type(inputs) is not Stacked or inputs.dtype != dtype or inputs.shape != shape:
        return False
    return len(inputs.data) == size * len(inputs)


@lru_cache
def _bytes(dtype: Element, shape: tuple[int, ...]) -> int:
    return element(dtype).itemsize * math.prod(shape)


def _made_to_fit(signature: Signature, inputs: Sequence[Input]) -> Checked:
    """Cast the rows that can be cast, all of one form together, and refuse the others."""
    refused: _Refusals = {}
    rows = np.zeros((len(inputs), *signature.shape), str(signature.dtype))
    for dtype, places, data in _forms(signature, inputs, refused):
        given = np.frombuffer(data, dtype).reshape(len(places), -1)
        found, fits = cast(given, str(signature.dtype))
        rows[places] = found.reshape(len(places), *signature.shape)
        for at in np.flatnonzero(~fits.all(axis=1)).tolist():
            number = given[at, fits[at].argmin()]
            why = f"{_got(signature, inputs[places[at]])} with {number!s}, which {signature.dtype} does not hold"
            refused[places[at]] = ("dtype", why)
    good = [i for i in range(len(inputs)) if i not in refused]
    return _refuse_numbers(rows[good] if refused else rows, good, refused, signature)


def _forms(
    signature: Signature, inputs: Sequence[Input], refused: _Refusals
) -> Iterator[tuple[str, Sequence[int], bytes]]:
    """Return type, places and bytes of the rows with the right count of numbers; refuse the others."""
    if _is_whole(inputs) and isinstance(inputs.dtype, str) and is_same_form(inputs.shape, signature.shape):
        yield inputs.dtype, range(len(inputs)), inputs.data
        return
    parts: dict[str, list[tuple[int, bytes]]] = {}
    for i, row in enumerate(inputs):
        if type(row) is not Tensor or row.dtype not in DTYPES:
            refused[i] = ("kind" if type(row) is not Tensor else "dtype", _got(signature, row))
        elif not is_same_form(row.shape, signature.shape) or len(row.data) != _bytes(row.dtype, row.shape):
            refused[i] = ("shape", _got(signature, row))
        else:
            parts.setdefault(row.dtype, []).append((i, row.data))
    for dtype, found in parts.items():
        yield dtype, [i for i, _ in found], b"".join([data for _, data in found])


def _is_whole(inputs: Sequence[Input]) -> TypeGuard[Stacked]:
    """Tell whether rows lie one behind the other, with the right count of bytes."""
    return type(inputs) is Stacked and _is_column(
        inputs, inputs.dtype, inputs.shape, _bytes(inputs.dtype, inputs.shape)
    )


def _got(signature: Signature, row: Input) -> str:
    given = described(row.dtype, row.shape) if isinstance(row, DENSE) else "a text" if type(row) is str else "bytes"
    return f"takes {signature}, got {given}"


def _refuse_numbers(rows: Numbers, good: list[int], refused: _Refusals, signature: Signature) -> Checked:
    """Refuse the rows with NaN (unless allowed), infinities and magnitudes that overflow."""
    if rows.dtype.kind != "f" or not good or _small(rows):
        return _checked(rows, good, refused)
    flat = np.abs(rows.reshape(len(rows), -1))
    if flat.max(initial=0.0) < MAGNITUDE:  # the maximum of a NaN is NaN, and any comparison with NaN is false
        return _checked(rows, good, refused)
    fits = ~(flat >= MAGNITUDE) if signature.allow_nan else flat < MAGNITUDE
    usable = fits.all(axis=1)
    for at in np.flatnonzero(~usable).tolist():
        refused[good[at]] = ("number", _named(signature, rows[at].ravel(), int(fits[at].argmin())))
    return _checked(rows[usable], [good[at] for at in np.flatnonzero(usable)], refused)


def _named(signature: Signature, numbers: Numbers, at: int) -> str:
    """Name the first number of a row that the model does not take."""
    if np.isnan(numbers[at]):
        return f"takes {signature} without NaN, got NaN at {at}; packaged with allow_nan=True it takes it"
    return f"takes {signature} below {MAGNITUDE:g}, got {numbers[at]!s} at {at}"


def _checked(rows: Rows, good: list[int], refused: _Refusals) -> Checked:
    if not refused:
        return Checked(rows, good)
    ordered = sorted(refused.items())
    return Checked(rows, good, {i: reason for i, (reason, _) in ordered}, {i: message for i, (_, message) in ordered})


def _small(rows: Numbers) -> bool:
    """Tell by its sum of squares whether a small batch is certainly without NaN, infinities and large magnitudes.

    This takes half a microsecond instead of four, which counts if every batch has two rows. An overflow is a valid
    answer here; `dot` would warn of it, `vdot` does not.
    """
    if rows.size > _SUMMED:
        return False
    numbers = rows.reshape(-1)
    return bool(np.vdot(numbers, numbers) < MAGNITUDE)
