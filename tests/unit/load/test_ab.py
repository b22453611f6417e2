"""The scenario `ab`: the log of a week tells who met what, and the truth lies within the bounds."""

from __future__ import annotations

from load.scenarios.learning import ab
from load.scenarios.learning.ab_week import logged


def test_a_week_is_read_from_its_log() -> None:
    """Each draw met one version, nobody who is held out met the candidate, and the bounds hold."""
    found = ab.read(logged(120, 5, ab.BETTER, ab.HOLDOUT))
    assert found["people"] == 120
    assert (found["broken_draws"], found["held_out_with_candidate"], found["bounds_missed"]) == (0, 0, 0)
    assert 0.02 < found["held_out_share"] < 0.25
    assert found["comparisons"] > 10


def test_by_query_bounds_miss_what_is_true_by_person() -> None:
    """Of twenty weeks in which both versions are the same."""
    weeks = [[*ab.alike(100, seed)] for seed in range(20)]
    assert sum(ab.misses(week, by_person=True) for week in weeks) <= 1
    assert sum(ab.misses(week, by_person=False) for week in weeks) >= 2
