"""Silence: a model that never answers loses its queries, with feedback or without."""

from __future__ import annotations

import pytest

from schemas import topics
from schemas.records import Decision, Feedback, ModelOutput, Outcome, Prediction, Status
from streams.operators.join.observation import default_observation, observation
from tests.loops import CODEC, Loop, digits, model_predictions

DECISION = Decision((0,), 0, "digits", "exp3", ("one", "other"), (0.5, 0.5))


def answered(*outputs: ModelOutput) -> Prediction:
    """Make a prediction out of these outputs."""
    return Prediction("q", "digits", None, DECISION, Status.DEFAULT, None, -1, 0.0, outputs, 0, 0, 0, 0)


@pytest.mark.parametrize("default_loss", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("outcome", "cost"),
    [
        (Outcome.FAILED, 1.0),
        (Outcome.EXPIRED, 1.0),
        (Outcome.MISSING, 1.0),
        (Outcome.INVALID, None),
        (Outcome.UNKNOWN_VERSION, None),
        (Outcome.OVERLOADED, None),
    ],
)
def test_a_window_without_feedback_costs_a_silent_model_what_feedback_would(
    default_loss: float, outcome: Outcome, cost: float | None
) -> None:
    """Whatever the application's default loss is: that one is for answers nobody has judged."""
    silent, spoke = ModelOutput("one", "1", outcome, None), ModelOutput("other", "1", Outcome.OK, 7)
    seen = default_observation(answered(silent, spoke), default_loss, 0)

    assert seen is not None
    assert (seen.losses, seen.loss) == ((cost, default_loss), default_loss)


def test_an_output_that_says_ok_and_holds_no_answer_is_silence() -> None:
    """Nobody honest writes it; its feedback and its window end all the same."""
    empty = answered(ModelOutput("one", "1", Outcome.OK, None))
    judged = observation(empty, Feedback("q", 7), "zero_one", {}, 0)
    ended = default_observation(empty, 0.0, 0)

    assert judged is not None
    assert ended is not None
    assert (judged.losses, ended.losses) == ((1.0, None), (1.0, None))


@pytest.mark.parametrize("policy", ["exp3", "thompson", "epsilon_greedy"])
def test_a_policy_leaves_a_model_that_never_answers_though_silence_of_users_costs_nothing(policy: str) -> None:
    """Nobody gives feedback: the only thing to be learnt is which model is dead."""
    given = digits(models=("dead", "good"), policy=policy, window_s=2.0, default_loss=0.0)
    loop = Loop({"dead": lambda _: None, "good": lambda _: 7}, given)
    for _ in range(200):
        loop.query()
        loop.driver.run(0.25)
    last = [loop.query() for _ in range(100)]
    loop.driver.run(5)
    lost = [loop.answer(query_id).answer for query_id in last].count(-1)

    assert lost <= 15


def test_a_late_output_of_an_ensemble_has_answered_when_the_window_ends() -> None:
    """It costs the default loss; the model that said nothing at all costs the answer."""
    given = digits(models=("good", "slow", "dead"), policy="exp4", window_s=10.0, default_loss=0.25)
    loop = Loop({"good": lambda _: 7, "slow": lambda _: None, "dead": lambda _: None}, given)
    asked = loop.query()
    loop.driver.run(1)
    loop.driver.produce(topics.MODEL_PREDICTIONS, 0, CODEC.encode(model_predictions("slow", {asked: 3})))
    loop.driver.run(20)

    ((_, seen),) = loop.observations()
    assert dict(zip(seen.decision.arms, seen.losses, strict=True)) == {"good": 0.25, "slow": 0.25, "dead": 1.0}
