"""From what models said to a query to its answer: combined, partial, or the default with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.combine import agrees, combine
from schemas.records import ModelOutput, Outcome, Prediction, Status
from streams.operators.configuration import RUNNING_MEAN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.contract import Ballots
    from schemas.records import Value
    from streams.operators.selection.pending import Pending
    from streams.operators.selection.substitutes import StandIns

# Why no model's output could be used, by precedence: what the caller can mend comes first.
_REASONS = (
    (Outcome.INVALID, "invalid_input"),
    (Outcome.UNKNOWN_VERSION, "unknown_version"),
    (Outcome.FAILED, "model_failed"),
    (Outcome.EXPIRED, "expired_in_queue"),
    (Outcome.OVERLOADED, "overloaded"),
    (Outcome.MISSING, "deadline"),
)


def predicted(query: Pending, now_us: int, reason: str | None, stand_ins: StandIns) -> Prediction:
    """Make the answer of a query from what it has, or its default output for the given reason."""
    if reason is None and query.is_alone:
        only = query.outputs.get(query.models[0])
        if only is not None and only.outcome is Outcome.OK:
            return answered(query, now_us, Status.COMPLETE, None, only.answer, 1.0, (only,))
    outputs = _asked(query)
    usable = {arm: output for arm, output in outputs.items() if output.outcome is Outcome.OK}
    application = query.application
    answer: Value | None
    if usable and reason is None and application is not None:
        if application.missing == RUNNING_MEAN:
            stand_ins.learn(application.name, usable.values())
            outputs = stand_ins.fill(application.name, outputs)
        answer, confidence = _combined(query.weights, outputs, usable, application.combine)
        status = Status.COMPLETE if len(usable) == len(outputs) else Status.PARTIAL
        reason = None if status is Status.COMPLETE else _why(outputs)
        if confidence < application.confidence_floor:
            answer, status, reason = application.default_output, Status.DEFAULT, "low_confidence"
    else:
        answer = application.default_output if application else None
        confidence, status, reason = 0.0, Status.DEFAULT, reason or _why(outputs)
    return answered(query, now_us, status, reason, answer, confidence, tuple(outputs.values()))


def answered(
    query: Pending,
    now_us: int,
    status: Status,
    reason: str | None,
    answer: Value | None,
    confidence: float,
    outputs: tuple[ModelOutput, ...],
) -> Prediction:
    """Write an answer down, with everything that is known about its query."""
    fields = (
        query.query_id,
        query.application_name,
        query.context,
        query.decision,
        status,
        reason,
        answer,
        confidence,
        outputs,
        query.sent_us,
        query.received_us,
        query.deadline_us,
        now_us,
        query.reply_token,
        query.message,
    )
    return tuple.__new__(Prediction, fields)


def _asked(query: Pending) -> dict[int, ModelOutput]:
    """Return the output of every chosen arm: MISSING where nothing arrived, OVERLOADED where it was not asked.

    Where the query has chosen, there is no decision, and it has asked one model.
    """
    decision = query.decision
    if decision is None:
        return {
            arm: query.outputs.get(name) or ModelOutput(name, "", Outcome.MISSING, None)
            for arm, name in enumerate(query.models)
        }
    found: dict[int, ModelOutput] = {}
    for arm in decision.chosen:
        name = decision.arms[arm]
        without = Outcome.MISSING if name in query.models else Outcome.OVERLOADED
        found[arm] = query.outputs.get(name) or ModelOutput(name, "", without, None)
    return found


def _combined(
    weights: Sequence[float] | Ballots, asked: Mapping[int, ModelOutput], usable: Mapping[int, ModelOutput], how: str
) -> tuple[Value, float]:
    """Combine by weight; a model that did not answer counts against the confidence, whatever stands in for it."""
    votes = weights({arm: output.answer for arm, output in asked.items()}) if callable(weights) else weights
    answers = {arm: output.answer for arm, output in asked.items() if output.answer is not None}
    answer, agreeing = combine({arm: votes[arm] for arm in answers}, answers, how)
    total = sum(votes[arm] for arm in asked)
    if len(answers) == len(usable):
        return answer, agreeing * sum(votes[arm] for arm in answers) / total
    return answer, sum(votes[arm] for arm in usable if agrees(answers[arm], answer)) / total


def _why(outputs: Mapping[int, ModelOutput]) -> str:
    outcomes = {output.outcome for output in outputs.values()}
    return next((reason for outcome, reason in _REASONS if outcome in outcomes), "deadline")
