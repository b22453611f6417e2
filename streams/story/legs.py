"""Questions to models and what came of them, matched: each question once, in the order in which they were put.

question's record ─▶ on its way ─▶ fetch ─▶ waits ─▶ batch ─▶ predicts ─▶ output's record ─▶ until the answer
asked_us             on_way_us             waited_us          predict_us   written_us         spare_us
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.records import Outcome
from streams.story.values import ModelLeg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import ModelOutput, Prediction
    from streams.story.gathering import Gathering, StoryQuestion, WorkerOutput
    from streams.story.values import Told


def legs(found: Gathering, answer: Told[Prediction] | None) -> tuple[ModelLeg, ...]:
    """Return the questions to models.

    Args:
        found: what the log says about the query.
        answer: the prediction that counts; None = there is none.
    """
    outputs = _without_copies(sorted(found.outputs, key=lambda one: one.time_us))
    questions = sorted(found.questions, key=lambda one: one.time_us)
    made = [_leg(question, _taken(outputs, question), answer) for question in questions]
    made += [_leg(None, output, answer) for output in outputs]  # whose questions are not there
    if answer is not None:
        made += _without_records(answer.said, {leg.model for leg in made})
    return tuple(made)


def _without_copies(outputs: list[Told[WorkerOutput]]) -> list[Told[WorkerOutput]]:
    """Leave out what was forwarded to the joiner, where the worker's own record is there."""
    own = {one.said.output.model for one in outputs if not one.said.is_copy}
    return [one for one in outputs if not one.said.is_copy or one.said.output.model not in own]


def _taken(outputs: list[Told[WorkerOutput]], question: Told[StoryQuestion]) -> Told[WorkerOutput] | None:
    """Return the output that answers a question, and take it away.

    A hedge's questions differ by their steps alone. What was forwarded to the joiner says no step.
    """
    wanted = question.said.model, question.said.row_id
    fits = [one for one in outputs if (one.said.output.model, one.said.row_id) == wanted and not one.said.is_shadow]
    if not fits:
        return None
    taken = next((one for one in fits if one.said.step == question.said.step), None)
    taken = taken or next((one for one in fits if not one.said.step), None)
    if taken is not None:
        outputs.remove(taken)
    return taken


def _leg(
    question: Told[StoryQuestion] | None, output: Told[WorkerOutput] | None, answer: Told[Prediction] | None
) -> ModelLeg:
    model, row_id, step = _of(question, output)
    asked_us = None if question is None else question.time_us
    written_us = None if output is None else output.time_us
    is_shadow = output is not None and output.said.is_shadow
    answered_us = None if answer is None or is_shadow else answer.said.answered_us
    spare_us = None if written_us is None or answered_us is None else answered_us - written_us
    said = output.said if output is not None else None
    return ModelLeg(
        model,
        said.output.version if said is not None else "",
        row_id,
        step,
        asked_us,
        None if question is None else question.said.due_us,
        written_us,
        said.worker if said is not None else "",
        said.output.outcome if said is not None else Outcome.MISSING,
        said.output.answer if said is not None else None,
        said.batch if said is not None else None,
        _on_way_us(asked_us, output),
        spare_us,
        not is_shadow and answered_us is not None and _was_missing(answer, model, row_id, spare_us),
        is_shadow,
        said.message if said is not None else "",
    )


def _of(question: Told[StoryQuestion] | None, output: Told[WorkerOutput] | None) -> tuple[str, str, int]:
    if question is not None:
        return question.said.model, question.said.row_id, question.said.step
    assert output is not None
    return output.said.output.model, output.said.row_id, output.said.step


def _on_way_us(asked_us: int | None, output: Told[WorkerOutput] | None) -> int | None:
    """Return how long a question travelled; records tell whole milliseconds, of two machines perhaps, so 0 at least."""
    if asked_us is None or output is None:
        return None
    batch = output.said.batch
    return max(0, output.time_us - batch.predict_us - batch.waited_us - asked_us)


def _was_missing(answer: Told[Prediction] | None, model: str, row_id: str, spare_us: int | None) -> bool:
    """Tell whether a query was answered without an output, because it had not come; `spare_us` where it has."""
    if answer is None:
        return False
    if row_id == answer.said.query_id and not answer.said.stages:
        return any(
            output.model == model and (output.outcome is Outcome.MISSING or output.reconstructed)
            for output in answer.said.outputs
        )
    return spare_us is None or spare_us < 0


def _without_records(answer: Prediction, known: set[str]) -> Iterator[ModelLeg]:
    """Yield what the answer alone tells: the question is too old, or no question of Kafka's."""
    for output in answer.outputs:
        if output.model not in known:
            yield _told_by(output, answer.query_id)


def _told_by(output: ModelOutput, row_id: str) -> ModelLeg:
    return ModelLeg(
        output.model,
        output.version,
        row_id,
        step=0,
        asked_us=None,
        due_us=None,
        written_us=None,
        worker="",
        outcome=output.outcome,
        answer=output.answer,
        batch=None,
        on_way_us=None,
        spare_us=None,
        is_late=output.outcome is Outcome.MISSING or output.reconstructed,
    )
