"""Answers of a request as columns, one row a query, which all protocols write in their own way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from schemas.records import Status, Tensor
from streams.gateway.protocol.values import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Prediction, Value
    from streams.gateway.protocol.tensors import Array

# Why a query has no answer -> the status of HTTP. Any other reason is a deadline that was not kept.
STATUSES: Final = {
    "invalid": 400, "unknown_application": 404, "unknown_version": 404, "failed": 502, "unknown_model": 502,
    "overloaded": 503, "over_limit": 503,
}  # fmt: skip
RETRY_S: Final = 1


# In the order in which they are told.
OUTPUTS: Final = ("answer", "confidence", "status", "reason", "probability", "decision", "query_id")


class OutputColumn(NamedTuple):
    """One output: an array with a row a query, or a text a query."""

    name: str
    values: Array | list[str]


def check(predictions: Sequence[Prediction]) -> None:
    """Return if any row has an answer; an application's default output is one.

    Raises:
        RequestRefusedError: none has.
    """
    for prediction in predictions:
        if prediction.answer is not None or prediction.status is not Status.DEFAULT:
            return
        if prediction.reason == "low_confidence":
            return
    first = predictions[0]
    status = STATUSES.get(first.reason or "", 504)
    advice = "" if status != 504 else "; give it more time (slo_ms), or a default_output to the application"
    message = f"no answer: {first.reason}{f': {first.message}' if first.message else ''}{advice}"
    raise RequestRefusedError(status, message, RETRY_S if status == 503 else 0)


def columns(predictions: Sequence[Prediction]) -> list[OutputColumn]:
    """Return all that is told of the answers."""
    return [
        OutputColumn("answer", stacked([p.answer for p in predictions])),
        OutputColumn("confidence", np.array([p.confidence for p in predictions], np.float64)),
        OutputColumn("status", [p.status.value for p in predictions]),
        OutputColumn("reason", [p.reason or "" for p in predictions]),
        OutputColumn("probability", np.array([probability(p) for p in predictions], np.float64)),
        OutputColumn("decision", [",".join(chosen(p)) for p in predictions]),
        OutputColumn("query_id", [p.query_id for p in predictions]),
    ]


def stacked(answers: Sequence[Value | None]) -> Array | list[str]:
    """Return answers as one array, or as texts; of numbers a missing one is NaN, of texts an empty one."""
    kinds = {type(answer) for answer in answers}
    if kinds <= {int} and all(-(2**63) <= answer < 2**63 for answer in answers):  # type: ignore[operator]
        return np.array(answers, np.int64)
    if kinds <= {int, float, type(None)}:
        return np.array([math.nan if answer is None else answer for answer in answers], np.float64)
    if kinds == {Tensor}:
        arrays = [answer.numpy() for answer in answers if isinstance(answer, Tensor)]
        if len({array.shape for array in arrays}) == 1:
            return np.stack(arrays)
    return ["" if answer is None else str(plain(answer)) for answer in answers]


def plain(answer: Value | None) -> object:
    """Return an answer as JSON has it."""
    return answer.numpy().tolist() if isinstance(answer, Tensor) else answer


def probability(prediction: Prediction) -> float:
    """Return how likely the decision was: of what stands first, or of the first model asked; 0 = nothing decided."""
    if prediction.first and isinstance(prediction.answer, Tensor) and prediction.answer.shape[0]:
        return prediction.first[int(prediction.answer.numpy().flat[0])]
    decision = prediction.decision
    return decision.propensities[decision.chosen[0]] if decision is not None and decision.chosen else 0.0


def chosen(prediction: Prediction) -> tuple[str, ...]:
    """Return the best ids, or the models that were asked."""
    if prediction.best:
        return prediction.best
    decision = prediction.decision
    return () if decision is None else tuple([decision.arms[arm] for arm in decision.chosen])


def details(predictions: Sequence[Prediction]) -> list[dict[str, object]]:
    """Return what a protocol without places of its own tells beside the answers."""
    return [
        {
            "query_id": p.query_id, "status": p.status.value, "reason": p.reason, "confidence": p.confidence,
            "decision": list(chosen(p)), "probability": probability(p),
        }
        for p in predictions
    ]  # fmt: skip
