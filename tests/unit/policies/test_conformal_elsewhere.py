"""Sets of labels beside those of two published packages, on the same weights (`conformal_elsewhere.py`)."""

from __future__ import annotations

import json
from bisect import bisect_right
from pathlib import Path

import pytest

from policies.conformal import EDGES, aim, observe, start

FOUND = json.loads(Path(__file__).with_name("conformal_elsewhere.json").read_text("utf-8"))
BLOCKS = 24


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_as_many_are_missed_as_by_the_package_aci_before_a_change_and_after_it(coverage: float) -> None:
    """In every block within a twentieth of its 250 labels, and within two of a thousand over all."""
    weights, theirs = FOUND["weights"], FOUND["adaptive"][str(coverage)]["misses"]
    state, misses, size = start(coverage), [], len(FOUND["weights"]) // BLOCKS
    for first in range(0, len(weights), size):
        missed = 0
        for weight in weights[first : first + size]:
            missed += weight < aim(coverage, state).least
            state = observe(coverage, state, weight)
        misses.append(missed)
    assert all(abs(ours - its) <= 0.05 * size for ours, its in zip(misses, theirs, strict=True))
    assert abs(sum(misses) - sum(theirs)) <= 0.002 * len(weights)


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_a_histogram_makes_the_sets_of_the_package_crepes_up_to_a_bin(coverage: float) -> None:
    """Whatever its sets hold ours hold too; what ours hold besides lies in the bin of the threshold."""
    counts = [0.0] * len(EDGES)
    for weight in FOUND["calibration"]:
        counts[bisect_right(EDGES, weight) - 1] += 1.0
    least = aim(coverage, (coverage, 1.0 - coverage, *counts)).least
    asked = list(zip(FOUND["asked"], FOUND["fixed"][str(coverage)], strict=True))
    assert all(weight >= least for weight, held in asked if held)
    besides = [weight for weight, held in asked if weight >= least and not held]
    assert all(EDGES[bisect_right(EDGES, weight) - 1] == least for weight in besides)
    assert any(weight < least for weight, _ in asked)
