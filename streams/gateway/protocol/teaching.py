"""Feedback over HTTP: `POST /v2/models/APPLICATION/feedback`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.inputs import NUMBERS, as_label, kinds
from schemas.records import Feedback, MetricFeedback
from streams.gateway.protocol.values import (
    HttpReply,
    ParsedFeedback,
    RequestRefusedError,
    document,
    dumped,
    few,
    number,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def parse(body: bytes, now_us: int) -> ParsedFeedback:
    """Return what a request tells: `{"id": ..., "label": ...}`, or `{"feedback": [...]}` with several.

    `{"id": ..., "metric": "revenue", "value": 12.5}` tells what a metric came to.

    Raises:
        RequestRefusedError: an entry has no id, or not exactly one of label and loss.
    """
    given = document(body)
    listed = given.get("feedback", [given])
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise RequestRefusedError(400, 'feedback is a list such as [{"id": "q1", "label": 3}]')
    few(len(listed))
    return ParsedFeedback(tuple([_one(one, now_us) for one in listed]), HttpReply(dumped({"taken": len(listed)}), 202))


def _one(given: Mapping[str, Any], now_us: int) -> tuple[Feedback | MetricFeedback, str | None]:
    query_id, loss, weight = text(given, "id"), number(given, "loss"), number(given, "weight")
    if not query_id:
        raise RequestRefusedError(400, "id is the id of the query that was answered, as `query_id` of its answer")
    if metric := text(given, "metric"):
        value = number(given, "value")
        if value is None or "label" in given or loss is not None:
            raise RequestRefusedError(400, "of a metric give its value, a number, and nothing else")
        return MetricFeedback(query_id, metric, value, now_us), text(given, "context")
    if (given.get("label") is None) == (loss is None):
        raise RequestRefusedError(400, "give either label or loss")
    if loss is not None and not 0 <= loss <= 1:
        raise RequestRefusedError(400, f"a loss lies in [0, 1], not {loss}")
    if weight is not None and not weight > 0:
        raise RequestRefusedError(400, f"a weight is above 0, not {weight}")
    if isinstance(given.get("label"), list) and not kinds(given["label"]) <= NUMBERS:
        raise RequestRefusedError(400, "a label is a number, a text or a list of scores")
    try:
        label = None if loss is not None else as_label(given["label"])
    except (TypeError, ValueError) as error:
        raise RequestRefusedError(400, str(error)) from error
    return Feedback(query_id, label, loss, now_us, weight), text(given, "context")
