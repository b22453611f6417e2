"""What bounds cost is told beside what the same turn has cost without."""

from __future__ import annotations

import pytest

from load.results.pages import missed
from load.results.results import Result
from load.scenarios.rate.guards import BOUNDED, PLAIN, REACHED, SCENARIO, shares_of


def test_a_share_is_that_of_a_turn_beside_the_same_turn() -> None:
    """A machine that is slow for a while is slow for both."""
    spent = {PLAIN: [10.0, 20.0, 40.0], BOUNDED: [11.0, 22.0, 40.0], REACHED: [9.0, 20.0, 44.0]}
    figures = shares_of(spent)
    assert figures[f"{BOUNDED}_share"] == pytest.approx(0.1)
    assert figures[f"{BOUNDED}_least"] == pytest.approx(0.0)
    assert figures[f"{REACHED}_share"] == pytest.approx(0.0)
    assert (figures[f"{REACHED}_least"], figures[f"{REACHED}_most"]) == pytest.approx((-0.1, 0.1))


def test_more_than_three_in_a_hundred_misses_the_target() -> None:
    """Of the application whose bounds nobody reaches."""
    figures = shares_of({PLAIN: [10.0], BOUNDED: [10.4], REACHED: [10.0]}) | {"lost": 0.0, "defaults": 0.0}
    (said,) = missed(Result("guards", figures, {}), SCENARIO.figures)
    assert f"{BOUNDED}_share is 0.04" in said
