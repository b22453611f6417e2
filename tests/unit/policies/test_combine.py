"""Combining several answers into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.combine import MEAN, MEDIAN, agrees, combine
from policies.confidence import confidence_of
from policies.errors import PolicyError
from schemas.records import ModelOutput, NamedTensors, Outcome, Tensor

if TYPE_CHECKING:
    from schemas.records import Value


def tensors(boxes: list[float], label: int) -> NamedTensors:
    """Return an answer of two tensors."""
    return NamedTensors.named({"a": np.array(boxes), "n": np.array(label)})


def test_vote_goes_to_the_label_with_most_weight() -> None:
    """Two light arms that agree outvote a heavier one."""
    assert combine({0: 0.4, 1: 0.3, 2: 0.3}, {0: 7, 1: 3, 2: 3}) == (3, pytest.approx(0.6))


def test_text_labels_are_voted_on_too() -> None:
    """Labels need only be equal."""
    assert combine({0: 0.2, 1: 0.8}, {0: "cat", 1: "dog"}) == ("dog", pytest.approx(0.8))


def test_ties_go_to_the_lowest_arm_in_whatever_order_answers_came() -> None:
    """The order of arrival decides nothing."""
    assert combine({0: 0.5, 1: 0.5}, {1: 9, 0: 4})[0] == 4
    assert combine({0: 0.5, 1: 0.5}, {0: 4, 1: 9})[0] == 4


def test_weights_are_shared_among_those_that_answered() -> None:
    """A missing arm's weight does not count against the answer."""
    assert combine({0: 0.6, 1: 0.3, 2: 0.1}, {1: 1, 2: 2}) == (1, pytest.approx(0.75))


def test_answers_without_any_weight_count_alike() -> None:
    """The state may have moved on since the arms were asked."""
    assert combine({0: 0.0, 1: 0.0, 2: 0.0}, {0: 5, 1: 6, 2: 6}) == (6, pytest.approx(2 / 3))


def test_a_lone_answer_is_passed_on_untouched() -> None:
    """One answer needs no arithmetic, whatever its kind."""
    scores = Tensor.of(np.array([1, 2], np.int8))
    assert combine({}, {3: scores}) == (scores, 1.0)
    assert combine({0: 0.0}, {0: "a"}) == ("a", 1.0)


def test_named_tensors_are_voted_on() -> None:
    """Equal ones count together, and nothing is averaged."""
    one, other = (tensors([float(number)], 1) for number in (1, 2))
    answer, confidence = combine({0: 0.4, 1: 0.3, 2: 0.3}, {0: one, 1: other, 2: other})
    assert (answer, confidence) == (other, pytest.approx(0.6))
    assert agrees(other, answer)
    assert not agrees(one, answer)


@pytest.mark.parametrize(("how", "boxes"), [(MEAN, [1.03, 2.0]), (MEDIAN, [1.0, 2.0])])
def test_named_tensors_are_averaged_output_by_output_where_the_application_says_so(
    how: str, boxes: list[float]
) -> None:
    """Fractions have a middle, whole numbers a vote; who is near in all of them agrees."""
    answers: dict[int, Value] = {0: tensors([1.0, 2.0], 7), 1: tensors([1.0, 2.0], 3), 2: tensors([1.1, 2.0], 7)}
    answer, confidence = combine({0: 0.4, 1: 0.3, 2: 0.3}, answers, how)
    assert isinstance(answer, NamedTensors)
    assert answer.dtype == answers[0].dtype  # type: ignore[union-attr]
    assert answer.arrays()["a"] == pytest.approx(np.array(boxes))
    assert answer.arrays()["n"] == 7
    assert confidence == pytest.approx(0.4)
    classes: dict[int, Value] = {0: tensors([1.0], 100), 1: tensors([1.0], 101)}
    assert combine({0: 0.7, 1: 0.3}, classes, how) == (classes[0], pytest.approx(0.7))


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=2, max_size=5), st.data())
def test_one_named_vector_is_combined_as_scores_are(rows: list[list[float]], data: st.DataObject) -> None:
    """The same middle, whether it has a name or not; between the least and the most that were answered."""
    weights = dict(enumerate(data.draw(st.lists(st.floats(0.01, 1), min_size=len(rows), max_size=len(rows)))))
    for how in (MEAN, MEDIAN):
        named, _ = combine(weights, {arm: tensors(row, 1) for arm, row in enumerate(rows)}, how)
        plain, _ = combine(weights, {arm: Tensor.of(np.array(row)) for arm, row in enumerate(rows)}, how)
        assert isinstance(named, NamedTensors)
        assert isinstance(plain, Tensor)
        assert named.arrays()["a"].tolist() == plain.numpy().tolist()


def test_named_tensors_of_two_forms_are_not_averaged() -> None:
    """The heavier form answers."""
    wide = tensors([1.0, 2.0, 3.0], 1)
    assert combine({0: 0.3, 1: 0.7}, {0: tensors([1.0], 1), 1: wide}, MEAN) == (wide, pytest.approx(0.7))


