"""What `latecomer` counts: answers in time, and what became of the model that never is."""

from __future__ import annotations

from load.research.batching.latecomer import Answers
from schemas.records import ModelOutput, Outcome, Prediction, Status


def answer(deadline_us: int, *outputs: ModelOutput) -> Prediction:
    """Return an answer with these outputs."""
    return Prediction("q", "a", None, None, Status.PARTIAL, None, 7, 1.0, outputs, 0, 0, deadline_us, 0)


def output(model: str, outcome: Outcome, label: int | None) -> ModelOutput:
    """Return what a model said, or what stands in for it."""
    return ModelOutput(model, "1", outcome, label)


def test_a_model_that_was_asked_replaced_or_left_alone_is_told_apart() -> None:
    """By its output in the answer: there with what stands in for it, there without, not there."""
    answers = Answers()
    prompt = output("tree-0", Outcome.OK, 7)
    answers.take(
        [
            answer(100, prompt, output("late", Outcome.MISSING, 3)),
            answer(100, prompt, output("late", Outcome.MISSING, None)),
            answer(99, prompt),
        ],
        100,
    )
    assert (answers.read, answers.in_time) == (3, 2)
    assert (answers.asked_late, answers.replaced) == (2, 1)
