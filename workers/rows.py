"""From a batch of inputs to one outcome a row: a bad row does not fail its neighbours.

    inputs ──▶ validate and stack ──▶ predict, halving what raises ──▶ check the outputs ──▶ one outcome a row
               INVALID                FAILED: the culprit              FAILED: not finite

The checks come before predicting because one NaN or one wrong width makes scikit-learn refuse the whole batch, and are
done on columns because a Python loop over 64 floats costs more than the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from schemas.records import Outcome, Tensor
from workers.columns import Stacked
from workers.errors import OutputError
from workers.runtimes.contract import Outputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input
    from workers.manifest import Manifest, Signature
    from workers.runtimes.contract import Answers, Rows, Runtime

# Larger magnitudes overflow when they are squared in float32 or summed in float64, and scikit-learn's models disagree
# about which of them they refuse; no measured feature comes near.
MAGNITUDE = 1e30
# A model that fails on more rows of one batch than this is broken itself: the rest fails untried, or a batch of n would
# cost 2n calls of a model that raises on everything.
MAX_CULPRITS = 16
_SUMMED = 4096  # numbers of a batch whose squares are summed; OpenBLAS takes threads for more than 10,000
_KINDS = {"string": str, "bytes": bytes}


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch after validation: the stacked good rows, where they stood, and what is wrong with the others."""

    rows: Rows
    good: list[int]
    reasons: Mapping[int, str]  # row -> kind | dtype | shape | number


@dataclass(frozen=True, slots=True)
class Predicted:
    """A batch's results as columns, one entry a row; answers and scores mean nothing where the outcome is not OK."""

    outcomes: tuple[Outcome, ...]
    answers: Answers
    scores: NDArray[np.generic] | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)  # of the INVALID rows
    fault: str | None = None  # what the model raised first

    @classmethod
    def failed(cls, rows: int, fault: str) -> Predicted:
        """Say that no row was answered, and why."""
        return cls((Outcome.FAILED,) * rows, np.zeros(rows, dtype=np.int64), fault=fault)


def validate(signature: Signature, inputs: Sequence[Input]) -> Checked:
    """Sort out what does not fit the signature and stack the rest."""
    if signature.kind != "tensor":
        wanted = _KINDS[signature.kind]
        good = [i for i, row in enumerate(inputs) if type(row) is wanted]
        other = {i: "kind" for i, row in enumerate(inputs) if type(row) is not wanted}
        return Checked([inputs[i] for i in good], good, other)  # type: ignore[arg-type] # all `wanted`
    dtype, shape = signature.dtype, signature.shape
    size = _bytes(dtype, shape)
    reasons: dict[int, str] = {}
    if _is_column(inputs, dtype, shape, size):
        joined = bytearray(inputs.data)  # writable: torch and Cython want that
    else:
        data = [
            row.data
            for row in inputs
            if type(row) is Tensor and row.dtype == dtype and row.shape == shape and len(row.data) == size
        ]
        reasons = {} if len(data) == len(inputs) else _faults(inputs, signature, size)
        joined = bytearray().join(data)
    good = [i for i in range(len(inputs)) if i not in reasons] if reasons else list(range(len(inputs)))
    rows = np.frombuffer(joined, dtype=dtype).reshape(len(good), *shape)
    return _refuse_numbers(Checked(rows, good, reasons), rows, allow_nan=signature.allow_nan)


def _is_column(inputs: Sequence[Input], dtype: str | None, shape: tuple[int, ...], size: int) -> TypeGuard[Stacked]:
    """Tell whether these are rows of the right form that stand one behind the other already."""
    if type(inputs) is not Stacked or inputs.dtype != dtype or inputs.shape != shape:
        return False
    return len(inputs.data) == size * len(inputs)


def predict_rows(runtime: Runtime, manifest: Manifest, inputs: Sequence[Input]) -> Predicted:
    """Answer every row that can be answered.

    Args:
        runtime: the model.
        manifest: its signature and output kind.
        inputs: n rows, as they came.

    Returns:
        n outcomes: OK, INVALID (the row does not fit the signature) or FAILED (the model raised on it, or its answer is
        not finite).
    """
    checked = validate(manifest.input, inputs)
    found = _predict(runtime, checked.rows) if checked.good else []
    return _columns(len(inputs), checked, found)


@lru_cache
def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return np.dtype(dtype).itemsize * math.prod(shape)


def _faults(inputs: Sequence[Input], signature: Signature, size: int) -> dict[int, str]:
    """Return what is wrong with the rows that are no tensors of `size` bytes, as the signature wants them."""
    found = {}
    for i, row in enumerate(inputs):
        if type(row) is not Tensor:
            found[i] = "kind"
        elif row.dtype != signature.dtype:
            found[i] = "dtype"
        elif row.shape != signature.shape or len(row.data) != size:
            found[i] = "shape"
    return found


def _refuse_numbers(checked: Checked, rows: NDArray[np.generic], *, allow_nan: bool) -> Checked:
    """Take out the rows with NaN (unless allowed), infinities and magnitudes that overflow."""
    if rows.dtype.kind != "f" or not checked.good or _small(rows):
        return checked
    flat = np.abs(rows.reshape(len(rows), -1))
    if flat.max(initial=0.0) < MAGNITUDE:  # of a NaN the maximum is NaN, and any comparison with NaN is false
        return checked
    fits = ~(flat >= MAGNITUDE) if allow_nan else flat < MAGNITUDE
    usable = fits.all(axis=1)
    if usable.all():
        return checked
    refused = {checked.good[i]: "number" for i in np.flatnonzero(~usable)}
    good = [checked.good[i] for i in np.flatnonzero(usable)]
    return Checked(rows[usable], good, {**checked.reasons, **refused})