def test_json_answers_that_say_the_same_are_one_label() -> None:
    """Whatever their spaces and the order of their keys; the answer is as the lowest of their arms wrote it."""
    answers: dict[int, Value] = {0: '{"n": 9}', 1: '{"who": "Ann", "n": 1}', 2: '{"n":1,"who":"Ann"}'}
    assert combine({0: 0.4, 1: 0.3, 2: 0.3}, answers) == (answers[1], pytest.approx(0.6))
    assert combine({0: 0.4, 1: 0.3, 2: 0.3}, dict(reversed(answers.items())))[0] == answers[1]
    assert agrees(answers[1], answers[2])
    assert not agrees(answers[0], answers[1])
    assert combine({0: 0.4, 1: 0.6}, {0: "[1", 1: "[1 "}) == ("[1 ", pytest.approx(0.6))  # no JSON: texts


def test_models_whose_json_says_the_same_are_sure_together() -> None:
    """As a cascade asks on where they differ."""
    said = [ModelOutput("m", "1", Outcome.OK, text, None) for text in ('{"a": 1, "b": 2}', '{"b":2,"a":1}', '{"a": 1}')]
    assert confidence_of(said[:2]) == 1.0
    assert confidence_of(said) == 0.0


def test_numbers_are_averaged_by_weight() -> None:
    """Numbers give their mean; near ones agree with it."""
    answer, confidence = combine({0: 0.5, 1: 0.25, 2: 0.25}, {0: 10.0, 1: 10.2, 2: 12.0})
    assert answer == pytest.approx(10.55)
    assert confidence == pytest.approx(0.25)


def test_whole_numbers_beside_fractions_are_numbers() -> None:
    """An int is a label only among labels."""
    assert combine({0: 0.5, 1: 0.5}, {0: 1, 1: 2.0})[0] == pytest.approx(1.5)


def test_scores_are_averaged_and_agree_by_their_largest() -> None:
    """Score vectors give the weighted mean in their own type."""
    answers = {0: Tensor.of(np.array([0.9, 0.1], np.float32)), 1: Tensor.of(np.array([0.2, 0.8], np.float32))}
    answer, confidence = combine({0: 0.75, 1: 0.25}, answers)
    assert isinstance(answer, Tensor)
    assert answer.dtype == "float32"
    assert answer.numpy() == pytest.approx(np.array([0.725, 0.275]))
    assert confidence == pytest.approx(0.75)


def test_mixed_kinds_answer_with_the_heavier_kind() -> None:
    """Models that answer in different kinds never break a query."""
    scores = Tensor.of(np.array([0.5, 0.5]))
    assert combine({0: 0.7, 1: 0.3}, {0: "a", 1: scores}) == ("a", pytest.approx(0.7))
    assert combine({0: 0.2, 1: 0.8}, {0: 1.5, 1: "a"}) == ("a", pytest.approx(0.8))
    assert combine({0: 0.2, 1: 0.8}, {0: 1.5, 1: scores}) == (scores, pytest.approx(0.8))


def test_nothing_to_combine_is_an_error() -> None:
    """The default output is the caller's business."""
    with pytest.raises(PolicyError, match="default output"):
        combine({0: 1.0}, {})


def test_whole_numbers_are_averaged_where_the_application_says_so() -> None:
    """Ratings are numbers, not labels; confidence is the weight within five percent of the answer."""
    assert combine({0: 0.5, 1: 0.25, 2: 0.25}, {0: 4, 1: 5, 2: 3}, MEAN) == (4.0, pytest.approx(0.5))
    assert combine({0: 1.0}, {0: 4}, MEAN) == (4.0, 1.0)


def test_the_median_does_not_follow_one_arm_however_wild() -> None:
    """Half of the weight decides; where it falls between two answers, their middle does."""
    assert combine({0: 0.4, 1: 0.3, 2: 0.3}, {0: 1.0, 1: 1.02, 2: 1e9}, MEDIAN) == (1.02, pytest.approx(0.7))
    assert combine({0: 0.5, 1: 0.5}, {0: 1, 1: 3}, MEDIAN)[0] == 2.0
    assert combine({0: 0.0, 1: 1.0}, {0: 1, 1: 3}, MEDIAN) == (3.0, 1.0)


def test_scores_have_a_median_each() -> None:
    """Class by class, over the arms."""
    rows = {arm: Tensor.of(np.array(scores)) for arm, scores in enumerate(([0.1, 0.9], [0.6, 0.4], [0.7, 0.3]))}
    answer, confidence = combine({0: 0.3, 1: 0.3, 2: 0.4}, rows, MEDIAN)
    assert isinstance(answer, Tensor)
    assert answer.numpy().tolist() == [0.6, 0.4]
    assert confidence == pytest.approx(0.7)


@pytest.mark.parametrize("how", [MEAN, MEDIAN])
def test_texts_are_voted_on_whatever_the_application_says(how: str) -> None:
    """There is nothing between cat and dog."""
    assert combine({0: 0.2, 1: 0.8}, {0: "cat", 1: "dog"}, how) == ("dog", pytest.approx(0.8))


def test_agreement_is_the_same_label_a_close_number_or_the_same_best_class() -> None:
    """What the confidence counts; answers of other kinds never agree."""
    low, high = Tensor.of(np.array([0.9, 0.1])), Tensor.of(np.array([0.6, 0.4]))
    assert agrees(3, 3)
    assert agrees(100, 103.0)
    assert agrees(low, high)
    assert not any((agrees(3, 4), agrees(100, 110.0), agrees("3", 3), agrees(low, 1.0), agrees(3, "3")))
