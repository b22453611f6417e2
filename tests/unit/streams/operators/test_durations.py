"""Percentiles of how long things took look back on a minute, not on the start."""

from __future__ import annotations

from streams.operators.statistics import Durations

SECOND_US = 1_000_000


def _median_us(durations: Durations) -> float:
    return durations.rendered()["answer_p50_us{application=digits}"]


def test_slow_answers_of_twelve_minutes_ago_no_longer_count() -> None:
    """Two cold answers at the start, then one warm one: the median is the warm one's."""
    durations = Durations("answer", "application")
    durations.add("digits", (494_000, 494_000), 0)
    durations.add("digits", (14_000,), 720 * SECOND_US)
    assert _median_us(durations) == 14_000


def test_answers_of_the_last_half_minute_count_across_a_change_of_halves() -> None:
    """What was added just before the halves change still stands beside what comes just after."""
    durations = Durations("answer", "application")
    durations.add("digits", [9_000] * 3, 29 * SECOND_US)
    durations.add("digits", [9_000] * 3, 58 * SECOND_US)
    durations.add("digits", (1_000,), 59 * SECOND_US)
    assert _median_us(durations) == 9_000


def test_nothing_added_is_no_figure() -> None:
    """Without durations there is nothing to tell."""
    assert Durations("answer", "application").rendered() == {}


def test_a_new_objective_begins_the_histogram_anew() -> None:
    """Its bounds are others; Prometheus takes the fall of a counter for a restart."""
    durations = Durations("answer", "application")
    durations.aim({"digits": 50_000})
    durations.add("digits", (10_000, 60_000), 0)
    assert durations.rendered()["answer_within_objective_total{application=digits}"] == 1
    durations.aim({"digits": 50_000, "others": 1_000})
    assert durations.rendered()["answer_seconds_count{application=digits}"] == 2
    durations.aim({"digits": 80_000})
    durations.add("digits", (70_000,), 1)
    found = durations.rendered()
    assert found["answer_seconds_count{application=digits}"] == 1
    assert found["answer_seconds_bucket{application=digits,le=0.08}"] == 1


def test_histograms_are_bounded_however_many_applications_there_are() -> None:
    """A report must fit into a record; percentiles are there for all."""
    durations = Durations("answer", "application")
    for number in range(1_000):
        durations.add(f"a{number}", (10,), 0)
    found = durations.rendered()
    assert sum(name.startswith("answer_p99_us") for name in found) == 1_000
    assert sum(name.startswith("answer_seconds_count") for name in found) == 64
