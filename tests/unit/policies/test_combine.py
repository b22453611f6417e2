"""Combining several answers into one."""

from __future__ import annotations

import numpy as np
import pytest

from policies.combine import MEAN, MEDIAN, agrees, combine
from policies.errors import PolicyError
from schemas.records import NamedTensors, Tensor


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


@pytest.mark.parametrize("how", ["weighted_vote", MEAN, MEDIAN])
def test_named_tensors_are_voted_on(how: str) -> None:
    """Equal ones count together, and nothing is averaged."""
    one, other = (NamedTensors.named({"a": np.array([number]), "b": np.zeros(2)}) for number in (1, 2))
    answer, confidence = combine({0: 0.4, 1: 0.3, 2: 0.3}, {0: one, 1: other, 2: other}, how)
    assert (answer, confidence) == (other, pytest.approx(0.6))
    assert agrees(other, answer)
    assert not agrees(one, answer)


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
