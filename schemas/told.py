"""What an application tells: of the places of a ranking, and of an answer whose id it does not know."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from schemas.errors import SchemaError
from schemas.inputs import as_label
from schemas.records import Feedback, MetricFeedback, PlaceFeedback

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.records import KeyedFeedback, Value

MOST_TOLD: Final = 256  # of one answer; of more places nobody knows anything
_KNOWN: Final = frozenset({"position", "item", "label", "loss"})


def as_places(given: Iterable[Mapping[str, object]]) -> tuple[PlaceFeedback, ...]:
    """Return what is told of places, such as `[{"position": 0, "loss": 1}, {"item": "hats", "loss": 0}]`.

    Raises:
        SchemaError: one has neither position nor item, or both; or not exactly one of label and loss; or they are many.
    """
    found = tuple(map(_one, given))
    if len(found) > MOST_TOLD:
        raise SchemaError(f"places: {len(found)} of them; at most {MOST_TOLD} are told")
    return found


def _one(given: Mapping[str, object]) -> PlaceFeedback:
    if not hasattr(given, "items") or {*given} - _KNOWN:
        raise SchemaError(f"places: mappings of {', '.join(sorted(_KNOWN))} are needed, not {given!r:.80}")
    position, item, loss = given.get("position"), given.get("item"), given.get("loss")
    if (position is None) == (item is None):
        raise SchemaError("places: give either position or item of each")
    if item is not None and not (isinstance(item, str) and item):
        raise SchemaError(f"places: an item is the id of a candidate, not {item!r:.80}")
    if position is not None and (
        isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < 2**31
    ):
        raise SchemaError(f"places: a position is a whole number from 0, not {position!r:.80}")
    if (given.get("label") is None) == (loss is None):
        raise SchemaError("places: give either label or loss of each")
    if loss is None:
        return PlaceFeedback(position or 0, item or "", _label(given["label"]))
    if isinstance(loss, bool) or not isinstance(loss, int | float) or not isfinite(loss) or not 0 <= loss <= 1:
        raise SchemaError(f"places: a loss lies in [0, 1], not {loss!r:.80}")
    return PlaceFeedback(position or 0, item or "", None, float(loss))


def _label(given: object) -> Value:
    try:
        return as_label(given)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"places: {error}") from error


def by_id(told: KeyedFeedback, query_id: str, sent_us: int) -> Feedback | MetricFeedback:
    """Return what was told as feedback on a query, as if its id had been known."""
    by = told.application, told.teacher
    if told.metric:
        return MetricFeedback(query_id, told.metric, told.value, sent_us, *by)
    return Feedback(query_id, told.label, told.loss, sent_us, told.weight, *by, told.places)
