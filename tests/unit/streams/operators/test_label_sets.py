"""Sets of labels on their way: made with the prediction, logged with the observation, learnt from in its order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.conformal import aim, observe, start
from policies.errors import PolicyError
from policies.label_weights import label_weights
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, LabelSet, ModelOutput, Observation, Outcome, Tensor
from streams.operators.configuration import Configuration, check
from streams.operators.contract import Record, StateKey
from streams.operators.label_sets import holds, weight_of
from streams.operators.learn.fold import fold, taught
from tests.loops import CODEC, Loop, Sure, digits

WINDOW_US = 130_000_000
COVERAGE = 0.9


def ask(loop: Loop, count: int, label: int | str | None = 0, context: str | None = None) -> list[str]:
    """Ask so many queries, each with feedback on the one before its next; return their ids."""
    ids = []
    for _ in range(count):
        ids.append(loop.query(context=context))
        loop.driver.run(0.1)
        if label is not None:
            loop.feedback(ids[-1], label=label)
        loop.driver.run(0.2)
    return ids


def sets(loop: Loop) -> list[LabelSet]:
    """Return the sets of all predictions."""
    found = [prediction.label_set for prediction in loop.predictions()]
    return [made for made in found if made is not None]


def sure(confidence: float = 0.8, **changes: object) -> Loop:
    """Return a loop around one model with scores, whose application promises coverage."""
    application = digits(**({"models": ("good",), "policy": "single", "coverage": COVERAGE} | changes))
    return Loop({"good": lambda _: Sure(0, confidence)}, application)


def test_at_first_any_label_may_be_the_true_one_and_later_the_likely_ones() -> None:
    """With a promise of 0.9, ten observations are the fewest that say anything, as older ones count somewhat less."""
    loop = sure()
    ask(loop, 12)
    made = sets(loop)
    assert len(made) == 12
    assert [one.is_all for one in made] == [True] * 10 + [False] * 2
    assert made[0] == LabelSet((0, 1), True, COVERAGE, 1.0 - COVERAGE, 0.0, (0.8, pytest.approx(0.2)))
    assert made[-1].labels == (0,)
    assert made[-1].others == (1,)


def test_labels_that_are_less_likely_come_in_when_the_model_turns_out_wrong() -> None:
    """The true label has a weight of 0.2 each time; sets of one label would hold it never."""
    loop = sure()
    ask(loop, 12)
    ask(loop, 8, label=1)
    assert sets(loop)[-1].labels == (0, 1)


def test_the_state_is_the_fold_of_the_log_and_beside_that_of_the_policy() -> None:
    """Stored as folded, bit for bit; its coverage is what the arithmetic makes of the true labels' weights."""
    loop = sure()
    ask(loop, 15)
    stored = loop.driver.store.states[StateKey(0, "digits")]
    expected = start(COVERAGE)
    for _ in range(15):
        expected = observe(COVERAGE, expected, 0.8)
    assert stored == fold(loop.observations(), WINDOW_US)["digits"]
    assert stored.coverage == pytest.approx(expected)
    assert all(seen.label_set == loop.answer(seen.query_id).label_set for _, seen in loop.observations())


def test_without_feedback_nothing_is_learnt() -> None:
    """A default loss at the end of a window teaches the policy, and no set; neither does a loss without a label."""
    loop = sure(default_loss=1.0, window_s=5.0)
    ask(loop, 5, label=None)
    loop.feedback(loop.query(), loss=1.0)
    loop.driver.run(30)
    assert len(loop.observations()) == 6
    assert fold(loop.observations(), WINDOW_US)["digits"].coverage == ()


def test_an_application_without_a_promise_has_no_sets() -> None:
    """Neither in its answers nor in its states."""
    loop = sure(coverage=0.0)
    ask(loop, 3)
    assert not sets(loop)
    assert fold(loop.observations(), WINDOW_US)["digits"].coverage == ()


def test_a_promise_that_changes_holds_from_the_next_answer_on() -> None:
    """What was learnt of weights is kept."""
    loop = sure()
    ask(loop, 30)
    loop.configure(replace(loop.application, coverage=0.5))
    ask(loop, 2)
    assert [one.coverage for one in sets(loop)[-2:]] == [0.5, 0.5]
    assert not sets(loop)[-1].is_all


def test_votes_of_several_models_weigh_labels() -> None:
    """Each by its policy's weight; a label that no model names has none, and only whole sets hold it."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="exp4", coverage=COVERAGE))
    ask(loop, 40, label=7)
    made = sets(loop)[-1]
    assert made.labels == (7,)
    assert made.weights[0] > 0.5
    assert weight_of(made, 9) == 0.0
    assert not holds(made, 9)


def test_a_default_for_want_of_outputs_has_no_set() -> None:
    """No model has said anything about the query."""
    loop = Loop({"good": lambda _: None}, digits(models=("good",), policy="single", coverage=COVERAGE))
    (asked,) = ask(loop, 1)
    loop.driver.run(1)
    assert loop.answer(asked).label_set is None


def test_an_answer_by_default_for_little_confidence_has_its_set() -> None:
    """The models have answered, so the promise holds."""
    loop = Loop(
        {"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="exp4", coverage=COVERAGE, confidence_floor=1.0)
    )
    (asked,) = ask(loop, 1)
    answer = loop.answer(asked)
    assert answer.reason == "low_confidence"
    assert answer.label_set is not None


def test_another_policy_starts_anew_and_what_the_first_had_learnt_waits_for_it() -> None:
    """Its weights are of another kind; so a decision's version of a state tells its sets, too."""
    loop = sure(policy="exp3")
    ask(loop, 12)
    loop.configure(replace(loop.application, policy="thompson"))
    ask(loop, 2)
    assert sets(loop)[-2].is_all
    loop.configure(loop.application)
    ask(loop, 2)
    assert not sets(loop)[-1].is_all


