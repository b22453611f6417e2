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


def measured(plan: Candidate, history: History, now_us: int, *, has_taken_over: bool = False) -> dict[str, float]:
    """Return the guards that can be measured, by name; none of a policy, which answers nothing until it takes over.

    Args:
        plan: of the candidate.
        history: of what was reported.
        now_us: the time.
        has_taken_over: whether it is the version that serves, whose figures carry no version.
    """
    if plan.kind != VERSION:
        return {}
    _, risen = history.since(MINUTE_US, now_us)

    def of(name: str, outcome: str = "") -> float:
        """Return a counter of the candidate."""
        if not has_taken_over:
            return _beside(risen, name, plan, plan.candidate, outcome)
        # The name of an outcome alone is that of the version that serves.
        own = risen.get(Key(name, "", plan.name, outcome), 0.0)
        return own if outcome else own - _beside(risen, name, plan, plan.incumbent)

    found = {"defaults": _defaults(risen, plan.name), "latency": None if has_taken_over else _latency(risen, plan)}
    rows = of("rows_total")
    if rows >= _FEW:
        found |= {"failures": of("rows_total", "failed") / rows, "late": of("rows_total", "expired") / rows}
    return {name: value for name, value in found.items() if value is not None}


def _beside(risen: Risen, name: str, plan: Candidate, version: str, outcome: str = "") -> float:
    """Return a counter of a version that runs beside the one that serves."""
    return risen.get(Key(name, "", plan.name, f"{version} {outcome}".rstrip()), 0.0)


def _latency(risen: Risen, plan: Candidate) -> float | None:
    """Return the mean time of the candidate's rows, as a multiple of the others'."""
    rows, took_us = (_beside(risen, name, plan, plan.candidate) for name in ("batch_rows_total", "predict_us_total"))
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
