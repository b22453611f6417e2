"""From what the stages of a graph have answered to the answer of their query: whole, or with what is there."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.graph import path
from schemas.records import ModelOutput, NamedTensors, Outcome, Status, Tensor
from streams.operators.selection.answer import answered, reason_of, without
from streams.operators.selection.graph.inputs import meant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.records import Model, Prediction, Value
    from streams.operators.selection.graph.walk import StageRow, Walk
    from streams.operators.selection.pending import Pending

_MESSAGE: Final = 1_000  # characters, as of other answers
TOO_MANY, NOTHING = "too_many_items", "nothing_to_ask"


def walked(query: Pending, walk: Walk, now_us: int, reason: str | None, models: Mapping[str, Model]) -> Prediction:
    """Make the answer of a query from what its stages have answered, or its default output for the given reason."""
    rows = meant(walk)
    query.message = _message(rows) or query.message
    application = query.application
    answer, status, confidence = None if reason else _answer(walk, rows), Status.COMPLETE, 0.0
    own = [row for row in rows if row.stage is walk.graph.answering and not row.left_out]
    is_whole = all(row.is_good for row in rows)
    if answer is not None:
        good = [row for row in own if row.is_good]
        confidence = len(good) / len(own) if own else float(is_whole)
    if not is_whole:
        status, reason = Status.PARTIAL, reason or _why(rows)
    if answer is not None and application is not None and confidence < application.confidence_floor:
        answer, reason = None, "low_confidence"
    if answer is None:
        answer = application.default_output if application is not None else None
        status, reason, confidence = Status.DEFAULT, reason or NOTHING, 0.0
    made = answered(query, now_us, status, reason, answer, confidence, _outputs(query, walk, own, models))
    places = {row.key: place for place, row in enumerate(rows)}
    return made._replace(stages=tuple([row.told(places) for row in rows]))


def _answer(walk: Walk, rows: list[StageRow]) -> Value | None:
    """Return the answer: a list, with null for what is missing; or the only one, or the nearest before that."""
    if walk.is_list:
        own = [row for row in rows if row.stage is walk.graph.answering and not row.left_out]
        return json.dumps([plain(row.output.answer) if row.output is not None else None for row in own])
    on_path = path(walk.graph.answering, walk.graph.stages)
    good = [row for row in rows if row.is_good and row.stage.name in on_path]
    answering = walk.graph.answering
    if all(row.is_good for row in rows) and (not good or good[-1].stage is not answering):
        return None  # there was nothing to ask it about
    return good[-1].output.answer if good and good[-1].output is not None else None


def _outputs(query: Pending, walk: Walk, own: list[StageRow], models: Mapping[str, Model]) -> tuple[ModelOutput, ...]:
    """Return the output of the model that the policy has chosen, from which it learns: one for all items.

    A list to which several versions were asked is nobody's: what it cost is not known of either.
    """
    if not own:
        return ()
    outputs = [row.output or without(query, walk.model, models, row.row_id) for row in own]
    if not walk.is_list:
        return (outputs[0],)
    versions = {output.version for output in outputs} - {""}  # none where selection itself found it wrong
    version = versions.pop() if len(versions) == 1 else ""
    if not any(row.is_good for row in own):
        return (outputs[0]._replace(version=version, scores=None),)
    answers = json.dumps([plain(row.output.answer) if row.output is not None else None for row in own])
    return (ModelOutput(walk.model, version, Outcome.OK, answers),)


def plain(answer: Value | None) -> object:
    """Return an answer as JSON has it: null for what is no finite number."""
    if isinstance(answer, NamedTensors):
        return {name: plain(Tensor.of(array)) for name, array in answer.arrays().items()}
    if isinstance(answer, Tensor):
        numbers = answer.numpy()
        is_number = np.isfinite(numbers)
        if is_number.all():
            return numbers.tolist()
        return np.where(is_number, numbers.astype(object), np.array(None, dtype=object)).tolist()
    return None if isinstance(answer, float) and not isfinite(answer) else answer


def _why(rows: Iterable[StageRow]) -> str:
    """Return why rows have no answer; one that has waited for another row in vain says no more than that one."""
    asked = [row for row in rows if row.at_us and not row.left_out]
    outcomes = {row.output.outcome if row.output is not None else Outcome.MISSING for row in asked}
    return reason_of(outcomes - {Outcome.OK}) or TOO_MANY


def _message(rows: Iterable[StageRow]) -> str:
    """Return what the rows say to a person, each once."""
    said = [part for row in rows if row.message for part in row.message.split("; ")]
    return "; ".join(dict.fromkeys(said))[:_MESSAGE]
