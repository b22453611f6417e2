"""Calibrated confidence on models that claim too much, beside what scikit-learn makes of the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.isotonic import IsotonicRegression
from sklearn.naive_bayes import GaussianNB

from policies.calibration import WINDOW, along, calibrated, counted, curve, extended, observed, started

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.contract import State

    Floats = NDArray[np.float64]
COUNT = 6_000


def answers(sharpness: float, seed: int = 1) -> tuple[Floats, Floats]:
    """Draw answers of a model: what it says, and 1.0 where it is right.

    Its log-odds are true if they are divided by `sharpness`, as of a network that has learnt its examples by heart.
    """
    random = np.random.default_rng(seed)
    odds = np.abs(random.normal(1.0, 1.0, COUNT))
    right = random.random(COUNT) < 1.0 / (1.0 + np.exp(-odds))
    return 1.0 / (1.0 + np.exp(-sharpness * odds)), right.astype(float)


def told(said: Floats, right: Floats, state: State = ()) -> tuple[Floats, State]:
    """Return what is told of each answer before its feedback, which then teaches."""
    found = []
    for confidence, its in zip(said.tolist(), right.tolist(), strict=True):
        found.append(calibrated(state, 0, confidence))
        state = observed(state, 1, 0, confidence, 1.0 - its)
    return np.array(found), state


def off(said: Floats, right: Floats, bins: int = 10) -> float:
    """Return the expected calibration error: how far confidences lie from the share of right answers, in the mean."""
    places = np.minimum((said * bins).astype(int), bins - 1)
    return sum(abs(float((said - right)[places == place].sum())) for place in range(bins)) / len(said)


@pytest.mark.parametrize("sharpness", [3.0, 0.3])
def test_a_model_that_claims_too_much_or_too_little_is_told_for_what_it_is(sharpness: float) -> None:
    """The error falls to a third at most, and near that of isotonic regression on all answers of the past at once."""
    said, right = answers(sharpness)
    found, _ = told(said, right)
    half = COUNT // 2
    batch = IsotonicRegression(out_of_bounds="clip").fit(said[:half], right[:half])
    late = slice(half, None)
    ours, theirs = off(found[late], right[late]), off(batch.predict(said[late]), right[late])
    assert off(said[late], right[late]) > 0.1
    assert ours < off(said[late], right[late]) / 3
    assert ours < theirs + 0.02


def test_naive_bayes_is_told_for_what_it_is_after_five_hundred_answers() -> None:
    """It takes pixels for independent, so it says 0.99 where it reads five of six digits right."""
    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))
    learnt, asked = order[:300], order[300:]
    scores = GaussianNB().fit(rows[learnt], labels[learnt]).predict_proba(rows[asked])
    said, right = scores.max(axis=1), (scores.argmax(axis=1) == labels[asked]).astype(float)
    found, _ = told(said, right)
    late = slice(500, None)
    assert off(said[late], right[late]) > 0.15
    assert off(found[late], right[late]) < 0.04


def test_a_model_that_is_right_about_itself_stays_as_it_is() -> None:
    """Learning costs nearly nothing where there is nothing to learn."""
    said, right = answers(1.0)
    found, _ = told(said, right)
    assert float(np.abs(found - said).mean()) < 0.03


def test_a_model_that_breaks_is_told_for_what_it_is_when_the_windows_have_passed() -> None:
    """It was right as often as it said, then in half of all cases; of ten knots each remembers a window of its own."""
    said, right = answers(1.0)
    _, state = told(said, right)
    broken = np.random.default_rng(2).random(COUNT) < 0.5
    found, _ = told(said, broken.astype(float), state)
    late = slice(int(10 * WINDOW), None)
    assert off(said[late], broken[late]) > 0.2
    assert off(found[late], broken[late]) < 0.06


def test_counts_of_another_kind_are_as_none() -> None:
    """As of a version with other knots: what they say is unknown, and nothing fails."""
    odd = (1.0,) * 7
    assert observed(odd, 2, 0, 0.9, 0.0) == observed((), 2, 0, 0.9, 0.0)
    assert extended(odd, ("a",), ("a",)) == ()
    assert len(started(odd)) == 7


def test_one_answer_worked_out_by_hand() -> None:
    """At 0.95, of a prior of four: (4 * 0.95 + 0) / 5 = 0.76, put together with 0.9 of four: (3.8 + 3.6) / 9."""
    state = observed((), 1, 0, 0.95, 1.0)
    assert calibrated(state, 0, 0.95) == calibrated(state, 0, 0.9) == pytest.approx(7.4 / 9)
    assert calibrated(state, 0, 0.98) == pytest.approx(0.98)
    both, kept = observed(state, 1, 0, 0.95, 0.0), 1.0 - 1.0 / WINDOW
    mean = (3.8 + 3.6 + 1.0) / (4.0 + 4.0 + kept + 1.0)  # the knot alone says 0.8, which is less than 0.9 says
    assert calibrated(both, 0, 0.95) == calibrated(both, 0, 0.9) == pytest.approx(mean)


def test_a_curve_of_answers_that_are_known_at_once_is_what_was_right() -> None:
    """As with a window that forgets none of them; an answer may be right in part."""
    said, right = answers(sharpness=3.0)
    right_at = curve(counted(said.tolist(), right.tolist()))
    told_now = np.array([along(right_at, one) for one in said.tolist()])
    assert told_now.mean() == pytest.approx(right.mean(), abs=0.01)
    assert said.mean() > right.mean() + 0.1
    assert [*right_at] == sorted(right_at)
    halves = curve(counted([0.9] * 1_000, [0.5] * 1_000))
    assert along(halves, 0.9) == pytest.approx(0.5, abs=0.01)
