"""Predictions as rows of other topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.records import NamedTensors, Tensor
from streams.mapping.expressions import at_path
from streams.mapping.spec import ROW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Prediction
    from streams.mapping.fields import FieldSource
    from streams.mapping.spec import Outgoing

    Row = Mapping[str, Any]


def row_of(prediction: Prediction) -> dict[str, Any]:
    """Return what the fields of an outgoing record may be taken from: `spec.ANSWER`."""
    decision = prediction.decision
    return {
        "id": prediction.query_id,
        "application": prediction.application,
        "context": prediction.context,
        "answer": list(prediction.best) or _plain(prediction.answer),
        "confidence": prediction.confidence,
        "status": prediction.status.value,
        "reason": prediction.reason,
        "message": prediction.message or None,
        "sent_us": prediction.sent_us,
        "answered_us": prediction.answered_us,
        "took_ms": (prediction.answered_us - prediction.sent_us) / 1e3,
        "models": {
            output.model: {
                "answer": _plain(output.answer), "version": output.version, "outcome": output.outcome.value,
            }
            for output in prediction.outputs
        },
        "decision": None if decision is None else {
            "models": [decision.arms[arm] for arm in decision.chosen],
            "probability": min([decision.propensities[arm] for arm in decision.chosen], default=None),
            "policy": decision.policy,
            "state": decision.state,
        },
        "labels": None if prediction.label_set is None else [*prediction.label_set.labels],
        "interval": None if (made := prediction.interval) is None else {"low": made.low, "high": made.high},
    }  # fmt: skip


def outgoing_row(prediction: Prediction, asked: Row, outgoing: Outgoing) -> dict[str, Any] | None:
    """Return the row that a prediction becomes; None: it is none of those that are wanted.

    Args:
        prediction: the answer.
        asked: the row that asked, as far as it is kept.
        outgoing: which fields come from where.

    Raises:
        MappingError: an expression has no value.
    """
    found = row_of(prediction)
    if outgoing.where is not None and not outgoing.where.holds({**found, ROW: asked}):
        return None
    kept: dict[str, Any] = {}
    if outgoing.keep == "all":
        kept = dict(asked)
    elif outgoing.keep != "none":
        kept = {name: asked.get(name) for name in outgoing.keep}
    given = {**found, ROW: asked}
    return kept | {name: _value(source, given) for name, source in outgoing.fields.items()}


def _value(source: FieldSource, given: Row) -> Any:
    """Return a field's value; what an answer does not have, such as a model's that was not asked, is null."""
    if source.column is not None:
        return at_path(given, source.column)
    return [at_path(given, path) for path in source.columns] if source.columns else source.of(given)


def _plain(value: object) -> object:
    if isinstance(value, NamedTensors):
        return value.lists()
    return value.numpy().tolist() if isinstance(value, Tensor) else value
