"""Confidence sequences: how close they are to others, values, laws of looking at all times."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammainc, gammaln

from policies.estimators.errors import EstimateError
from policies.estimators.sequence import ConfidenceSequence, Side

# The bounds that `estimators.bandits.cs.Interval` of VowpalWabbit/estimators@8ce3871 has at alpha = 0.05 after the
# examples below, added as `add_example(p_log, r, p_pred)`: those of a gamma mixture.
REFERENCE = (0.4376192590041325, 0.5315450919405469)


def reference_examples() -> tuple[np.ndarray, np.ndarray]:
    """Return weights and rewards as the reference had them."""
    random = np.random.default_rng(7)
    logged, rewards = random.choice([0.1, 0.5, 0.9], 1000), random.random(1000)
    target = np.array([0.5 if random.random() < 0.5 else 0.05 for _ in range(1000)])
    return target / logged, rewards


def by_gamma_mixture(side: Side, alpha: float, rho: float = 1.0) -> float:
    """Return the lower bound of the mean by the other usual mixture, of the same sums (Howard et al. 2021, eq. 70)."""

    def log_gamma(shape: float, point: float) -> float:
        return float(np.log(gammainc(shape, point)) + gammaln(shape))

    def excess(mean: float) -> float:
        gain, shape = side.scaled - mean * side.rates, side.squares + rho
        wealth = gain + side.squares + rho * np.log(rho) - shape * np.log(gain + shape) + log_gamma(shape, gain + shape)
        return float(wealth - log_gamma(rho, rho) - np.log(2.0 / alpha))

    return float(brentq(excess, side.scaled / side.rates - 4.0, side.scaled / side.rates))


def by_equal_rates(side: Side, alpha: float) -> float:
    """Return the lower bound by the same rates with equal weights."""
    rates = 0.9 * 0.5 ** (np.arange(25) / 2.0)
    psi = -np.log1p(-rates) - rates

    def excess(mean: float) -> float:
        exponents = rates * (side.scaled - mean * side.rates) - psi * side.squares
        return float(exponents.max() + np.log(np.exp(exponents - exponents.max()).mean()) - np.log(2.0 / alpha))

    return float(brentq(excess, side.scaled / side.rates - 4.0, side.scaled / side.rates))


def of_weighed(weights: np.ndarray, rewards: np.ndarray) -> ConfidenceSequence:
    """Return the sequence of one policy's mean reward."""
    sequence = ConfidenceSequence(low=0.0)
    sequence.weigh(weights, rewards)
    return sequence


def of_paired(weights: np.ndarray, rewards: np.ndarray) -> ConfidenceSequence:
    """Return the sequence of the difference to the policy that served."""
    sequence = ConfidenceSequence()
    sequence.weigh(weights - 1.0, rewards, mean_weight=0.0, most_negative=1.0)
    return sequence


def of_versions(candidate: float, incumbent: float, count: int) -> ConfidenceSequence:
    """Return the sequence of the difference of two versions that are wrong so often, on the same queries."""
    random, sequence = np.random.default_rng(count), ConfidenceSequence()
    sequence.extend((random.random(count) < incumbent).astype(float) - (random.random(count) < candidate))
    return sequence


def cases() -> dict[str, ConfidenceSequence]:
    """Return sequences of all kinds: short, long, with and without weights."""
    errors = [(0.1, 0.15), (0.4, 0.5), (0.01, 0.02)]
    found = {f"{c} {i} {count}": of_versions(c, i, count) for c, i in errors for count in (500, 5_000, 50_000)}
    for count in (100, 500, 2_000, 50_000):
        weights, rewards = logged(1, count)
        found |= {f"weighed {count}": of_weighed(weights, rewards), f"paired {count}": of_paired(weights, rewards)}
        found[f"served {count}"] = of_weighed(np.ones(count), rewards)
    return found | {"reference": of_weighed(*reference_examples())}