def _small(rows: NDArray[np.generic]) -> bool:
    """Say whether a small batch is certainly without NaN, infinities and large magnitudes: its sum of squares tells.

    Half a microsecond instead of four, which counts where every batch is of two rows. Where `dot` would warn of an
    overflow, which is an answer here, `vdot` does not.
    """
    if rows.size > _SUMMED:
        return False
    numbers: NDArray[Any] = rows.reshape(-1)
    return bool(np.vdot(numbers, numbers) < MAGNITUDE)


def _predict(runtime: Runtime, rows: Rows) -> list[tuple[int, Outputs | str]]:
    """Predict, halving a batch that raises until the culprits stand alone: at most log2(n) + 1 calls for a row.

    Returns:
        Spans in order: (length, outputs, or what the model raised).
    """
    found: list[tuple[int, Outputs | str]] = []
    spans = [rows]
    culprits = 0
    while spans:
        span = spans.pop()
        tried = _attempt(runtime, span) if culprits < MAX_CULPRITS else "too many rows of the batch failed"
        if isinstance(tried, str) and len(span) > 1 and culprits < MAX_CULPRITS:
            spans += [span[len(span) // 2 :], span[: len(span) // 2]]
            continue
        culprits += isinstance(tried, str)
        found.append((len(span), tried))
    return found


def _attempt(runtime: Runtime, rows: Rows) -> Outputs | str:
    try:
        outputs = runtime.predict_batch(rows)
        _check(outputs, len(rows))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: whatever it raises fails its rows alone
        return f"{type(error).__name__}: {error}"
    return outputs


def _check(outputs: Outputs, rows: int) -> None:
    scores = rows if outputs.scores is None else len(outputs.scores)
    if len(outputs.answers) != rows or scores != rows:
        raise OutputError(f"the model returned {len(outputs.answers)} answers and {scores} scores for {rows} rows")


def _columns(count: int, checked: Checked, found: list[tuple[int, Outputs | str]]) -> Predicted:
    """Put the spans' outputs back to where their rows stood."""
    length, first = found[0] if found else (0, "")
    if length == count and isinstance(first, Outputs) and _sound(first):  # as good as always
        return Predicted((Outcome.OK,) * count, first.answers, first.scores)
    parts: list[Outputs] = []
    places: list[int] = []
    start = 0
    for length, tried in found:
        if isinstance(tried, Outputs) and (not parts or _form(tried) == _form(parts[0])):
            parts.append(tried)
            places += checked.good[start : start + length]
        start += length
    faults = [tried for _, tried in found if isinstance(tried, str)]
    outputs = _spread(parts, places, count)
    fine = _finite(outputs) & np.isin(np.arange(count), places)
    outcomes = [Outcome.OK if ok else Outcome.FAILED for ok in fine.tolist()]
    for row in checked.reasons:
        outcomes[row] = Outcome.INVALID
    if not fine.all():
        outputs = _blank(outputs, fine)
    return Predicted(tuple(outcomes), outputs.answers, outputs.scores, checked.reasons, faults[0] if faults else None)


def _form(outputs: Outputs) -> tuple[bool, tuple[int, ...] | None]:
    return isinstance(outputs.answers, tuple), None if outputs.scores is None else outputs.scores.shape[1:]


def _spread(parts: list[Outputs], places: list[int], count: int) -> Outputs:
    """Join parts of one form and put row j of them at places[j] of `count` rows."""
    if len(parts) == 1 and len(places) == count:
        return parts[0]
    if not parts:
        return Outputs(np.zeros(count, dtype=np.int64))
    columns = [part.scores for part in parts if part.scores is not None]
    scores = _scatter(columns, places, count) if columns else None
    numbers = [part.answers for part in parts if not isinstance(part.answers, tuple)]
    if numbers:
        return Outputs(_scatter(numbers, places, count), scores)
    texts = dict(zip(places, (text for part in parts for text in part.answers), strict=True))
    return Outputs(tuple(texts.get(i, "") for i in range(count)), scores)


def _scatter(parts: list[NDArray[np.generic]], places: list[int], count: int) -> NDArray[np.generic]:
    joined = np.concatenate(parts)
    full = np.zeros((count, *joined.shape[1:]), dtype=joined.dtype)
    full[places] = joined
    return full


def _sound(outputs: Outputs) -> bool:
    """Tell whether all of it is finite; whole numbers and texts are."""
    columns = [each for each in (outputs.answers, outputs.scores) if isinstance(each, np.ndarray)]
    return all(column.dtype.kind not in "fc" or bool(np.isfinite(column).all()) for column in columns)


def _finite(outputs: Outputs) -> NDArray[np.bool_]:
    fine = np.ones(len(outputs.answers), dtype=np.bool_)
    if not isinstance(outputs.answers, tuple):
        fine &= np.isfinite(outputs.answers)
    if outputs.scores is not None:
        fine &= np.isfinite(outputs.scores).all(axis=1)
    return fine


def _blank(outputs: Outputs, fine: NDArray[np.bool_]) -> Outputs:
    """Zero what is no answer: NaN must not travel."""
    answers = outputs.answers if isinstance(outputs.answers, tuple) else np.where(fine, outputs.answers, 0)
    scores = None if outputs.scores is None else np.where(fine[:, None], outputs.scores, 0)
    return Outputs(answers, scores)
