"""Bounds of a difference, beside those of the sequences that evaluate policies: another mixture, the same truth."""

from __future__ import annotations

import numpy as np
import pytest

from policies.estimators.sequence import ConfidenceSequence
from streams.promotion.difference import Difference, is_above, lower_bound, upper_bound


@pytest.mark.parametrize(("candidate", "incumbent"), [(0.1, 0.15), (0.4, 0.5), (0.01, 0.02)])
@pytest.mark.parametrize("count", [500, 5_000])
def test_bounds_are_about_as_close_as_those_of_the_gamma_mixture(
    candidate: float, incumbent: float, count: int
) -> None:
    """Within a third, on the same values in [-1, 1]; what they allow is the same, how it is spent over time is not."""
    random = np.random.default_rng(count)
    values = (random.random(count) < incumbent).astype(float) - (random.random(count) < candidate)
    ours, theirs = Difference(), ConfidenceSequence()
    for value in values.tolist():
        ours.add(value)
    theirs = theirs.extend(np.ones(count), (values + 1.0) / 2.0)
    their_low, their_high = 2.0 * theirs.lower() - 1.0, 2.0 * theirs.upper() - 1.0
    low, high = lower_bound(ours.below, 0.05), upper_bound(ours.above, 0.05)
    assert low < values.mean() < high
    assert (high - low) / (their_high - their_low) == pytest.approx(1.0, abs=1 / 3)


def test_nothing_is_known_at_first() -> None:
    """The bounds are those of what could be."""
    nothing = Difference()
    assert (lower_bound(nothing.below, 0.05), upper_bound(nothing.above, 0.05)) == (-1.0, 1.0)


def test_above_is_what_the_lower_bound_says() -> None:
    """It costs a tenth."""
    difference = Difference()
    for _ in range(200):
        difference.add(0.5)
    low = lower_bound(difference.below, 0.05)
    assert is_above(difference.below, low - 1e-6, 0.05)
    assert not is_above(difference.below, low + 1e-6, 0.05)
