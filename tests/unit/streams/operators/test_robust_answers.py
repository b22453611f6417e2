"""What an application says about answers of several models: combined how, how sure, and who stands in for the late."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest

from schemas.records import Application, Outcome, Status
from tests.loops import Loop, digits

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.records import Prediction, Value
    from tests.loops import Row


Answer: TypeAlias = "Value | Outcome | None"


def three(*answers: Answer | list[Answer], **changes: object) -> Loop:
    """Three models of one weight that give these answers, of a list one after the other, then none; None = never."""
    names = ("a", "b", "c")
    models = {name: _scripted(given) for name, given in zip(names, answers, strict=True)}
    return Loop(models, digits(models=names, policy="exp4", **changes))


def _scripted(given: Answer | list[Answer]) -> Callable[[Row], Answer]:
    if not isinstance(given, list):
        return lambda _: given
    rest = iter(given)
    return lambda _: next(rest, None)


def answered(loop: Loop) -> Prediction:
    """Ask once, wait for the answer."""
    query_id = loop.query()
    loop.driver.run(1)
    return loop.answer(query_id)


@pytest.mark.parametrize(("how", "answer"), [("weighted_vote", 2), ("mean", 4.0), ("median", 2.0)])
def test_an_application_says_how_answers_are_combined(how: str, answer: float) -> None:
    """The same outputs, three answers."""
    prediction = answered(three(2, 2, 8, combine=how))
    assert (prediction.status, prediction.answer) == (Status.COMPLETE, pytest.approx(answer))


def test_an_answer_below_the_confidence_floor_is_the_default_marked_so() -> None:
    """The outputs and the confidence stay in the record: whoever looks sees why."""
    prediction = answered(three(1, 2, 2, confidence_floor=0.7))
    assert (prediction.status, prediction.reason, prediction.answer) == (Status.DEFAULT, "low_confidence", -1)
    assert prediction.confidence == pytest.approx(2 / 3)
    assert [output.answer for output in prediction.outputs] == [1, 2, 2]


def test_an_answer_at_the_confidence_floor_is_given() -> None:
    """A floor is the least that is enough."""
    assert answered(three(2, 2, 2, confidence_floor=1.0)).status is Status.COMPLETE


def test_a_missing_models_weight_counts_against_the_floor() -> None:
    """Two that agree are two thirds of three that were asked."""
    prediction = answered(three(2, 2, None, confidence_floor=0.7))
    assert (prediction.reason, prediction.answer) == ("low_confidence", -1)


def last(loop: Loop, asked: int) -> Prediction:
    """Ask so many times, return the last answer."""
    return [answered(loop) for _ in range(asked)][-1]


def test_a_late_model_is_left_out() -> None:
    """As the default says."""
    prediction = last(three(1.0, 1.0, [4.0, 10.0], combine="mean"), 3)
    assert prediction.answer == pytest.approx(1.0)
    assert prediction.outputs[2].answer is None


def test_the_running_mean_of_a_late_model_stands_in_for_it() -> None:
    """The record names it: an output that is missing, and has an answer. It adds nothing to the confidence."""
    prediction = last(three(1.0, 1.0, [4.0, 10.0], missing="running_mean", combine="median"), 3)
    assert (prediction.status, prediction.reason) == (Status.PARTIAL, "deadline")
    assert [(o.model, o.outcome, o.answer) for o in prediction.outputs] == [
        ("a", Outcome.OK, 1.0),
        ("b", Outcome.OK, 1.0),
        ("c", Outcome.MISSING, pytest.approx(7.0)),
    ]
    assert prediction.confidence == pytest.approx(2 / 3)


def test_the_running_mean_counts_as_the_models_answer() -> None:
    """Mean of 1, 1 and 7."""
    loop = three(1.0, 1.0, [4.0, 10.0], missing="running_mean", combine="mean")
    assert last(loop, 3).answer == pytest.approx(3.0)


def test_of_labels_the_most_frequent_stands_in() -> None:
    """Between three and five lies nothing that a label could be."""
    prediction = last(three("x", "y", ["y", "z", "y"], missing="running_mean"), 4)
    assert (prediction.answer, prediction.outputs[2].answer) == ("y", "y")
    assert prediction.confidence == pytest.approx(1 / 3)


def test_long_labels_are_not_counted() -> None:
    """A model may answer what its client has written: a thousand such texts are not kept."""
    long = "y" * 300_000
    prediction = last(three("x", "y", [long, "z", long], missing="running_mean"), 4)
    assert prediction.outputs[2].answer == "z"


def test_where_nobody_has_answered_nothing_stands_in() -> None:
    """A mean of the past is no answer to this query."""
    prediction = last(three([1.0], [1.0], [1.0], missing="running_mean"), 2)
    assert (prediction.status, prediction.reason, prediction.answer) == (Status.DEFAULT, "deadline", -1)


def test_a_model_that_failed_is_not_replaced() -> None:
    """It was in time, and says that this input is not for it."""
    loop = three(1.0, 1.0, [4.0, Outcome.FAILED], missing="running_mean", combine="mean")
    prediction = last(loop, 2)
    assert (prediction.answer, prediction.outputs[2].answer) == (pytest.approx(1.0), None)


@pytest.mark.parametrize("changes", [{"combine": "best"}, {"confidence_floor": 1.5}, {"missing": "guess"}])
def test_an_application_that_asks_for_what_is_not_there_is_refused(changes: dict[str, object]) -> None:
    """What was in force stays."""
    loop = three(1, 1, 1)
    loop.configure(digits(models=("a", "b", "c"), policy="exp4", **changes))
    loop.driver.run(0.1)
    assert answered(loop).answer == 1


def test_an_application_of_a_released_version_has_the_defaults() -> None:
    """Nothing changes for who has said nothing."""
    said = Application("digits", ("a",))
    assert (said.combine, said.confidence_floor, said.missing) == ("weighted_vote", 0.0, "leave_out")
