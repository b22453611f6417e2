"""A query that asks again: what is asked when, what is answered, and what the log says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policies.cascade import Doubts
from policies.contract import Ask
from policies.draw import uniform
from schemas import topics
from schemas.records import Decision, ModelQueries, Outcome, Status
from streams.operators.learn.fold import fold
from streams.operators.selection.admission import Admission
from streams.operators.selection.again.plan import ESCALATE, QueryPlan
from streams.testing import Crash
from tests.loops import CODEC, Loop, Sure, digits
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.records import Prediction, Value
    from tests.loops import Row

    Answer = Callable[[Row], Value | Sure | Outcome | None]

SLO_US = 100_000


def cascade(cheap: Answer, dear: Answer, parameters: dict[str, float] | None = None, **more: object) -> Loop:
    """Make a loop around two models, the cheap one first."""
    application = digits(policy="cascade", parameters=parameters or {}, models=("cheap", "dear"), **more)
    return Loop({"cheap": cheap, "dear": dear}, application, has_workers=True)


def doubtful(_: Row) -> Sure:
    """Answer 3, hardly more likely than not."""
    return Sure(3, 0.6)


def right(_: Row) -> Sure:
    """Answer 7, nearly sure."""
    return Sure(7, 0.99)


def answered(loop: Loop, seconds: float = 0.2) -> Prediction:
    """Ask one query and return its answer."""
    query_id = loop.query()
    loop.driver.run(seconds)
    return loop.answer(query_id)


def asked(loop: Loop, model: str) -> list[ModelQueries]:
    """Return what a model was asked."""
    return [CODEC.decode(ModelQueries, record.value) for record in loop.driver.read(topics.model_queries(model))]


def test_a_doubtful_answer_is_followed_by_a_dear_one() -> None:
    """The query's id and deadline stay; decision, step and outputs tell what was asked, and how likely that was."""
    loop = cascade(doubtful, right)
    made = answered(loop)
    assert (made.answer, made.status, made.confidence) == (7, Status.COMPLETE, 0.99)
    assert [output.answer for output in made.outputs] == [3, 7]
    assert made.decision is not None
    assert (made.decision.chosen, made.decision.propensities) == ((0, 1), (1.0, 1.0))
    (step,) = made.steps
    assert (step.kind, step.arms, step.outcome, step.probability, step.confidence) == (
        "escalate", (1,), "asked", 1.0, 0.6,
    )  # fmt: skip
    assert made.received_us <= step.at_us <= made.answered_us
    (first,), (second,) = asked(loop, "cheap"), asked(loop, "dear")
    assert first.query_ids == second.query_ids == (made.query_id,)
    assert (first.step, second.step) == (0, 1)
    assert first.due_us == second.due_us


def test_workers_say_which_step_they_answer() -> None:
    """The first question is step 0, which a record leaves out."""
    loop = cascade(doubtful, right)
    answered(loop)
    steps = {batch.model: batch.steps for batch in loop.outputs()}
    assert steps == {"cheap": (), "dear": (1,)}


def taught(loop: Loop, queries: int, label: int = 7) -> Loop:
    """Ask queries and tell the truth about them."""
    for _ in range(queries):
        query_id = loop.query()
        loop.driver.run(0.01)
        loop.feedback(query_id, label)
    loop.driver.run(1.0)
    return loop


def test_what_feedback_teaches_keeps_sure_answers() -> None:
    """After 150 right answers of the cheap model the dear one is asked for exploration alone; the log says so."""
    loop = taught(cascade(right, right, {"risk": 0.2, "explore": 0.001}), 150)
    made = answered(loop)
    assert (made.answer, made.status, made.confidence) == (7, Status.COMPLETE, 0.99)
    assert [(step.outcome, step.probability) for step in made.steps] == [("kept", 0.001)]
    assert made.decision is not None
    assert (made.decision.chosen, made.decision.propensities) == ((0,), (1.0, 0.001))
    assert made.steps[0].threshold < 0.99


