"""One row of a dataset: what was asked, what was decided and answered, and what became known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from deploy.dataset.kinds import INPUT, fitted, named_row
from schemas.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.dataset.kinds import ColumnKinds
    from schemas.records import Observation, Prediction, Query

# Columns beside the inputs, and what each holds; `answer` and `label` are as the log shows them.
COLUMNS: Final[Mapping[str, str]] = {
    "query_id": "text", "context": "text", "asked_at": "moment", "answered_at": "moment", "answer": "",
    "status": "text", "reason": "text", "confidence": "number", "policy": "text", "state_version": "whole",
    "arms": "texts", "chosen": "texts", "propensity": "number", "propensities": "numbers", "features": "numbers",
    "models": "texts",
    "versions": "texts", "answers": "texts", "label": "", "loss": "number", "losses": "numbers", "cost": "number",
    "weight": "number", "joined": "text", "observed_at": "moment",
}  # fmt: skip


def row_of(asked: Query | None, answered: Prediction, seen: Observation | None, kinds: ColumnKinds) -> dict[str, Any]:
    """Return the row of a query.

    Args:
        asked: the query; None = it is no longer kept.
        answered: its answer.
        seen: what was learnt of it; None = nothing so far.
        kinds: of the columns.
    """
    decision = answered.decision
    arms = () if decision is None else decision.arms
    chosen = () if decision is None else decision.chosen
    shares = () if decision is None else decision.propensities
    outputs = [each for each in answered.outputs if each.outcome is Outcome.OK]
    features = () if decision is None else decision.features
    return {
        **_inputs(asked, kinds),
        "query_id": answered.query_id,
        "context": answered.context,
        "asked_at": answered.sent_us or None,
        "answered_at": answered.answered_us,
        "answer": fitted(kinds.of("answer"), answered.answer),
        "status": answered.status.value,
        "reason": answered.reason,
        "confidence": answered.confidence,
        "policy": None if decision is None else decision.policy,
        "state_version": None if decision is None else decision.state_version,
        "arms": list(arms),
        "chosen": [arms[arm] for arm in chosen],
        "propensity": shares[chosen[0]] if len(chosen) == 1 else None,
        "propensities": list(shares),
        "features": list(features or (() if asked is None else asked.features)),
        "models": [each.model for each in outputs],
        "versions": [each.version for each in outputs],
        "answers": [str(fitted("text", each.answer)) for each in outputs],
        "label": None if seen is None else fitted(kinds.of("label"), seen.label),
        "loss": None if seen is None else seen.loss,
        "losses": [] if seen is None else list(seen.losses),
        "cost": None if seen is None or seen.loss is None or seen.worth is None else seen.loss * seen.worth,
        "weight": None if seen is None else seen.weight,
        "joined": None if seen is None else seen.status.value,
        "observed_at": None if seen is None else seen.observed_us,
    }


def _inputs(asked: Query | None, kinds: ColumnKinds) -> dict[str, Any]:
    names = kinds.names
    if asked is None:
        return dict.fromkeys(names)
    if names == (INPUT,):
        return {INPUT: fitted(kinds.of(INPUT), asked.input)}
    row = named_row(asked.input) or {}
    return {name: fitted(kinds.of(name), row.get(name.removeprefix(f"{INPUT}."))) for name in names}
