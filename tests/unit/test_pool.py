"""Putting the parts of a batch together again that several processes have predicted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Outcome
from workers.pool import joined
from workers.rows import Predicted

OK, FAILED, INVALID = Outcome.OK, Outcome.FAILED, Outcome.INVALID


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_parts_put_together_are_the_batch(sizes: list[int]) -> None:
    """Outcomes, answers, scores and reasons of every row are where they would be in one piece."""
    rows = sum(sizes)
    outcomes = tuple(INVALID if row % 3 == 2 else OK for row in range(rows))
    answers, scores = np.arange(rows), np.arange(2.0 * rows).reshape(rows, 2)
    edges = np.cumsum([0, *sizes]).tolist()
    parts = [
        Predicted(
            outcomes[start:end],
            answers[start:end],
            scores[start:end],
            {row - start: "shape" for row in range(start, end) if outcomes[row] is INVALID},
        )
        for start, end in pairwise(edges)
    ]
    found = joined(parts)
    assert found.outcomes == outcomes
    assert np.array_equal(np.asarray(found.answers), answers)
    assert found.scores is not None
    assert np.array_equal(found.scores, scores)
    assert sorted(found.reasons) == [row for row in range(rows) if outcomes[row] is INVALID]


def test_a_part_that_failed_is_filled_up_in_the_form_of_the_others() -> None:
    """Texts beside texts, scores beside scores; the fault is told."""
    texts = joined([Predicted.failed(2, "it died"), Predicted((OK,), ("a",))])
    assert texts == Predicted((FAILED, FAILED, OK), ("", "", "a"), fault="it died")
    scores = joined([Predicted((OK,), np.array([1]), np.array([[0.25, 0.75]])), Predicted.failed(1, "it died")])
    assert scores.scores is not None
    assert scores.scores.tolist() == [[0.25, 0.75], [0.0, 0.0]]


@pytest.mark.parametrize("other", [Predicted((OK,), ("a",)), Predicted((OK,), np.array([1]), np.array([[1.0]]))])
def test_a_part_with_answers_of_another_form_has_failed(other: Predicted) -> None:
    """The first form counts, as in one piece."""
    found = joined([Predicted((OK,), np.array([7])), other])
    assert (found.outcomes, np.asarray(found.answers).tolist()) == ((OK, FAILED), [7, 0])
    assert found.fault is not None


def test_if_all_parts_failed_the_first_fault_is_told() -> None:
    """None of the rows has an answer."""
    found = joined([Predicted.failed(1, "first"), Predicted.failed(2, "second")])
    assert (found.outcomes, found.fault) == ((FAILED,) * 3, "first")