def test_the_learner_folds_steps_from_the_log_alone() -> None:
    """The state is the fold of the observations, bit for bit; these have the predictions' steps."""
    loop = taught(cascade(doubtful, right), 20)
    log = loop.observations()
    assert [seen.steps[0].outcome for _, seen in log] == ["asked"] * 20
    assert [seen.losses for _, seen in log] == [(1.0, 0.0)] * 20
    assert {key.name: state for key, state in loop.driver.store.states.items()} == fold(log, 130_000_000)


def test_a_dear_model_that_would_be_late_is_not_asked() -> None:
    """Its latency is known from the queries before: the cheap answer is given at once, and the log says why."""
    loop = cascade(doubtful, lambda _: None)
    for _ in range(3):
        answered(loop)
    made = answered(loop)
    assert (made.answer, made.confidence) == (3, 0.6)
    assert made.answered_us < made.received_us + SLO_US // 2
    (step,) = made.steps
    assert (step.outcome, step.probability, step.needed_us > SLO_US // 2) == ("late", 0.0, True)
    assert made.decision is not None
    assert (made.decision.chosen, made.decision.propensities) == ((0,), (1.0, 0.0))


def test_without_the_dear_answer_the_cheap_one_is_given_at_the_deadline() -> None:
    """Which is better than none; the status says that it is not all that was asked."""
    loop = cascade(doubtful, lambda _: None)
    made = answered(loop)
    assert (made.answer, made.status, made.reason, made.confidence) == (3, Status.PARTIAL, "deadline", 0.6)
    assert made.answered_us <= made.deadline_us


def test_a_cheap_model_that_is_silent_is_passed_over_in_time() -> None:
    """Once the dear model's latency is known, it is asked early enough to answer before the deadline."""
    silent = False
    loop = cascade(lambda given: None if silent else doubtful(given), right)
    for _ in range(3):
        answered(loop)
    silent = True
    made = answered(loop)
    assert (made.answer, made.status) == (7, Status.PARTIAL)
    assert [(step.kind, step.outcome) for step in made.steps] == [("overdue", "asked")]
    assert made.answered_us < made.deadline_us
    assert made.outputs[0].outcome is Outcome.MISSING


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.INVALID])
def test_a_cheap_model_that_fails_is_followed_by_the_dear_one(outcome: Outcome) -> None:
    """No answer is no confidence."""
    made = answered(cascade(lambda _: outcome, right))
    assert made.answer == 7
    assert made.steps[0].confidence == 0.0


def test_an_answer_below_the_floor_is_none() -> None:
    """The floor holds the confidence of the answer that would be served: the dear model's."""
    made = answered(cascade(right, doubtful, confidence_floor=0.7))
    assert (made.answer, made.status, made.reason) == (-1, Status.DEFAULT, "low_confidence")


def test_two_cheap_models_that_differ_are_followed_by_a_dear_one() -> None:
    """They are asked at once; if they agree and were right so far, that will do."""
    application = digits(policy="cascade", parameters={"first": 2.0, "risk": 0.2}, models=("one", "two", "dear"))
    loop = Loop({"one": lambda _: 3, "two": lambda _: 7, "dear": lambda _: 7}, application, has_workers=True)
    made = answered(loop)
    assert made.answer == 7
    assert made.decision is not None
    assert made.decision.chosen == (0, 1, 2)
    assert made.steps[0].confidence == 0.0


def test_three_models_are_asked_one_after_the_other() -> None:
    """The probability of the last is that of all steps together."""
    application = digits(policy="cascade", models=("one", "two", "dear"))
    loop = Loop({"one": doubtful, "two": doubtful, "dear": right}, application, has_workers=True)
    made = answered(loop)
    assert made.answer == 7
    assert made.decision is not None
    assert (made.decision.chosen, made.decision.propensities) == ((0, 1, 2), (1.0, 1.0, 1.0))
    assert [step.arms for step in made.steps] == [(1,), (2,)]


