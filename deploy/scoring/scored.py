"""What came of rows, by columns: an answer for each, or its default with the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from policies.calibration import KNOTS, curve
from policies.confidence import _SUM_TOLERANCE
from schemas.records import NamedTensors, Outcome, Status, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from policies.contract import State
    from schemas.records import Value
    from streams.operators.contract import Predicted

COMPLETE, DEFAULT = Status.COMPLETE.value, Status.DEFAULT.value
UNREADABLE: Final = "unreadable"  # the reason of a row that no query can be made of
# As selection words them for a model that was asked alone and has no deadline.
_REASONS: Final[Mapping[Outcome, str]] = {Outcome.INVALID: "invalid_input", Outcome.FAILED: "model_failed"}
# What stands of each row in the output, beside what is kept of the input, in this order.
FIELDS: Final = (
    "id", "answer", "confidence", "status", "reason", "message", "model", "version", "propensity", "state_version",
)  # fmt: skip


class Scored(NamedTuple):
    """Rows with their answers; entry i of each column belongs to row i. Named as `FIELDS`, without the id."""

    answer: list[Any]
    confidence: list[float]
    status: list[str]
    reason: list[str | None]
    message: list[str | None]
    model: list[str | None]
    version: list[str | None]
    propensity: list[float | None]
    state_version: list[int | None]

    @classmethod
    def unanswered(cls, rows: int, default: Value | None) -> Scored:
        """Return rows that nothing is known of yet."""
        nothing: list[Any] = [None] * rows
        return cls(
            [default] * rows, [0.0] * rows, [DEFAULT] * rows, [*nothing], [*nothing], [*nothing], [*nothing],
            [*nothing], [*nothing],
        )  # fmt: skip

    @property
    def columns(self) -> tuple[list[Any], ...]:
        """Its columns, in order."""
        return self

    def place(self, rows: Sequence[int] | None, other: Scored) -> Scored:
        """Put the rows of another at these places; None = it has all of them, and is returned as it is."""
        if rows is None:
            return other
        for mine, its in zip(self.columns, other.columns, strict=True):
            for at, cell in zip(rows, its, strict=True):
                mine[at] = cell
        return self

    def refuse(self, faults: Mapping[int, str], default: Value | None) -> None:
        """Say of rows that they could not be read, and why."""
        for at, why in faults.items():
            empty: tuple[Any, ...] = (default, 0.0, DEFAULT, UNREADABLE, why, None, None, None, None)
            for mine, cell in zip(self.columns, empty, strict=True):
                mine[at] = cell


class AnswerTerms(NamedTuple):
    """How an application makes an answer of one model's output.

    Attributes:
        default: the answer where there is none.
        floor: the confidence below which the answer is the default.
        confidences: how often each arm is right; None = a confidence is 1.0, or the model's own where `is_own`.
        arm: whose output it is.
        is_own: whether a model's own confidence counts: the version was named, and nobody has decided.
    """

    default: Value | None = None
    floor: float = 0.0
    confidences: State | None = None
    arm: int = 0
    is_own: bool = False


def of_one(predicted: Predicted, model: str, version: str, terms: AnswerTerms) -> Scored:
    """Return the answers of one model, without a decision."""
    rows = len(predicted.outcomes)
    answers = _listed(predicted.answers)
    sure = _confidences(predicted, rows, terms)
    status: list[str] = [COMPLETE] * rows
    reason: list[str | None] = [None] * rows
    message: list[str | None] = [None] * rows
    if terms.floor > 0.0:
        for at in np.flatnonzero(sure < terms.floor).tolist():
            answers[at], status[at], reason[at] = terms.default, DEFAULT, "low_confidence"
    if predicted.outcomes.count(Outcome.OK) < rows:
        for at, outcome in enumerate(predicted.outcomes):
            if outcome is not Outcome.OK:
                answers[at], status[at], reason[at] = terms.default, DEFAULT, _REASONS.get(outcome, outcome.value)
                message[at] = predicted.messages.get(at) or predicted.fault
                sure[at] = 0.0
    nothing: list[Any] = [None] * rows
    return Scored(
        answers, sure.tolist(), status, reason, message, [model] * rows, [version] * rows, nothing, [*nothing]
    )  # fmt: skip


def _listed(answers: Any) -> list[Any]:
    if isinstance(answers, tuple):
        return [*answers]
    return answers.tolist() if answers.dtype.names is None else [plain(NamedTensors.of(row)) for row in answers]


def _confidences(predicted: Predicted, rows: int, terms: AnswerTerms) -> NDArray[np.float64]:
    """Return how likely each answer is right, as selection does for one model."""
    if predicted.scores is None or (terms.confidences is None and not terms.is_own):
        return np.ones(rows)
    own = best_shares(np.asarray(predicted.scores, np.float64))
    return own if terms.confidences is None else calibrated(terms.confidences, terms.arm, own)


def best_shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest of each row of scores (n, k), as a share; see `policies.confidence.best_share`."""
    if not scores.shape[1]:
        return np.zeros(len(scores))
    best: NDArray[np.float64] = scores.max(axis=1)
    is_share = (scores.min(axis=1) >= 0.0) & (np.abs(scores.sum(axis=1) - 1.0) <= _SUM_TOLERANCE)
    if is_share.all():
        return np.minimum(1.0, best)
    parts: NDArray[np.float64] = np.exp(scores - best[:, None])
    return np.asarray(np.where(is_share, np.minimum(1.0, best), parts.max(axis=1) / parts.sum(axis=1)))


def calibrated(state: State, arm: int, own: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how likely answers are right, by how sure their model is; see `policies.calibration.calibrated`."""
    width = 2 * len(KNOTS)
    counts = state[arm * width : (arm + 1) * width]
    if not any(counts):
        return own
    knots, right = np.array(KNOTS), np.array(curve(counts))
    lower = np.minimum(np.searchsorted(knots, own, side="right"), len(KNOTS) - 1) - 1
    far = (own - knots[lower]) / (knots[lower + 1] - knots[lower])
    return np.asarray(right[lower] + far * (right[lower + 1] - right[lower]))


def plain(answer: Value | None) -> Any:
    """Return an answer as it is written: scores and places are a list, several tensors a JSON text."""
    if isinstance(answer, NamedTensors):
        return json.dumps(answer.lists())
    return answer.numpy().tolist() if isinstance(answer, Tensor) else answer
