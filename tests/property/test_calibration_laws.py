"""Laws of calibrated confidence, for any answers in any order."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from policies import calibration
from policies.calibration import KNOTS, PRIOR, WIDTH, WINDOW, calibrated, extended, observed, started

if TYPE_CHECKING:
    from policies.contract import State

unit = st.floats(0.0, 1.0)
# Of two arms: which answered, how sure it was, what that cost.
logs = st.lists(st.tuples(st.integers(0, 1), unit | st.sampled_from(KNOTS), unit), max_size=60)


def taught(log: list[tuple[int, float, float]], state: State = ()) -> State:
    """Fold answers of two arms."""
    for arm, confidence, loss in log:
        state = observed(state, 2, arm, confidence, loss)
    return state


@given(unit, st.integers(0, 4))
def test_before_any_feedback_a_confidence_is_the_models_own(confidence: float, arm: int) -> None:
    """To the bit, and of an arm whose neighbour alone was judged, too."""
    assert calibrated((), arm, confidence) == confidence
    assert calibrated(observed((), 2, 0, 0.5, 1.0), 1, confidence) == confidence


@given(logs, unit, unit)
def test_a_surer_answer_is_never_less_likely_right(log: list[tuple[int, float, float]], one: float, two: float) -> None:
    """And both are probabilities."""
    state = taught(log)
    low, high = (calibrated(state, 0, confidence) for confidence in sorted((one, two)))
    assert 0.0 <= low <= high + 1e-15 <= 1.0 + 1e-15


@given(logs)
def test_the_curve_is_isotonic_regression_on_the_counts(log: list[tuple[int, float, float]]) -> None:
    """As scikit-learn makes it: of each knot's mean with its prior, weighed by what it has seen."""
    state = taught(log)
    counts, rights = state[:WIDTH:2] or (0.0,) * len(KNOTS), state[1:WIDTH:2] or (0.0,) * len(KNOTS)
    weights = [PRIOR + count for count in counts]
    means = [(PRIOR * knot + right) / weight for knot, right, weight in zip(KNOTS, rights, weights, strict=True)]
    theirs = IsotonicRegression().fit_transform(KNOTS, means, sample_weight=weights)
    ours = calibration.curve(state[:WIDTH] or (0.0,) * WIDTH)
    assert ours == pytest.approx(theirs, abs=1e-9)
    assert all(low <= high for low, high in pairwise(ours))


@given(logs, st.data())
def test_arms_are_judged_apart(log: list[tuple[int, float, float]], data: st.DataObject) -> None:
    """However the answers of two arms are shuffled into each other, the state has the same bits."""
    parts = [[each for each in log if each[0] == arm] for arm in (0, 1)]
    left = [list(part) for part in parts]
    mixed: list[tuple[int, float, float]] = []
    while any(left):
        arm = data.draw(st.sampled_from([arm for arm in (0, 1) if left[arm]]))
        mixed.append(left[arm].pop(0))
    assert taught(mixed) == taught(parts[0] + parts[1])


@given(logs)
def test_counts_are_bounded_however_long_the_log(log: list[tuple[int, float, float]]) -> None:
    """No knot remembers more than the window, nor more right answers than answers."""
    state = taught(log * 40)
    for seen, right in zip(state[::2], state[1::2], strict=True):
        assert 0.0 <= right <= seen + 1e-9
        assert seen <= WINDOW
    assert len(state) in {0, 2 * WIDTH}


@given(logs, st.permutations("abc"))
def test_what_is_known_of_a_model_follows_its_name(log: list[tuple[int, float, float]], names: list[str]) -> None:
    """A model that is new is believed, as at the start."""
    state = taught(log)
    turned = extended(state, ("a", "b"), names)
    for confidence in (0.3, 0.95, 1.0):
        for arm, name in enumerate(names):
            known = confidence if name == "c" else calibrated(state, "ab".index(name), confidence)
            assert calibrated(turned, arm, confidence) == known
    assert extended(state, ("a", "b"), ("x",)) == ()


@given(logs, unit)
def test_a_context_starts_between_what_all_have_taught_and_the_models_own(
    log: list[tuple[int, float, float]], confidence: float
) -> None:
    """It believes at each knot no more than the prior is worth."""
    begun = started(taught(log))
    assert all(seen <= PRIOR + 1e-9 for seen in begun[::2])
    assert len(begun) == len(taught(log))
    assert 0.0 <= calibrated(begun, 0, confidence) <= 1.0
