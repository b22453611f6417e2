"""Whether a package answers as the object that it was made of: that is asked, too, about the same rows.

    sample ─┬─────────────────────▶ the object: its own predict, forward or call ─▶ expected ─┐
            └─ mixed rows, beside it                                                          ├─ equal, or refused
               └─ as rows travel ─▶ the package, loaded as a worker loads it ───────▶ found ──┘

What only the object knows (a threshold, the best round of training, a number that stands for missing) shows so. A
sample may be small, so rows that take each feature from any row of the sample are compared, too.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from schemas.records import Outcome
from workers.errors import PackageError, refusing
from workers.inputs.rows import predict_rows
from workers.packages import autotune as choices
from workers.packages import samples
from workers.runtimes.contract import own
from workers.runtimes.tables import PandasFrame

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from streams.operators.contract import Predicted
    from workers.manifest import Manifest
    from workers.packages.loading import LoadedModel
    from workers.runtimes.contract import Outputs, Rows

_log = logging.getLogger(__name__)
# What an object answers to a batch: labels or values, and scores wherever it has them.
Ask: TypeAlias = "Callable[[Rows | PandasFrame], Outputs]"
TOLERANCE: Final = choices.TOLERANCE  # of the largest number of a batch; sums of float32 depend on their order
HALVES: Final = 0.02  # for networks that compute in 16 bits
_SHOWN: Final = 60  # characters of an answer


class Original(NamedTuple):
    """What a package is made of.

    Attributes:
        name: for people, such as "the estimator".
        ask: answers a batch; it may write into it.
        is_mixed: it is also asked about rows that are mixed from the sample.
        tolerance: by which numbers may differ, as a share of the largest or of 1.
    """

    name: str
    ask: Ask
    is_mixed: bool = True
    tolerance: float = TOLERANCE


def expected_of(original: Original, sample: Rows | PandasFrame) -> Outputs:
    """Return what the original answers to the sample.

    Raises:
        PackageError: it does not, or its answers could mean several things.
    """
    with refusing(f"{original.name} gives the sample input no answer that can be packaged"):
        return original.ask(own(sample))


def require_same(
    original: Original, expected: Outputs, found: Predicted, model: LoadedModel, sample: Rows | PandasFrame
) -> None:
    """Refuse a package that answers otherwise than what it was made of.

    Args:
        original: that is asked about more rows.
        expected: its answers to the sample.
        found: the package's.
        model: the package, loaded.
        sample: rows as the original takes them; of a data frame the package gets its own columns.

    Raises:
        PackageError: it does.
    """
    _compare(original, expected, found, model.manifest, sample, "the sample input")
    mixed = probes(sample, allow_nan=model.manifest.input.allow_nan) if original.is_mixed else None
    if mixed is None:
        return
    try:
        expected = original.ask(own(mixed))
    except Exception:  # noqa: BLE001 - foreign code, and rows that nobody has seen: the sample alone decides
        return
    rows = samples.inputs(samples.kept(mixed, model.manifest.input))
    found = predict_rows(model.runtime, model.manifest, rows)
    _compare(original, expected, found, model.manifest, mixed, "rows mixed from the sample input")


def probes(sample: Rows | PandasFrame, *, allow_nan: bool = False) -> Rows | PandasFrame | None:
    """Return the sample's rows and some that take each feature from any of them; None if they cannot be mixed."""
    if isinstance(sample, np.ndarray):
        return choices.examples(sample, allow_nan=allow_nan) if sample.dtype.kind in "biuf" and sample.size else None
    if not isinstance(sample, PandasFrame):
        return None
    frame: Any = sample
    picks = np.random.default_rng(0).integers(len(frame), size=(choices.EXAMPLES, len(frame.columns)))
    columns = {name: frame[name].take(picks[:, at]).reset_index(drop=True) for at, name in enumerate(frame.columns)}
    found: PandasFrame = importlib.import_module("pandas").DataFrame(columns)
    return found


