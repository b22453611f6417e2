"""Laws of promotion: folds that depend on the log alone, and how often a worse version may win."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.sequence import ConfidenceSequence, Side, bounds
from streams.promotion.versions import VersionEvidence
from tests.comparisons import canary, seen

if TYPE_CHECKING:
    from schemas.records import Observation

LOSSES = st.sampled_from([0.0, 0.25, 1.0])
BY_VERSION = st.dictionaries(st.sampled_from(["1", "2", "3"]), LOSSES)


@st.composite
def logs(draw: st.DrawFn) -> list[Observation]:
    """Draw observations of two applications."""
    several = draw(st.lists(st.tuples(BY_VERSION, st.sampled_from(["a", "b"])), max_size=40))
    return [seen(f"q{number}", losses, name) for number, (losses, name) in enumerate(several)]


def folded(log: list[Observation]) -> VersionEvidence:
    """Fold a log."""
    fold = VersionEvidence("forest", "2", "1")
    for observation in log:
        fold.take(observation)
    return fold


@given(logs())
def test_evidence_is_the_same_however_partitions_take_turns(log: list[Observation]) -> None:
    """Bit for bit: what is compared lies in one partition, and the rest is added in the order of names."""
    apart = sorted(log, key=lambda observation: observation.application)
    assert folded(log).evidence(0.05) == folded(apart).evidence(0.05) == folded(log).evidence(0.05)


@given(st.lists(st.floats(-1.0, 1.0), max_size=60), st.floats(0.01, 0.5))
def test_bounds_enclose_each_other(values: list[float], alpha: float) -> None:
    """Within [-1, 1], in order, and wider where less error is allowed."""
    difference = ConfidenceSequence()
    for value in values:
        difference.add(value)
    wide, close = difference.bounds(alpha / 2), difference.bounds(alpha)
    assert -1.0 <= wide[0] <= close[0] <= close[1] <= wide[1] <= 1.0


@given(st.lists(st.floats(-1.0, 1.0), max_size=60))
def test_the_other_way_round_the_bounds_change_their_signs(values: list[float]) -> None:
    """Who is the candidate does not matter."""
    one, other = ConfidenceSequence(), ConfidenceSequence()
    for value in values:
        one.add(value)
        other.add(-value)
    assert one.bounds(0.1) == tuple(-bound for bound in reversed(other.bounds(0.1)))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_version_that_is_no_better_hardly_ever_wins(share: float) -> None:
    """Of 60 looks at each of 100 equal pairs, at alpha 0.1: one side wins in 5 of them at most, the other in 5 more."""
    wrong = 0
    for seed in range(100):
        fold = VersionEvidence("forest", "2", "1")
        log = canary(seed, share, 0.2, 0.2)
        for _ in range(60):
            for observation in islice(log, 50):
                fold.take(observation)
            found = fold.evidence(0.1)
            if found.lower > 0.0 or found.upper < 0.0:
                wrong += 1
                break
    assert wrong <= 10


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_bounds_hold_for_weighted_differences(scale: float) -> None:
    """Rare large values, as weights make them: the mean stays within the bounds at all looks in 95 of 100 runs."""
    missed = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        difference = ConfidenceSequence()
        for count in range(2_000):
            value = scale * 0.5 if random.random() < 0.5 / scale else 0.0  # mean 0.25
            difference.add(value, 0.0, scale * 0.5)
            if count % 100 == 99:
                low, high = difference.bounds(0.05)
                if not low <= 0.25 <= high:
                    missed += 1
                    break
    assert missed <= 5


@given(st.lists(st.lists(st.floats(-1.0, 1.0), max_size=30), min_size=1, max_size=3))
def test_sums_of_several_differences_add_up(several: list[list[float]]) -> None:
    """In any order, to rounding: what has come of one tells nothing about the others."""
    sequences = [ConfidenceSequence() for _ in several]
    for sequence, values in zip(sequences, several, strict=True):
        for value in values:
            sequence.add(value)
    found = []
    for turn in (sequences, sequences[::-1]):
        below, above = Side(), Side()
        for sequence in turn:
            below, above = below.plus(sequence.below), above.plus(sequence.above)
        found.append(bounds(below, above, 0.05))
    assert found[0] == pytest.approx(found[1], abs=1e-9)


def test_bounds_hold_for_the_sum_of_two_differences_of_other_scales() -> None:
    """Two applications, one with large weights: the mean of both lies within at all looks in 95 of 100 runs."""
    missed = 0
    for seed in range(100):
        random, plain, weighed = np.random.default_rng(seed), ConfidenceSequence(), ConfidenceSequence()
        for count in range(1_000):
            plain.add(float(random.random() < 0.5) - float(random.random() < 0.25))  # mean 0.25
            weighed.add(4.0 if random.random() < 0.0625 else 0.0, 0.0, 4.0)  # mean 0.25
            if count % 100 == 99:
                sides = plain.below.plus(weighed.below), plain.above.plus(weighed.above)
                low, high = bounds(*sides, 0.05)
                if not low <= 0.25 <= high:
                    missed += 1
                    break
    assert missed <= 5
