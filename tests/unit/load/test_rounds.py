"""One figure from several rounds."""

from __future__ import annotations

from load.harness.aggregates import STARTS, held_out, over_rounds, starts


def test_counts_are_summed_and_everything_else_is_the_median() -> None:
    """A lost query in one round is lost; one slow round is not the figure."""
    rounds = [{"lost": 0.0, "p99_ms": 20.0}, {"lost": 1.0, "p99_ms": 90.0}, {"lost": 0.0, "p99_ms": 22.0, "error": 0.1}]
    assert over_rounds(rounds) == {"lost": 1.0, "p99_ms": 22.0}


def test_the_best_counts_by_rounds_that_did_not_choose_it() -> None:
    """In each third of the rounds, the one that did best in the other two."""
    lucky = [80.0, 100.0, 80.0, 300.0, 70.0, 70.0]
    assert held_out([[90.0] * 6, lucky], 3) == [80.0, 100.0, 90.0, 90.0, 70.0, 70.0]
    assert held_out([lucky], 3) == lucky


def test_what_is_measured_for_long_is_started_several_times() -> None:
    """A short look is from one start; the default length is long."""
    assert starts(5.0) == 1
    assert starts(20.0) == STARTS > 1
