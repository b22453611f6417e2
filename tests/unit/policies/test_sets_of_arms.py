"""Drawing sets of arms with given propensities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.arm_sets import systematic

GRID = 1_000


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).filter(lambda shares: sum(shares) >= 1.0))
def test_each_arm_is_asked_with_its_propensity_and_as_many_as_the_sum_says(shares: list[float]) -> None:
    """Over all draws; the number asked is the sum, rounded up or down."""
    asked = [0] * len(shares)
    for step in range(GRID):
        chosen = systematic(shares, (step + 0.5) / GRID)
        assert sum(shares) - 1.0 - 1e-9 < len(chosen) < sum(shares) + 1.0 + 1e-9
        for arm in chosen:
            asked[arm] += 1
    assert [count / GRID for count in asked] == pytest.approx(shares, abs=2 / GRID)


def test_an_arm_that_is_certain_is_always_asked_and_one_of_no_propensity_never() -> None:
    """At both ends of the draw, too."""
    for u in (0.0, 0.3, 1.0 - 2**-53):
        chosen = systematic((0.5, 1.0, 0.0, 0.5), u)
        assert 1 in chosen
        assert 2 not in chosen
