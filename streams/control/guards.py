"""What the last minute's figures say about a candidate version, beside its losses; see `streams.promotion.verdict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.control.history import Key
from streams.promotion.lifecycle import VERSION

if TYPE_CHECKING:
    from schemas.records import Candidate
    from streams.control.history import History, Risen

MINUTE_US = 60_000_000
# Fewer rows or answers say nothing about a share of them.
_FEW = 20


def measured(plan: Candidate, history: History, now_us: int) -> dict[str, float]:
    """Return the guards that can be measured, by name; none of a policy, which answers nothing until it takes over."""
    if plan.kind != VERSION:
        return {}
    _, risen = history.since(MINUTE_US, now_us)
    found = {"defaults": _defaults(risen, plan.name)}
    rows = _of(risen, "rows_total", plan)
    if rows >= _FEW:
        found["failures"] = _of(risen, "rows_total", plan, "failed") / rows
        found["late"] = _of(risen, "rows_total", plan, "expired") / rows
    found["latency"] = _latency(risen, plan)
    return {name: value for name, value in found.items() if value is not None}


def _of(risen: Risen, name: str, plan: Candidate, *labels: str) -> float:
    """Return a counter of the candidate while it runs beside the version that serves."""
    return risen.get(Key(name, "", plan.name, " ".join((plan.candidate, *labels))), 0.0)


def _latency(risen: Risen, plan: Candidate) -> float | None:
    """Return the mean time of the candidate's rows, as a multiple of the others'."""
    rows, took_us = _of(risen, "batch_rows_total", plan), _of(risen, "predict_us_total", plan)
    others = risen.get(Key("batch_rows_total", "", plan.name), 0.0) - rows
    others_us = risen.get(Key("predict_us_total", "", plan.name), 0.0) - took_us
    if min(rows, others) < _FEW or others_us <= 0.0:
        return None
    return (took_us / rows) / (others_us / others)


def _defaults(risen: Risen, model: str) -> float | None:
    """Return the largest share of default answers of an application that asks the model."""
    asking = {key.application for key in risen if key.name == "asked_total" and key.model == model}
    shares = []
    for name in asking:
        answers = risen.get(Key("answers_total", name), 0.0)
        if answers >= _FEW:
            shares.append(risen.get(Key("answers_total", name, "", "default"), 0.0) / answers)
    return max(shares, default=None)