def test_the_last_of_three_is_reached_by_both_steps() -> None:
    """Its propensity is the product: where the second was asked by a chance of 0.5, the third is half as likely."""
    first = Decision((0,), 1, "digits", "cascade()", ("one", "two", "dear"), (1.0, 0.0, 0.0))
    plan = QueryPlan(Doubts((0,), 3, (8.0, 8.0), 0.01), ("one",))
    drawn = next(f"q{n}" for n in range(999) if max(uniform(f"q{n}", "step 1"), uniform(f"q{n}", "step 2")) < 0.25)
    second = plan.decide(drawn, first, Ask((1,), 0.5, 0.6, 0.9), ESCALATE, 0, 100, 0)
    third = plan.decide(drawn, second, Ask((2,), 0.25, 0.6, 0.9), ESCALATE, 0, 100, 0)
    assert (second.chosen, second.propensities) == ((0, 1), (1.0, 0.5, 0.0))
    assert (third.chosen, third.propensities) == ((0, 1, 2), (1.0, 0.5, 0.125))


@pytest.mark.parametrize("budget", [1.0, 0.3])
def test_what_a_dear_model_refuses_is_not_asked_and_costs_no_budget(
    budget: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its probability is 0, the cheap answer is whole, and the learner counts no question. A replay agrees."""
    monkeypatch.setattr(Admission, "admits", lambda _self, model, *_: model != "dear")
    application = digits(policy="cascade", parameters={"budget": budget}, models=("cheap", "dear"), window_s=20.0)
    loop = Loop({"cheap": doubtful, "dear": right}, application, has_workers=True, admission=True)
    for _ in range(20):
        made = answered(loop)
        loop.feedback(made.query_id, 3)
        loop.driver.run(0.1)
        assert (made.status, made.reason, made.answer) == (Status.COMPLETE, None, 3)
        assert made.decision is not None
        assert (made.decision.chosen, made.decision.propensities) == ((0,), (1.0, 0.0))
        assert [(step.outcome, step.probability) for step in made.steps] == [("overloaded", 0.0)]
    assert not asked(loop, "dear")
    (state,) = loop.driver.store.states.values()
    queries, questions, _ = state.values[-3:]
    assert (queries, questions) == (20.0, 0.0)
    assert replayed(trace_of(loop.driver)).differences == []


def test_a_query_that_names_a_version_asks_once() -> None:
    """What the client chooses is not followed by what the policy would."""
    loop = cascade(doubtful, right)
    query_id = loop.query(version="cheap@1")
    loop.driver.run(0.2)
    made = loop.answer(query_id)
    assert (made.answer, made.steps) == (3, ())


def test_known_outputs_are_not_asked_again() -> None:
    """The cache knows both models' outputs for an input: the second query is answered at once, by the same steps."""
    loop = cascade(doubtful, right)
    loop = Loop(loop.models, loop.application, has_workers=True, cache_bytes=1 << 20)
    first, second = answered(loop), answered(loop)
    assert (len(asked(loop, "cheap")), len(asked(loop, "dear"))) == (1, 1)
    assert second.answered_us == second.received_us
    assert second.answer == first.answer == 7
    assert [step.outcome for step in second.steps] == ["asked"]


def test_a_crash_between_both_questions_repeats_them() -> None:
    """The query is read again, decided alike, and answered once for each reading."""
    application = digits(policy="cascade", models=("cheap", "dear"))
    crashed = Loop({"cheap": doubtful, "dear": right}, application, [Crash(2_500, "selection")], has_workers=True)
    crashed.query()
    crashed.driver.run(0.3)
    made = crashed.predictions()
    assert {prediction.query_id for prediction in made} == {"q1"}
    assert {prediction.answer for prediction in made} == {7}
    assert {tuple(step.outcome for step in prediction.steps) for prediction in made} == {("asked",)}


def test_a_large_input_is_counted_until_its_query_is_answered() -> None:
    """It is kept for a second question, so it counts for what an application may hold."""
    loop = cascade(lambda _: None, right)
    loop.query(input="x" * 10_240)
    loop.driver.run(0.01)
    held = loop.driver.operator("selection").statistics()["held{application=digits}"]
    assert held == 11.0
    loop.driver.run(1.0)
    assert loop.driver.operator("selection").statistics()["held{application=digits}"] == 0.0
