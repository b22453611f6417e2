"""Feedback on any place of a ranking: what each place that somebody may have looked at has cost.

    answer: places of candidates ─┐
    Feedback.places ──────────────┼─▶ of the first: as if it were told alone
    examination of the application┘   of each other one: a `PlaceLoss`, with what is learnt from

A place that the application's examination does not reach, or that nothing was told of, teaches nothing.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies.errors import LossError
from schemas.records import PlaceLoss, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Feedback, PlaceFeedback, Prediction, Ranked

_NO_RANKING: Final = "feedback on places is about a ranking, and this answer is none"
_OFF: Final = "feedback on places needs the application's examination: how likely each place is looked at"
_FEW = "the answer has {} places, counted from 0, and position is {}"


class PlacesTold(NamedTuple):
    """What feedback on places says."""

    first: Feedback  # of the first place alone; neither label nor loss = nothing was told of it
    others: tuple[PlaceLoss, ...]  # of the other places that are looked at, by position

    @property
    def is_first_told(self) -> bool:
        """Whether there is a label or loss of the first place."""
        return self.first.label is not None or self.first.loss is not None


def places_told(prediction: Prediction, feedback: Feedback, examination: Sequence[float]) -> PlacesTold:
    """Return what feedback says about the places of an answer.

    Args:
        prediction: the ranking.
        feedback: with places.
        examination: of the application: the probability that each place is looked at.

    Raises:
        LossError: it does not fit the answer, or names a place twice.
    """
    if not examination:
        raise LossError(_OFF)
    if feedback.label is not None or feedback.loss is not None:
        raise LossError("give a label or loss of the first place, or places, not both")
    ranked, answer = prediction.ranked, prediction.answer
    if ranked is None or not isinstance(answer, Tensor):
        raise LossError(_NO_RANKING)
    best: list[int] = answer.numpy().tolist()
    first, others = feedback._replace(places=()), dict[int, PlaceLoss]()
    seen: set[int] = set()
    for told in feedback.places:
        position = _position(told, best, ranked)
        if position in seen:
            raise LossError(f"position {position} is told twice")
        seen.add(position)
        if position == 0:
            first = first._replace(label=told.label, loss=told.loss)
        elif position < len(examination) and examination[position]:
            others[position] = _cost(told, position, best[position], ranked, examination[position])
    return PlacesTold(first, tuple([others[position] for position in sorted(others)]))


def _position(told: PlaceFeedback, best: Sequence[int], ranked: Ranked) -> int:
    """Return which place of the answer is meant."""
    if not told.item:
        if not 0 <= told.position < len(best):
            raise LossError(_FEW.format(len(best), told.position))
        return told.position
    names = [ranked.ids[place] for place in best] if ranked.ids else []
    if told.item not in names:
        raise LossError(f"{told.item!r} is not in the answer; candidates that were rows are told by position")
    return names.index(told.item)


def _cost(told: PlaceFeedback, position: int, place: int, ranked: Ranked, examined: float) -> PlaceLoss:
    """Return what a place has cost: items of models learn from losses, ranked features from labels."""
    loss, label = told.loss, told.label
    if (loss is None) == (label is None):
        raise LossError(f"position {position}: give either a label or a loss")
    if loss is not None and not 0.0 <= loss <= 1.0:
        raise LossError(f"position {position}: loss {loss} is outside [0, 1]")
    if ranked.items:
        if loss is None:
            raise LossError(f"position {position}: its item learns from a loss, not from a label")
        return PlaceLoss(position, place, loss, None, examined, ranked.items[place])
    if not isinstance(label, int | float) or not isfinite(label) or ranked.rows is None:
        raise LossError(f"position {position}: its features learn from a label that is a number")
    row = Tensor.of(np.ascontiguousarray(ranked.rows.numpy()[place]))
    return PlaceLoss(position, place, None, label, examined, features=row)