def logged(seed: int, count: int = 2_000) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of "always the second of two arms", and its rewards as seen."""
    random = np.random.default_rng(seed)
    second = random.random(count) < 0.3
    rewards = (random.random(count) < np.where(second, 0.75, 0.7)).astype(np.float64)
    return second / 0.3, rewards


@pytest.mark.parametrize("name", cases())
def test_bounds_are_a_tenth_wider_at_most_than_the_closer_of_two_other_mixtures(name: str) -> None:
    """One of both is close after little variance, the other one after much."""
    sequence = cases()[name]
    low, high = sequence.bounds(0.05)
    others = [-each(sequence.above, 0.05) - each(sequence.below, 0.05) for each in (by_gamma_mixture, by_equal_rates)]
    assert high - low <= 1.1 * min(others)


def test_the_gamma_mixture_of_the_same_sums_is_the_reference() -> None:
    """To nine digits: what is remembered is the same, and so is what it proves."""
    sequence = of_weighed(*reference_examples())
    found = by_gamma_mixture(sequence.below, 0.05), -by_gamma_mixture(sequence.above, 0.05)
    assert found == pytest.approx(REFERENCE, abs=1e-9)


def test_one_by_one_is_the_same_as_all_at_once() -> None:
    """However the values come in."""
    _, rewards = reference_examples()
    together, apart = ConfidenceSequence(low=0.0), ConfidenceSequence(low=0.0)
    together.extend(rewards[:50])
    for reward in rewards[:50].tolist():
        apart.add(reward)
    assert apart.count == together.count == 50
    assert apart.bounds(0.05) == pytest.approx(together.bounds(0.05), abs=1e-12)
    assert apart.mean == pytest.approx(float(rewards[:50].mean()))


def test_weights_of_one_are_no_weights() -> None:
    """Either way takes the same values."""
    _, rewards = reference_examples()
    plain = ConfidenceSequence(low=0.0)
    plain.extend(rewards)
    assert of_weighed(np.ones(len(rewards)), rewards).bounds(0.05) == pytest.approx(plain.bounds(0.05))


def test_nothing_is_known_before_the_first_value() -> None:
    """The whole range, of one policy and of a difference."""
    assert ConfidenceSequence(low=0.0).bounds(0.05) == (0.0, 1.0)
    assert ConfidenceSequence().bounds(0.05) == (-1.0, 1.0)


def test_above_is_what_the_lower_bound_says() -> None:
    """It costs a tenth."""
    sequence = ConfidenceSequence()
    for _ in range(200):
        sequence.add(0.5)
    low, _ = sequence.bounds(0.05)
    assert sequence.below.is_above(low - 1e-6, 0.05)
    assert not sequence.below.is_above(low + 1e-6, 0.05)


@pytest.mark.parametrize(
    ("weight", "reward"), [(1.0, 1.5), (1.0, -0.1), (1.0, float("nan")), (-0.5, 0.5), (float("nan"), 0.5)]
)
def test_what_breaks_the_guarantee_is_refused(weight: float, reward: float) -> None:
    """Rewards outside of [0, 1], and weights further below 0 than was said."""
    with pytest.raises(EstimateError):
        of_weighed(np.array([weight]), np.array([reward]))


def test_values_outside_of_the_range_are_refused() -> None:
    """The mean could not lie in it."""
    with pytest.raises(EstimateError):
        ConfidenceSequence(low=0.0).extend(np.array([-0.5]))


def looks(sequence: ConfidenceSequence, weights: np.ndarray, rewards: np.ndarray, mean_weight: float) -> bool:
    """Tell whether the interval holds the truth at every hundredth reward."""
    truth = 0.75 if mean_weight else 0.75 - 0.715
    for start in range(0, len(weights), 100):
        part = slice(start, start + 100)
        sequence.weigh(weights[part], rewards[part], mean_weight, 1.0 - mean_weight)
        low, high = sequence.bounds(0.05)
        if not low <= truth <= high:
            return False
    return True


def naive(weights: np.ndarray, rewards: np.ndarray) -> bool:
    """Tell whether mean +- 1.96 standard errors hold the truth at every hundredth reward."""
    for end in range(100, len(weights) + 1, 100):
        values = weights[:end] * rewards[:end]
        if abs(float(values.mean()) - 0.75) > 1.96 * float(values.std(ddof=1)) / sqrt(end):
            return False
    return True


def test_at_least_95_of_100_cover_at_every_look() -> None:
    """The true value of the arm is 0.75; a naive interval looked at as often is wrong at some time in many runs."""
    runs = [logged(seed) for seed in range(100)]
    assert sum(looks(ConfidenceSequence(low=0.0), w, r, 1.0) for w, r in runs) >= 95
    assert 20 <= sum(not naive(w, r) for w, r in runs) <= 60


def test_a_paired_difference_covers_and_is_narrower_than_two_intervals() -> None:
    """The difference to who served is 0.75 - 0.715; what both share cancels."""
    runs = [logged(seed) for seed in range(100)]
    assert sum(looks(ConfidenceSequence(), w - 1.0, r, 0.0) for w, r in runs) >= 95
    weights, rewards = logged(1, 50_000)
    low, high = of_paired(weights, rewards).bounds(0.05)
    alone = [of_weighed(each, rewards).bounds(0.05) for each in (weights, np.ones(50_000))]
    assert high - low < sum(high - low for low, high in alone)
