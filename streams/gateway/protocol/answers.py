"""Answers of a request as columns, one row a query, which all protocols write in their own way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from schemas.records import NamedTensors, Status, Tensor
from streams.gateway.protocol import tensors
from streams.gateway.protocol.values import RequestRefusedError, dumped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Prediction, Value

# Why a query has no answer -> the status of HTTP. Any other reason is a deadline that was not kept.
STATUSES: Final = {
    "invalid_input": 400, "not_ranked": 400, "too_many_features": 400,
    "unknown_application": 404, "unknown_version": 404,
    "model_failed": 502, "oversized_outputs": 502, "policy_failed": 502, "unknown_model": 502,
    "expired_in_queue": 503, "over_limit": 503, "overloaded": 503,
}  # fmt: skip
LATE: Final = 504
RETRY_S: Final = 1


# In the order in which they are told.
OUTPUTS: Final = ("answer", "confidence", "status", "reason", "probability", "decision", "query_id")


class OutputColumn(NamedTuple):
    """One output of all rows.

    Attributes:
        datatype: as Open Inference names it.
        shape: its rows first.
        values: numbers or texts, flat; of vectors an array, as a list would take five times as much.
    """

    datatype: str
    shape: tuple[int, ...]
    values: list[Any] | NDArray[np.generic]


def check(predictions: Sequence[Prediction]) -> None:
    """Return if any row has an answer; an application's default output is one, unless no version of that name runs.

    Raises:
        RequestRefusedError: none has.
    """
    if any(_answers(prediction) for prediction in predictions):
        return
    first = predictions[0]
    status = status_of(first)
    advice = _ADVICE.get(first.reason or "", _MORE_TIME if status == LATE else "")
    message = f"no answer: {first.reason}{f': {first.message}' if first.message else ''}{advice}"
    raise RequestRefusedError(status, message, RETRY_S if status == 503 else 0)


def status_of(prediction: Prediction) -> int:
    """Return the status of HTTP that says why a query has no answer."""
    return STATUSES.get(prediction.reason or "", LATE)


def _answers(prediction: Prediction) -> bool:
    if prediction.status is not Status.DEFAULT or prediction.reason == "low_confidence":
        return True
    return prediction.answer is not None and prediction.reason != "unknown_version"  # who asked named the version


def column(name: str, predictions: Sequence[Prediction]) -> OutputColumn:
    """Return one of `OUTPUTS`."""
    if name == "answer":
        return stacked([prediction.answer for prediction in predictions])
    datatype, of = _READ[name]
    return OutputColumn(datatype, (len(predictions),), [of(prediction) for prediction in predictions])


def stacked(answers: Sequence[Value | None]) -> OutputColumn:
    """Return answers in the type that holds them all; of numbers a missing one is NaN, of texts an empty one."""
    kinds, shape, given = {type(answer) for answer in answers}, (len(answers),), list[Any](answers)
    if kinds == {int}:
        return OutputColumn("INT64", shape, given)
    if kinds <= {int, float, type(None)}:
        return OutputColumn("FP64", shape, [math.nan if one is None else float(one) for one in given])
    if kinds == {Tensor}:
        arrays = [answer.numpy() for answer in answers if isinstance(answer, Tensor)]
        if len({(array.shape, array.dtype) for array in arrays}) == 1:
            found = np.stack(arrays)
            return OutputColumn(tensors.NAMES[found.dtype.name], found.shape, found.ravel())
    return OutputColumn(tensors.BYTES, shape, ["" if answer is None else str(_listed(answer)) for answer in answers])


def _listed(answer: Value) -> object:
    if isinstance(answer, NamedTensors):
        return dumped(plain(answer)).decode()
    return answer.numpy().tolist() if isinstance(answer, Tensor) else answer


def plain(answer: Value | None) -> object:
    """Return an answer as `dumped` takes it."""
    if isinstance(answer, NamedTensors):
        return {name: plain(Tensor.of(array)) for name, array in answer.arrays().items()}
    if not isinstance(answer, Tensor):
        return answer
    return answer.numpy() if answer.shape else answer.numpy().item()


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


_MORE_TIME: Final = "; give it more time (slo_ms), or a default_output to the application"
_ADVICE: Final = {
    "unknown_version": "; `skysail model list` shows the versions that run",
    "unknown_model": "; `skysail doctor` says which model is not deployed",
    "model_failed": "; its worker's log says more",
}

_READ: Final[Mapping[str, tuple[str, Callable[[Prediction], object]]]] = {
    "confidence": ("FP64", lambda prediction: prediction.confidence),
    "status": (tensors.BYTES, lambda prediction: prediction.status.value),
    "reason": (tensors.BYTES, lambda prediction: prediction.reason or ""),
    "probability": ("FP64", probability),
    "decision": (tensors.BYTES, lambda prediction: ",".join(chosen(prediction))),
    "query_id": (tensors.BYTES, lambda prediction: prediction.query_id),
}