def _compare(
    original: Original, expected: Outputs, found: Predicted, manifest: Manifest, rows: Rows | PandasFrame, what: str
) -> None:
    differing = np.flatnonzero(_differ(original, expected, found, manifest))
    if not len(differing):
        return
    if not _is_steady(original.ask(own(rows)), expected):
        _log.warning("%s: %s answers the same rows differently from call to call", manifest.name, original.name)
        return
    row = int(differing[0])
    is_ok = found.outcomes[row] is Outcome.OK
    said = _shown(found, row) if is_ok else found.fault or found.messages.get(row, "nothing")
    raise PackageError(
        f"row {row} of {what}: {original.name} answers {_shown(expected, row)}, the package {said}"
        f" ({len(differing)} of {len(expected.answers)} rows differ){_remedy(original, expected, found, row)}"
    )


def _is_steady(again: Outputs, expected: Outputs) -> bool:
    """Tell whether the original answers as it did."""
    pairs = [(again.answers, expected.answers), (again.scores, expected.scores)]
    return all(np.array_equal(np.asarray(one), np.asarray(other)) for one, other in pairs)


def _remedy(original: Original, expected: Outputs, found: Predicted, row: int) -> str:
    if expected.scores is not None and found.scores is not None:
        one, other = expected.scores[row : row + 1], np.asarray(found.scores[row : row + 1])
        if one.shape == other.shape and not _apart(one, other, original.tolerance).any():
            return (
                ": its label is not the class of its highest score, package it with output='label', or give its classes"
            )
    return ": it knows something that its package does not hold"


def _differ(original: Original, expected: Outputs, found: Predicted, manifest: Manifest) -> NDArray[np.bool_]:
    """Tell for each row whether the answers differ; those of the original that are not finite do not count."""
    ok = np.array([outcome is Outcome.OK for outcome in found.outcomes])
    first, second = np.asarray(expected.answers), np.asarray(found.answers)
    if manifest.outputs and first.dtype == second.dtype:
        parts = [_apart(first[name], second[name], original.tolerance) for name, _, _ in manifest.outputs]
        return np.asarray(~ok | np.any([part.reshape(len(ok), -1).any(axis=1) for part in parts], axis=0))
    if first.shape != second.shape:
        return np.ones(len(ok), np.bool_)
    counts = np.isfinite(first) if first.dtype.kind == "f" else np.ones(len(first), np.bool_)
    scores = expected.scores
    differs = ~ok
    if scores is not None:
        counts &= np.isfinite(scores).all(axis=1)
    if manifest.output == "value":
        differs |= ok & _apart(first, second, original.tolerance)
    else:
        differs |= (
            ok
            & (first.astype(object) != second.astype(object))
            & ~_tied(expected, second, manifest, original.tolerance)
        )
    if manifest.output == "scores" and scores is not None and found.scores is not None:
        known = np.asarray(found.scores)
        differs |= ok & (_apart(scores, known, original.tolerance).any(axis=1) if scores.shape == known.shape else ok)
    differs &= counts
    return differs


def _apart(first: NDArray[np.generic], second: NDArray[np.generic], tolerance: float) -> NDArray[np.bool_]:
    a, b = first.astype(np.float64), second.astype(np.float64)
    largest = float(np.abs(a[np.isfinite(a)]).max(initial=1.0))
    with np.errstate(invalid="ignore"):
        close: NDArray[np.bool_] = np.abs(a - b) <= tolerance * largest
    return ~close


def _tied(expected: Outputs, labels: NDArray[np.generic], manifest: Manifest, tolerance: float) -> NDArray[np.bool_]:
    """Tell for each row whether its two labels have scores so close that the order of a sum decides between them."""
    scores = expected.scores
    if scores is None or scores.ndim != 2:
        return np.zeros(len(labels), np.bool_)
    places = {label: at for at, label in enumerate(manifest.classes or range(scores.shape[1]))}
    pairs = zip(np.asarray(expected.answers).tolist(), labels.tolist(), strict=True)
    columns = [(places.get(one), places.get(other)) for one, other in pairs]
    largest = max(1.0, float(np.abs(np.nan_to_num(scores.astype(np.float64))).max()))
    return np.array(
        [
            one is not None and other is not None and abs(float(row[one]) - float(row[other])) <= tolerance * largest
            for row, (one, other) in zip(scores, columns, strict=True)
        ],
        np.bool_,
    )


def _shown(outputs: Outputs | Predicted, row: int) -> str:
    answer: object = outputs.answers[row]
    said = f"{answer!s:.{_SHOWN}}"
    if outputs.scores is None:
        return said
    scores = np.asarray(outputs.scores[row])
    return f"{said} with scores {np.array2string(scores, precision=6, threshold=8):.{_SHOWN}}"
