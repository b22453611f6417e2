"""From a batch of inputs to one outcome a row: a bad row does not fail its neighbours.

    inputs ──▶ validate ──▶ stack ──▶ predict, halving what raises ──▶ check the outputs ──▶ one outcome a row
               INVALID                FAILED: the culprit              FAILED: not finite

The checks come before stacking because one NaN or one wrong width makes scikit-learn refuse the whole batch, and are
done on columns because a Python loop over 64 floats costs more than the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Outcome, Tensor
from workers.errors import OutputError
from workers.runtimes.contract import Outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_KINDS = {"string": str, "bytes": bytes}


@dataclass(frozen=True, slots=True)
class Predicted:
    """A batch's results as columns, one entry a row; answers and scores mean nothing where the outcome is not OK."""

    outcomes: tuple[Outcome, ...]
    answers: Answers
    scores: NDArray[np.generic] | None = None

    @classmethod
    def failed(cls, rows: int) -> Predicted:
        """Say that no row was answered."""
        return cls((Outcome.FAILED,) * rows, np.zeros(rows, dtype=np.int64))


def validate(signature: Signature, inputs: Sequence[Input]) -> tuple[list[int], list[str | None]]:
    """Sort out the inputs that have another form than the signature's; the numbers in them are not looked at.

    Returns:
        Indices of the rows of the right form, and for every row None or what is wrong with it: `kind`, `dtype`,
        `shape`.
    """
    if signature.kind != "tensor":
        wanted = _KINDS[signature.kind]
        reasons = [None if type(row) is wanted else "kind" for row in inputs]
    else:
        dtype, shape = signature.dtype, signature.shape
        size = int(np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64))
        reasons = [
            None
            if type(row) is Tensor and row.dtype == dtype and row.shape == shape and len(row.data) == size
            else _fault(row, dtype)
            for row in inputs
        ]
    return [i for i, reason in enumerate(reasons) if reason is None], reasons


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
    good, _ = validate(manifest.input, inputs)
    rows, good = _stack(manifest.input, inputs, good)
    found = _predict(runtime, rows) if good else []
    return _columns(len(inputs), good, found)


def _fault(row: Input, dtype: str | None) -> str:
    if type(row) is not Tensor:
        return "kind"
    return "shape" if row.dtype == dtype else "dtype"


def _stack(signature: Signature, inputs: Sequence[Input], good: list[int]) -> tuple[Rows, list[int]]:
    """Put the rows of the right form together, less those with numbers that the model refuses."""
    if signature.kind != "tensor":
        return [inputs[i] for i in good], good  # type: ignore[return-value] # validate() has looked at every row
    data = bytearray().join([inputs[i].data for i in good])  # type: ignore[union-attr] # as above
    rows = np.frombuffer(data, dtype=signature.dtype).reshape(len(good), *signature.shape)
    if rows.dtype.kind != "f" or not good:
        return rows, good
    usable = _usable(rows, allow_nan=signature.allow_nan)
    return (rows, good) if usable.all() else (rows[usable], [good[i] for i in np.flatnonzero(usable)])


def _usable(rows: NDArray[np.generic], *, allow_nan: bool) -> NDArray[np.bool_]:
    flat = np.abs(rows.reshape(len(rows), -1))
    fits = ~(flat >= MAGNITUDE) if allow_nan else flat < MAGNITUDE  # a comparison with NaN is false
    return fits.all(axis=1)


def _predict(runtime: Runtime, rows: Rows) -> list[tuple[int, Outputs | None]]:
    """Predict, halving a batch that raises until the culprits stand alone: at most log2(n) + 1 calls for a row.

    Returns:
        Spans in order: (length, outputs), None where the rows failed.
    """
    found: list[tuple[int, Outputs | None]] = []
    spans = [rows]
    culprits = 0
    while spans:
        span = spans.pop()
        outputs = _attempt(runtime, span) if culprits < MAX_CULPRITS else None
        if outputs is None and len(span) > 1 and culprits < MAX_CULPRITS:
            spans += [span[len(span) // 2 :], span[: len(span) // 2]]
            continue
        culprits += outputs is None
        found.append((len(span), outputs))
    return found


def _attempt(runtime: Runtime, rows: Rows) -> Outputs | None:
    try:
        outputs = runtime.predict_batch(rows)
        _check(outputs, len(rows))
    except Exception:  # noqa: BLE001 - the model is foreign code: whatever it raises fails its rows, not the worker
        return None
    return outputs


def _check(outputs: Outputs, rows: int) -> None:
    lengths = [len(outputs.answers)] + ([] if outputs.scores is None else [len(outputs.scores)])
    if any(length != rows for length in lengths):
        raise OutputError(f"the model answered {lengths} rows for {rows}")
