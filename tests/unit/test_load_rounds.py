"""One figure from several rounds."""

from __future__ import annotations

from load.rounds import over_rounds


def test_counts_are_summed_and_everything_else_is_the_median() -> None:
    """A lost query in one round is lost; one slow round is not the figure."""
    rounds = [{"lost": 0.0, "p99_ms": 20.0}, {"lost": 1.0, "p99_ms": 90.0}, {"lost": 0.0, "p99_ms": 22.0, "error": 0.1}]
    assert over_rounds(rounds) == {"lost": 1.0, "p99_ms": 22.0}
