"""Losses of numbers: which error costs 1 is what the application says, or what its errors have been."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.config.configuration import Settings
from deploy.state.desired import applications
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Feedback, ModelOutput, Outcome, Prediction, Status
from streams.operators.configuration import check
from streams.operators.join.observation import ErrorSpans
from streams.testing import Delay
from tests.loops import Loop, digits

MODELS = {"near": lambda _: 180.0, "far": lambda _: 120.0}


def asked(*answers: float | None, application: str = "prices") -> Prediction:
    """Make a prediction of several models' answers; None = one failed."""
    outputs = tuple(
        ModelOutput(f"m{at}", "1", Outcome.OK if answer is not None else Outcome.FAILED, answer)
        for at, answer in enumerate(answers)
    )
    return Prediction("q", application, None, None, Status.COMPLETE, None, answers[0], 1.0, outputs, 0, 0, 0, 0)


@pytest.mark.parametrize(("kind", "losses"), [("absolute", [0.5, 0.1]), ("squared", [0.25, 0.01])])
def test_an_error_as_large_as_the_applications_span_costs_1(kind: str, losses: list[float]) -> None:
    """And a larger one no more; the observation says by which span it was measured."""
    loop = Loop(MODELS, digits(models=("near", "far"), policy="exp4", loss=kind, span=100.0))
    first, second = loop.query(), loop.query()
    loop.driver.run(1)
    loop.feedback(first, label=170.0)
    loop.feedback(second, label=500.0)
    loop.driver.run(1)
    found = {seen.query_id: seen for _, seen in loop.observations()}

    assert sorted(loss or 0 for loss in found[first].losses) == pytest.approx(sorted(losses))
    assert found[second].losses == (1.0, 1.0)
    assert {seen.span for seen in found.values()} == {100.0}


@pytest.mark.parametrize("kind", ["absolute", "squared"])
@pytest.mark.parametrize("policy", ["exp3", "thompson", "epsilon_greedy"])
def test_regression_on_its_natural_scale_learns_without_a_setting(kind: str, policy: str) -> None:
    """Prices and minutes are off by tens; the nearer model is chosen all the same."""
    loop = Loop(MODELS, digits(models=("near", "far"), policy=policy, loss=kind))
    for number in range(300):
        query_id = loop.query()
        loop.driver.run(0.05)
        loop.feedback(query_id, label=170.0 + number % 7)
        loop.driver.run(0.05)
    last = [loop.query() for _ in range(100)]
    loop.driver.run(1)

    assert [loop.answer(query_id).answer for query_id in last].count(180.0) > 75
    spans = [seen.span for _, seen in loop.observations()]
    assert all(span is not None and 0 < span < 1_000 for span in spans)
    assert loop.driver.operator("learner").statistics()["full_loss_share{application=digits}"] < 0.9
    assert 1 < loop.driver.operator("joiner").statistics()["learnt_span{application=digits}"] < 200


def test_a_span_too_small_for_the_answers_shows_in_a_figure() -> None:
    """Nearly all losses are 1: no model is told from another."""
    loop = Loop(MODELS, digits(models=("near", "far"), policy="exp3", loss="absolute", span=1.0))
    for _ in range(60):
        query_id = loop.query()
        loop.driver.run(0.05)
        loop.feedback(query_id, label=150.0)
    loop.driver.run(1)
    assert loop.driver.operator("learner").statistics()["full_loss_share{application=digits}"] == 1.0


@pytest.mark.parametrize(("told", "kind"), [({"label": 7}, "zero_one"), ({"loss": 0.5}, "absolute")])
def test_where_no_error_is_measured_no_span_is_stated(told: dict[str, float], kind: str) -> None:
    """Labels are right or wrong, and a loss that is given is what it is."""
    loop = Loop({"good": lambda _: 7}, digits(models=("good",), loss=kind, span=2.0))
    query_id = loop.query()
    loop.driver.run(1)
    loop.feedback(query_id, **told)  # type: ignore[arg-type]
    loop.driver.run(1)
    assert [seen.span for _, seen in loop.observations()] == [None]


def test_nine_of_ten_errors_come_to_lie_below_a_learnt_span() -> None:
    """The first is twice the first error; what one application learns is its own."""
    spans = ErrorSpans()
    assert spans.learn(asked(110.0), Feedback("q", 100.0)) == 20.0
    for number in range(3_000):
        spans.learn(asked(float(number * 37 % 100)), Feedback("q", 0))
    learnt = spans.rendered()["learnt_span{application=prices}"]
    assert 80 < learnt < 97
    assert spans.learn(asked(1.0, application="minutes"), Feedback("q", 1.5)) == 1.0


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.one_of(st.none(), NUMBERS)), max_size=30))
def test_whatever_the_errors_a_span_is_a_positive_number_and_follows_from_them(
    log: list[tuple[float, float, float | None]],
) -> None:
    """The same errors in the same order give the same spans; what was undone leaves no trace."""
    first, second = ErrorSpans(), ErrorSpans()
    for label, answer, other in log:
        prediction, feedback = asked(answer, other), Feedback("q", label)
        snapshot = second.snapshot()
        second.learn(asked(5.0), feedback)
        second.restore(snapshot)
        found = first.learn(prediction, feedback)
        assert found is None or 0 < found < 1e301
        assert found == second.learn(prediction, feedback)
    assert first.rendered() == second.rendered()


@pytest.mark.parametrize("span", [0.0, -1.0, float("inf"), float("nan")])
def test_a_span_that_is_no_positive_number_is_refused(span: float) -> None:
    """It would fail at every feedback."""
    with pytest.raises(DecodeError, match="span"):
        check(Application("prices", ("near",), loss="absolute", span=span))


def test_the_span_is_a_setting_of_the_application() -> None:
    """What is published says it."""
    settings = Settings.model_validate({"applications": {"prices": {"models": ["near"], "span": 50}}})
    assert [application.span for application in applications(settings)] == [50.0]


def test_feedback_read_a_window_late_is_learnt_from_as_it_was_written_in_time() -> None:
    """Six seconds pass before any of it can be read; windows of five are held open so long."""
    loop = Loop(
        {"good": lambda _: 7},
        digits(models=("good",), window_s=5.0, default_loss=1.0),
        [Delay(topics.FEEDBACK, 6_000_000)],
    )
    for _ in range(10):
        query_id = loop.query()
        loop.driver.run(1)
        loop.feedback(query_id, label=7)
    loop.driver.run(20)

    assert [seen.losses for _, seen in loop.observations()] == [(0.0,)] * 10
    assert loop.dead(topics.FEEDBACK) == []
