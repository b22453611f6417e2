"""Scenario `linear`: models of which each suits other features, and the errors that are compared."""

from __future__ import annotations

import numpy as np
import pytest

from load.research.learning import linear
from schemas.records import Prediction, Status


def predicted(query_id: str, answer: int) -> Prediction:
    """Make an answer."""
    return Prediction(query_id, "app", None, None, Status.COMPLETE, None, answer, 1.0, (), 0, 0, 0, 0)


def test_no_model_is_better_than_another_but_each_is_for_its_features() -> None:
    """All are right in half of the cases; the one that suits the angle is right in nine of ten."""
    drawn = linear.rows(20_000, seed=3)
    assert drawn.answers.mean(axis=0) == pytest.approx([0.5] * 4, abs=0.03)
    best = drawn.chances.argmax(axis=1)
    assert drawn.answers[np.arange(20_000), best].mean() == pytest.approx(0.905, abs=0.01)
    assert np.bincount(best) / 20_000 == pytest.approx([0.25] * 4, abs=0.03)
    assert np.hypot(*drawn.features.T) == pytest.approx(np.ones(20_000))


def test_all_applications_are_asked_the_same_rows_with_their_features() -> None:
    """What is not answered is wrong; the regret is what lies above the best choice for each query."""
    replay = linear.FeatureReplay(linear.rows(40, seed=1), seed=1)
    asked = [replay(index, 0).query for index in range(3 * 40)]
    assert [query.application for query in asked[:3]] == ["linucb", "linear-thompson", "exp3"]
    assert len({(query.input, query.features, query.context) for query in asked[3:6]}) == 1
    replay.judge([predicted(query.query_id, 1) for query in asked if query.application == "linucb"])
    found = linear.errors(replay)
    assert (found["linucb_error"], found["exp3_error"]) == (0.0, 1.0)
    assert found["exp3_regret"] == 1.0 - found["best_by_features_error"]
    assert found["linucb_saved"] == found["best_single_error"]
    assert sum(point["exp3"] for point in linear.curves(replay)) == len(linear.curves(replay))
