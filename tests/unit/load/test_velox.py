"""Scenario `velox`: made-up ratings, what is compared of them, and the page."""

from __future__ import annotations

import numpy as np
import pytest

from load.research.models import movies
from load.research.recommend import velox, velox_tables
from load.results.results import Result
from schemas.records import Prediction, Status, Tensor


def predicted(query_id: str, answer: float) -> Prediction:
    """Make an answer."""
    return Prediction(query_id, "app", None, None, Status.COMPLETE, None, answer, 1.0, (), 10, 0, 0, 25)


def some_replay(count: int = 60) -> velox.RatedFilms:
    """Ask so often, three users in turn."""
    users, film = np.arange(count) % 3, np.arange(count) % movies.FILMS
    ratings = movies.ratings(movies.users(3, 1), users, film, 1)
    return velox.RatedFilms(users, film.astype(np.int32)[:, None], ratings, seed=1)


def test_ratings_lie_in_their_range_and_follow_from_the_seed() -> None:
    """Users differ from each other by more than the noise."""
    who, film = movies.users(50, 3), np.arange(50 * movies.FILMS) % movies.FILMS
    number = np.arange(50 * movies.FILMS) // movies.FILMS
    given = movies.ratings(who, number, film, 3)
    assert movies.LEAST <= given.min() <= given.max() <= movies.MOST
    assert (given == movies.ratings(who, number, film, 3)).all()
    assert given.reshape(50, -1).std(axis=0).mean() > 1.5 * movies.NOISE


def test_features_are_about_one_and_those_of_few_ratings_are_others() -> None:
    """Their signs are fixed: they do not depend on the machine that trains them."""
    rows = np.arange(20, dtype=np.int32)[:, None]
    few = movies.few(rows)
    assert few.shape == (20, movies.FEATURES)
    assert np.abs(movies.computed(150)).max() < 10
    assert not np.allclose(few, movies.computed(200)[:20])
    kept = movies.computed(150)[:, 1:]
    assert (kept[np.abs(kept).argmax(axis=0), np.arange(kept.shape[1])] > 0).all()


def test_applications_are_asked_the_same_and_errors_are_kept_by_history() -> None:
    """What has no answer counts as the default output; a change is made before its query."""
    replay, made = some_replay(), []
    replay.changes = {5: lambda: made.append("changed")}
    asked = [replay(index, 10).query for index in range(3 * 60)]
    assert made == ["changed"]
    assert {query.application for query in asked} == {*velox.LANES}
    truth = {query.query_id: replay.ratings[index // 3] for index, query in enumerate(asked)}
    replay.judge([predicted(query.query_id, truth[query.query_id]) for query in asked if query.application != "common"])
    found = velox.errors(replay)
    assert (found["personal_rmse"], found["retrained_rmse"]) == (0.0, 0.0)
    assert found["common_rmse"] == pytest.approx(float(np.sqrt(((3.5 - replay.ratings) ** 2).mean())))
    assert found["saved"] == found["common_rmse"]
    assert replay.longest_us == 15


def test_a_crowd_asks_once_each() -> None:
    """Each guest under a context of its own."""
    guests = velox.Guests(movies.users(10, 2), seed=2)
    asked = [guests(index, 0) for index in range(10)]
    assert len({one.query.context for one in asked}) == 10
    assert all(isinstance(one.query.input, Tensor) and movies.LEAST <= one.label <= movies.MOST for one in asked)


def test_the_cost_of_an_update_grows_with_the_dimension() -> None:
    """And so does what is kept: (d + 1) (d + 4) / 2 numbers and a weight."""
    found = velox.costs(seed=1)
    assert found["numbers_64"] == 65 * 68 / 2 + 1
    assert found["update_64_us"] > found["update_8_us"] > 0


def test_the_page_has_the_figures_and_says_when_to_use_it_first() -> None:
    """With a picture of two panels."""
    replay = some_replay(600)
    figures = {figure.name: 1.0 for figure in velox.FIGURES} | velox.errors(replay)
    parameters = {"form": "short", "queries": 1_800, "rate": 120.0, "seed": 1}
    result = Result("velox", figures, parameters, series={"error": velox.curves(replay)})
    text = velox_tables.SCENARIO.written(result, {"processor": "a processor"})  # type: ignore[typeddict-item]  # all that it uses
    assert text.startswith("## Figures")
    assert "**This is the short form.**" in text
    assert max(map(len, text.splitlines())) < 250
    assert velox_tables.plots(result)["recommending.png"].startswith(b"\x89PNG")
