"""Estimators of rankings, against a small world whose slates can all be counted."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.estimators.slates import (
    PER_PLACE,
    PSEUDO_INVERSE,
    SLATE_ESTIMATORS,
    DrawnSlate,
    contributions,
    pseudo_inverse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [(2, 1), (3, 3), (4, 2), (5, 3), (6, 2)]
Slate = tuple[int, ...]


def world(n: int, m: int, seed: int) -> Callable[[Slate], tuple[float, ...]]:
    """Return what each place of a slate earns: by the place and what stands there."""
    worth = np.random.default_rng(seed).uniform(-1.0, 2.0, (m, n))
    return lambda slate: tuple([float(worth[place, one]) for place, one in enumerate(slate)])


def estimated(name: str, n: int, m: int, earns: Callable[[Slate], tuple[float, ...]], other: Slate) -> float:
    """Return the mean of an estimate over all slates that may be drawn."""
    slates = [DrawnSlate(n, slate, earns(slate), other) for slate in permutations(range(n), m)]
    return float(contributions(name, slates).numerators.mean())


@pytest.mark.parametrize("name", SLATE_ESTIMATORS)
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_estimates_are_unbiased_where_places_earn_by_themselves(name: str, n: int, m: int) -> None:
    """The mean over all slates is what the other ranking earns, for each other ranking."""
    earns = world(n, m, seed=n * m)
    for other in permutations(range(n), m):
        assert estimated(name, n, m, earns, other) == pytest.approx(sum(earns(other)), abs=1e-9)


def test_the_pseudo_inverse_needs_the_sum_alone() -> None:
    """Per place it is wrong where all is told of the first one."""
    places = world(5, 2, seed=1)

    def whole(slate: Slate) -> tuple[float, ...]:
        return (sum(places(slate)), 0.0)

    truth = sum(places((3, 1)))
    assert estimated(PSEUDO_INVERSE, 5, 2, whole, (3, 1)) == pytest.approx(truth)
    assert abs(estimated(PER_PLACE, 5, 2, whole, (3, 1)) - truth) > 0.1


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_the_closed_form_is_the_pseudo_inverse_of_the_counted_matrix(n: int, m: int) -> None:
    """For every pair of slates."""
    slates = [*permutations(range(n), m)]
    rows = np.zeros((len(slates), m, n))
    for row, slate in enumerate(slates):
        rows[row, range(m), slate] = 1.0
    flat = rows.reshape(len(slates), -1)
    weights = flat @ np.linalg.pinv(flat.T @ flat / len(slates)) @ flat.T
    for row, other in enumerate(slates[:20]):
        found = [pseudo_inverse(DrawnSlate(n, slate, (), other)) for slate in slates]
        assert found == pytest.approx(weights[row], abs=1e-8)
