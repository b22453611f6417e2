"""By how much sets of labels may seem to fall short of what was promised."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from policies.conformal import aim, observe, start
from streams.control.page.advice import CHANCE, at_most

WINDOW = 300  # sets that are judged in five minutes


@pytest.mark.parametrize(("held", "count"), [(0.8, 300), (0.5, 40), (0.0, 10), (0.95, 2_000)])
def test_so_few_come_by_chance_less_often_than_is_said(held: float, count: int) -> None:
    """Were the share the bound, so few of so many would be there once in a million times, by the binomial sum."""
    share = at_most(held, count)
    assert held < share < 1.0
    assert binom.cdf(round(held * count), count, share) <= CHANCE * (1.0 + 1e-6)


def test_what_is_not_known_may_be_anything_and_much_that_is_known_is_nearly_so() -> None:
    """More sets bring the bound closer; all that held leave it at 1."""
    bounds = [at_most(0.8, count) for count in (0, 10, 100, 1_000, 1_000_000)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == 1.0
    assert bounds[-1] == pytest.approx(0.8, abs=3e-3)
    assert at_most(1.0, 1_000) == 1.0


def test_sets_that_keep_their_promise_are_never_said_to_break_it() -> None:
    """Looked at after each of 20,000 labels of the policy itself, whose sets follow one another."""
    random, state, held = np.random.default_rng(1), start(0.9), list[bool]()
    for weight in random.random(20_000):
        held.append(weight >= aim(0.9, state).least)
        state = observe(0.9, state, float(weight))
        lately = held[-WINDOW:]
        assert at_most(sum(lately) / len(lately), len(lately)) >= 0.9
