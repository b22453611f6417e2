"""Scenario `rankings`: the market, who ranks in it, and the page."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from load.errors import PeerUnavailableError
from load.research.models import movies
from load.research.recommend import rankings
from load.research.recommend.rank_lanes import Regressions, Shown, VowpalWabbit
from load.research.recommend.rank_market import CANDIDATES, PLACES, visits
from load.results.results import Result
from tests.unit.load.test_figures import STORED


def test_a_market_follows_from_its_seed_and_places_are_clicked_on_as_often_as_looked_at() -> None:
    """A film at a lower place earns less by the share of looks, and is worth no less."""
    first, again = ([visit.asked.films.tolist() for visit in visits(20, 3)] for _ in range(2))
    assert first == again
    shown = tuple(range(len(PLACES)))
    clicks = np.array([visit.clicks(shown) for visit in visits(3_000, 1)]).mean(axis=0)
    assert clicks / clicks[0] == pytest.approx(PLACES, abs=0.08)


def test_what_is_missed_is_measured_against_whoever_knows_the_truth() -> None:
    """Nobody earns more than the ideal ranking."""
    for visit in visits(50, 2):
        assert visit.worth(visit.ideal(3)) >= visit.worth((0, 1, 2))
        assert len(visit.asked.rows) == CANDIDATES


def test_a_ranker_that_learns_misses_less_than_one_that_shows_anything() -> None:
    """Its state of all users knows which films are liked."""

    class Anything:
        def show(self, asked: object, top: int, u: float) -> Shown:
            return Shown((int(u * CANDIDATES),), (1.0 / CANDIDATES,) * CANDIDATES)

        def learn(self, *_: object) -> None: ...

    learnt = rankings.earned(Regressions(movies.FEATURES, per_user=False), 300, 1, 1)
    assert learnt.error < rankings.earned(Anything(), 300, 1, 1).error - 0.05
    assert learnt.cpu_us > 0.0


def test_without_vowpal_wabbit_its_rows_are_left_out_and_the_reason_is_named() -> None:
    """The message says how to install it; with it, it takes part."""
    if find_spec("vowpalwabbit") is None:
        with pytest.raises(PeerUnavailableError, match="pip install vowpalwabbit"):
            VowpalWabbit("")
        return
    assert rankings.earned(VowpalWabbit("--epsilon 0.05"), 20, 1, 1).error >= 0.0


def test_the_page_shows_whoever_took_part() -> None:
    """A result without Vowpal Wabbit and Open Bandit has a page, too."""
    machine = {"processor": "a processor", "cores_usable": 2, "load_average": (1.0, 1.0, 1.0)}
    figures = dict.fromkeys(STORED["rankings"], 0.5)
    whole = Result("rankings", figures, {"form": "full"})
    assert rankings.SCENARIO.written(whole, machine).count("Vowpal Wabbit, `") == 4  # type: ignore[arg-type]  # all it uses
    alone = {name: value for name, value in figures.items() if not name.startswith(("vw", "obd"))}
    text = rankings.SCENARIO.written(Result("rankings", alone, {"form": "full"}, notes=("not there",)), machine)  # type: ignore[arg-type]  # all it uses
    assert "Vowpal Wabbit, `" not in text
    assert "- not there" in text
