"""From a batch of inputs to one outcome a row: a bad row does not fail its neighbours.

inputs ──▶ validate and stack ──▶ predict, halving what raises ──▶ check the outputs ──▶ one outcome a row
           INVALID                FAILED: the culprit              FAILED: not finite
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policies.foreign import pass_on_interrupt, told
from schemas.records import DTYPES, Outcome, forms_of
from streams.operators.contract import Predicted
from workers.errors import OutputError
from workers.inputs.validation import validate
from workers.runtimes.contract import Outputs, own

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input, TensorForm
    from workers.inputs.validation import Checked
    from workers.manifest import Manifest
    from workers.runtimes.contract import Answers, Rows, Runtime

# A model that fails on more rows of one batch than this is broken itself, and the rest fails untried. Otherwise a batch
# of n rows would cost 2n calls of a model that raises on every row.
MAX_CULPRITS = 16
MAX_MESSAGE = 400  # characters of the message to a row's owner
_TRAVEL: Final = frozenset(map(np.dtype, DTYPES))
NOTHING: Final[Mapping[int, str]] = MappingProxyType({})


def predict_rows(
    runtime: Runtime, manifest: Manifest, inputs: Sequence[Input], unread: Mapping[int, str] = NOTHING
) -> Predicted:
    """Answer every row that can be answered.

    Args:
        runtime: the model.
        manifest: its signature and output kind.
        inputs: n rows, as they came.
        unread: why some are still addresses, which no model takes.

    Returns:
        n outcomes: OK, INVALID (the row does not fit the signature) or FAILED (the model raised on it, or its answer is
        not finite).
    """
    return answered(runtime, manifest, len(inputs), validate(manifest.input, inputs), unread)


def answered(
    runtime: Runtime, manifest: Manifest, count: int, checked: Checked, unread: Mapping[int, str] = NOTHING
) -> Predicted:
    """Answer every row of `count` that was found good, as `predict_rows` does."""
    found = _predict(runtime, checked.rows, manifest.outputs) if checked.good else []
    predicted = _columns(count, checked, found)
    if not checked.messages:
        return predicted
    told = {**checked.messages, **unread}
    messages = {row: f"model {manifest.name} {message}"[:MAX_MESSAGE] for row, message in told.items()}
    return replace(predicted, messages=messages, reasons={**predicted.reasons, **dict.fromkeys(unread, "reference")})


def _predict(runtime: Runtime, rows: Rows, forms: tuple[TensorForm, ...]) -> list[tuple[int, Outputs | str]]:
    """Predict, and halve a batch that raises until each culprit is alone: at most log2(n) + 1 calls for a row.

    Returns:
        Spans in order: (length, outputs, or the model's error).
    """
    found: list[tuple[int, Outputs | str]] = []
    spans = [rows]
    culprits = 0
    while spans:
        span = spans.pop()
        tried = _attempt(runtime, span, forms) if culprits < MAX_CULPRITS else "too many rows of the batch failed"
        if isinstance(tried, str) and len(span) > 1 and culprits < MAX_CULPRITS:
            spans += [span[len(span) // 2 :], span[: len(span) // 2]]
            continue
        culprits += isinstance(tried, str)
        found.append((len(span), tried))
    return found


def _attempt(runtime: Runtime, rows: Rows, forms: tuple[TensorForm, ...]) -> Outputs | str:
    try:
        return _plain(runtime.predict_batch(own(rows)), len(rows), forms)  # what raises may have written into it
    except BaseException as error:  # noqa: BLE001 - foreign code: whatever it raises fails its rows alone
        pass_on_interrupt(error)
        return told(error)


def _plain(outputs: Outputs, rows: int, forms: tuple[TensorForm, ...]) -> Outputs:
    """Return what a model gave as columns that travel, copied: nothing of them is computed, or changed, later.

    Args:
        outputs: what it gave.
        rows: that it was asked about.
        forms: of the tensors that it answers; empty = labels or numbers.

    Raises:
        OutputError: it is not one answer for each row.
        BaseException: whatever its values raise when they are read.
    """
    answers, scores = outputs.answers, outputs.scores
    if type(answers) is tuple:
        answers = tuple([text if type(text) is str else str.__str__(text) for text in answers])
    else:
        answers = _column(answers, 1, forms)
    if scores is not None:
        scores = _column(scores, 2)
    count = rows if scores is None else len(scores)
    if len(answers) != rows or count != rows:
        raise OutputError(f"the model returned {len(answers)} answers and {count} scores for {rows} rows")
    return Outputs(answers, scores)


def _column(given: object, sides: int, forms: tuple[TensorForm, ...] = ()) -> NDArray[np.generic]:
    column = np.array(given)
    native = column.dtype if column.dtype.isnative else column.dtype.newbyteorder("=")
    if column.ndim != sides or forms_of(native) != forms or not (forms or native in _TRAVEL):
        raise OutputError(f"the model returned {column.dtype} of shape {column.shape}")
    if native == np.uint64 and column.size and column.max() >= 1 << 63:
        raise OutputError(f"the model returned {column.max()}, which does not fit a whole number of 64 bits")
    return column.astype(native, copy=False)


def _columns(count: int, checked: Checked, found: list[tuple[int, Outputs | str]]) -> Predicted:
    """Put the spans' outputs back in the order of their rows."""
    length, first = found[0] if found else (0, "")
    if length == count and isinstance(first, Outputs) and _sound(first):  # nearly always
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
    """Tell whether every output is finite; whole numbers and texts always are."""
    columns = [each for each in (outputs.answers, outputs.scores) if isinstance(each, np.ndarray)]
    return all(column.dtype.kind not in "fcV" or bool(_are_finite(column).all()) for column in columns)


def _are_finite(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which numbers are finite, or which rows of named tensors hold such alone."""
    if column.dtype.names is None:
        return np.asarray(np.isfinite(column))
    parts = [np.isfinite(column[name]).reshape(len(column), -1).all(axis=1) for name in column.dtype.names]
    return np.asarray(np.logical_and.reduce(parts))


def _finite(outputs: Outputs) -> NDArray[np.bool_]:
    fine = np.ones(len(outputs.answers), dtype=np.bool_)
    if not isinstance(outputs.answers, tuple):
        fine &= _are_finite(outputs.answers)
    if outputs.scores is not None:
        fine &= np.isfinite(outputs.scores).all(axis=1)
    return fine


def _blank(outputs: Outputs, fine: NDArray[np.bool_]) -> Outputs:
    """Replace failed outputs by zero: NaN must not travel."""
    answers: Answers = outputs.answers
    if not isinstance(answers, tuple):
        answers = answers.copy()
        answers[~fine] = 0
    scores = None if outputs.scores is None else np.where(fine[:, None], outputs.scores, 0)
    return Outputs(answers, scores)
