"""How long answers took, as shares between bounds, and which legs take what of an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streams.control.history import Key
from streams.control.page.page_types import AnswerTimes, LegBudget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.control.history import Risen

_WITHIN: Final = "answer_seconds_bucket"  # cumulative: how many took no longer than the bound
_ALL: Final = "+Inf"


def times(risen: Risen, application: str, objective_s: float | None) -> AnswerTimes | None:
    """Return the shares of answers between bounds; None if nothing was answered.

    Args:
        risen: what counters rose by in the last minute.
        application: whose answers.
        objective_s: within which they are to be.
    """
    within = {key.rest: count for key, count in _of(risen, application).items() if key.rest}
    total = within.pop(_ALL, 0.0)
    if total <= 0.0:
        return None
    bounds = sorted(within, key=float)
    shares, before = [], 0.0
    for count in (*(within[bound] for bound in bounds), total):
        shares.append(round(max(0.0, count - before) / total, 4))
        before = max(before, count)
    return AnswerTimes(
        bounds_ms=[round(float(bound) * 1e3, 3) for bound in bounds],
        shares=shares,
        objective_ms=None if objective_s is None else round(objective_s * 1e3, 3),
    )


def budget(risen: Risen, model: str, wait_s: float | None) -> LegBudget:
    """Return what the legs of a question to a model take."""
    batches = risen.get(Key("batches_total", "", model), 0.0)
    took_us = risen.get(Key("predict_us_total", "", model))
    return LegBudget(
        wait=None if wait_s is None else round(wait_s * 1e3, 2),
        predict=round(took_us / batches / 1e3, 2) if took_us is not None and batches else None,
    )


def _of(risen: Risen, application: str) -> Mapping[Key, float]:
    return {key: count for key, count in risen.items() if key.name == _WITHIN and key.application == application}
