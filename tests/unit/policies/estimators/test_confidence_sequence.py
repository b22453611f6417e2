"""Confidence sequences: the numbers of a reference, values, laws of looking at all times."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from policies.estimators.errors import EstimateError
from policies.estimators.sequence import ConfidenceSequence

# The bounds that `estimators.bandits.cs.Interval` of VowpalWabbit/estimators@8ce3871 has at alpha = 0.05 after the
# examples below, added as `add_example(p_log, r, p_pred)`.
REFERENCE = (0.4376192590041325, 0.5315450919405469)


def reference_examples() -> tuple[np.ndarray, np.ndarray]:
    """Return weights and rewards as the reference had them."""
    random = np.random.default_rng(7)
    logged, rewards = random.choice([0.1, 0.5, 0.9], 1000), random.random(1000)
    target = np.array([0.5 if random.random() < 0.5 else 0.05 for _ in range(1000)])
    return target / logged, rewards


def test_the_bounds_are_those_of_the_reference() -> None:
    """To nine digits, on the same examples."""
    sequence = ConfidenceSequence().extend(*reference_examples())
    assert (sequence.lower(), sequence.upper()) == pytest.approx(REFERENCE, abs=1e-9)


def test_one_by_one_is_the_same_as_all_at_once() -> None:
    """However the examples come in."""
    weights, rewards = reference_examples()
    together, apart = ConfidenceSequence().extend(weights[:50], rewards[:50]), ConfidenceSequence()
    for weight, reward in zip(weights[:50], rewards[:50], strict=True):
        apart = apart.add(float(weight), float(reward))
    assert apart.sums.rewards == 50
    assert (apart.lower(), apart.upper()) == pytest.approx((together.lower(), together.upper()), abs=1e-12)


def test_nothing_is_known_before_the_first_reward() -> None:
    """The whole range, of one policy and of a difference."""
    single, paired = ConfidenceSequence(), ConfidenceSequence.of_difference()
    assert (single.lower(), single.upper()) == (0.0, 1.0)
    assert (paired.lower(), paired.upper()) == (-1.0, 1.0)


def test_a_sequence_is_a_value() -> None:
    """Adding leaves it as it was."""
    first = ConfidenceSequence()
    assert first.add(1.0, 0.5) != first
    assert first.count == 0


@pytest.mark.parametrize(
    ("weight", "reward"), [(1.0, 1.5), (1.0, -0.1), (1.0, float("nan")), (-0.5, 0.5), (float("nan"), 0.5)]
)
def test_what_breaks_the_guarantee_is_refused(weight: float, reward: float) -> None:
    """Rewards outside of [0, 1], and weights further below 0 than was said."""
    with pytest.raises(EstimateError):
        ConfidenceSequence().add(weight, reward)


def logged(seed: int, count: int = 2_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weights of "always the second of two arms", its rewards as seen, and the weights of who served."""
    random = np.random.default_rng(seed)
    second = random.random(count) < 0.3
    rewards = (random.random(count) < np.where(second, 0.75, 0.7)).astype(np.float64)
    return second / 0.3, rewards, np.ones(count)


def looks(sequence: ConfidenceSequence, weights: np.ndarray, rewards: np.ndarray) -> list[tuple[float, float]]:
    """Return the interval at every hundredth reward."""
    found = []
    for start in range(0, len(weights), 100):
        sequence = sequence.extend(weights[start : start + 100], rewards[start : start + 100])
        found.append((sequence.lower(), sequence.upper()))
    return found


def naive(weights: np.ndarray, rewards: np.ndarray) -> list[tuple[float, float]]:
    """Return mean +- 1.96 standard errors at every hundredth reward."""
    found = []
    for end in range(100, len(weights) + 1, 100):
        values = weights[:end] * rewards[:end]
        half = 1.96 * float(values.std(ddof=1)) / sqrt(end)
        found.append((float(values.mean()) - half, float(values.mean()) + half))
    return found


def test_at_least_95_of_100_cover_at_every_look() -> None:
    """The true value of the arm is 0.75; a naive interval looked at as often is wrong at some time in many runs."""
    runs = [logged(seed) for seed in range(100)]
    covered = [all(low <= 0.75 <= high for low, high in looks(ConfidenceSequence(), w, r)) for w, r, _ in runs]
    wrong = [not all(low <= 0.75 <= high for low, high in naive(w, r)) for w, r, _ in runs]
    assert sum(covered) >= 95
    assert 20 <= sum(wrong) <= 60


def test_a_paired_difference_covers_and_is_narrower_than_two_intervals() -> None:
    """The difference to who served is 0.75 - 0.715; what both share cancels."""
    inside = 0
    for seed in range(100):
        weights, rewards, served = logged(seed)
        seen = looks(ConfidenceSequence.of_difference(), weights - served, rewards)
        inside += all(low <= 0.035 <= high for low, high in seen)
    assert inside >= 95
    weights, rewards, served = logged(1, 50_000)
    paired = ConfidenceSequence.of_difference().extend(weights - served, rewards)
    candidate, incumbent = (ConfidenceSequence().extend(each, rewards) for each in (weights, served))
    apart = (candidate.upper() - candidate.lower()) + (incumbent.upper() - incumbent.lower())
    assert paired.upper() - paired.lower() < apart