def test_a_new_context_starts_from_what_all_have_taught() -> None:
    """In the fold and in selection alike."""
    loop = sure(policy="exp3", per_context=True)
    ask(loop, 20, context="ann")
    (asked,) = ask(loop, 1, context="bob")
    made = loop.answer(asked).label_set
    assert made is not None
    assert not made.is_all
    states = fold(loop.observations(), WINDOW_US)
    assert states["digits/bob"].coverage == states["digits"].coverage
    assert aim(COVERAGE, states["digits/ann"].coverage).least > 0.0


def test_an_impossible_weight_is_refused_and_the_state_stays() -> None:
    """It cannot have come from selection."""
    loop = sure()
    ask(loop, 1)
    ((at_us, seen),) = loop.observations()
    assert seen.label_set is not None
    for spoilt in (seen.label_set._replace(weights=(1.5, 0.2)), seen.label_set._replace(coverage=1.0)):
        with pytest.raises(PolicyError):
            taught({}, seen._replace(label_set=spoilt), at_us, WINDOW_US)


SCORES = Tensor.of(np.array([0.5, 0.25, 0.25]))


@pytest.mark.parametrize(
    ("output", "classes", "expected"),
    [
        (ModelOutput("m", "1", Outcome.OK, 7, SCORES), ("7", "8", "9"), {7: 0.5, 8: 0.25, 9: 0.25}),
        (ModelOutput("m", "1", Outcome.OK, "a", SCORES), ("a", "b", "c"), {"a": 0.5, "b": 0.25, "c": 0.25}),
        (ModelOutput("m", "1", Outcome.OK, 0, SCORES), (), {0: 0.5, 1: 0.25, 2: 0.25}),
        (ModelOutput("m", "1", Outcome.OK, SCORES), ("x", "y", "z"), {"x": 0.5, "y": 0.25, "z": 0.25}),
        (ModelOutput("m", "1", Outcome.OK, "a", SCORES), (), {"a": 1.0}),
        (ModelOutput("m", "1", Outcome.OK, "a", SCORES), ("a",), {"a": 1.0}),
        (ModelOutput("m", "1", Outcome.OK, 3, Tensor.of(np.array([np.nan, 1.0]))), (), {3: 1.0}),
        (ModelOutput("m", "1", Outcome.OK, 2.5), (), {}),
    ],
)
def test_a_model_weighs_labels_by_its_scores_or_names_one(
    output: ModelOutput, classes: tuple[str, ...], expected: dict[int | str, float]
) -> None:
    """Classes travel as text, and take the type of the answer; where they do not fit, the answer has all."""
    assert label_weights({0: 1.0}, {0: output}, {"m@1": classes}) == expected


@pytest.mark.parametrize(
    ("application", "fault"),
    [
        (Application("digits", ("a",), coverage=1.0), "coverage is 1.0"),
        (Application("digits", ("a",), coverage=-0.1), "coverage is -0.1"),
        (
            Application("digits", ("a",), coverage=0.995, combine="mean"),
            "make it at most 0.99 where answers are numbers",
        ),
    ],
)
def test_a_promise_that_cannot_be_kept_is_no_configuration(application: Application, fault: str) -> None:
    """The message says why."""
    with pytest.raises(DecodeError, match=fault):
        check(application)


def test_a_policy_that_answers_numbers_promises_no_labels() -> None:
    """Its application is refused, and the one before stays."""
    application = Application("films", ("a",), "ridge", {"features": 2}, coverage=0.9)
    record = Record(topics.APPLICATIONS, 0, 0, 0, b"films", CODEC.encode(application))
    with pytest.raises(DecodeError, match="answers numbers"):
        Configuration(CODEC).on_record(record)


def test_learner_and_selection_count_what_became_of_sets() -> None:
    """By the names that the page follows."""
    loop = sure()
    ask(loop, 12)
    ask(loop, 1, label=1)
    learner = loop.driver.operator("learner").statistics()
    selection = loop.driver.operator("selection").statistics()
    assert learner["label_sets_judged_total{application=digits,outcome=held}"] == 12
    assert learner["label_sets_judged_total{application=digits,outcome=missed}"] == 1
    assert selection["label_sets_total{application=digits,kind=all}"] == 10
    assert selection["label_sets_total{application=digits,kind=some}"] == 3
    assert selection["label_set_sizes_total{application=digits}"] == 3
    assert selection["coverage_promised{application=digits}"] == COVERAGE


def test_an_observation_of_before_sets_is_read_as_one_without() -> None:
    """The field has a default."""
    assert Observation._field_defaults["label_set"] is None
