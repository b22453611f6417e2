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
