"""Scenario `specialists`: what models do not know, and the errors that are compared."""

from __future__ import annotations

import numpy as np
import pytest

from load.research.learning import specialists
from load.research.learning.replay import Replay
from load.research.learning.specialists import APPLICATIONS
from schemas.records import Prediction, Status


def predicted(query_id: str, answer: int) -> Prediction:
    """Make an answer."""
    return Prediction(query_id, "app", None, None, Status.COMPLETE, None, answer, 1.0, (), 0, 0, 0, 0)


def test_a_specialist_says_what_its_model_says_about_four_digits_and_anything_about_others() -> None:
    """Model 8 knows 8, 9, 0 and 1; the same seed gives the same rows."""
    labels = np.arange(10, dtype=np.uint8).repeat(200)
    rows = np.repeat(labels[:, None], 9, axis=1)
    made = specialists.specialised(rows, labels, seed=1)
    right = (made == labels[:, None]).reshape(10, 200, 9).mean(axis=1)
    assert [digit for digit in range(10) if right[digit, 8] == 1.0] == [0, 1, 8, 9]
    assert right[[2, 3, 4, 5, 6, 7], 8] == pytest.approx(0.1, abs=0.1)
    assert (made == specialists.specialised(rows, labels, seed=1)).all()
    assert (rows == labels[:, None]).all()


def test_errors_are_set_beside_a_plain_vote_and_what_is_not_answered_is_wrong() -> None:
    """Both applications are asked the same rows; three of eight queries get the right answer."""
    rows, labels = np.array([[7, 7, 3]] * 4, np.uint8), np.array([7, 7, 3, 3], np.uint8)
    replay = Replay(APPLICATIONS, rows, labels, seed=1)
    asked = [replay(index, 0) for index in range(8)]
    assert [query.query.application for query in asked] == [*APPLICATIONS] * 4
    assert [query.label for query in asked] == [7, 7, 7, 7, 3, 3, 3, 3]
    for index, answer in ((0, 7), (2, 7), (4, 7), (6, 3), (1, 3)):
        replay.judge([predicted(asked[index].query.query_id, answer)])
    found = specialists.errors(replay)
    assert (found["class_vote_error"], found["exp4_error"]) == (0.25, 1.0)
    assert (found["plain_vote_error"], found["best_single_error"]) == (0.5, 0.5)
    assert (found["saved_over_plain_vote"], found["saved_over_exp4"]) == (0.25, 0.75)
