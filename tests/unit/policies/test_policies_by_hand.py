"""Single steps of each policy against numbers worked out by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc, betaln

from policies import linear
from policies.best_arm import best_of_betas
from policies.contract import Situation
from policies.epsilon_greedy import EpsilonGreedy
from policies.errors import PolicyError
from policies.exp3 import Exp3
from policies.exp4 import Exp4
from policies.lessons import Lesson
from policies.linear_thompson import LinearThompson
from policies.linucb import LinUcb
from policies.registry import parse
from policies.ridge import Ridge
from policies.thompson import Thompson
from policies.timely import Timely
from policies.two_speed import TwoSpeed
from policies.ucb1 import Ucb1
from schemas.records import Tensor


def test_exp3_follows_the_published_update() -> None:
    """The weights become w exp(-eta L / p) + e alpha / K * sum(w), then normalised; p is the logged one."""
    policy = Exp3(eta=0.1, gamma=0.2, share=0.01)
    before = np.array([0.5, 0.3, 0.2])
    state = policy.observe(tuple(np.log(before).tolist()), 3, Lesson((1,), (0.2, 0.6, 0.2), (None, 0.5, None)))
    expected = before * np.exp([0.0, -0.1 * 0.5 / 0.6, 0.0]) + math.e * 0.01 / 3
    assert policy.weights(state, 3) == pytest.approx(expected / expected.sum(), rel=1e-12)
    assert policy.propensities(state, 3) == pytest.approx(0.8 * expected / expected.sum() + 0.2 / 3, rel=1e-12)


def test_exp3_divides_by_the_logged_propensity() -> None:
    """The same loss counts ten times as much where the arm was asked ten times as rarely."""
    policy = Exp3(share=0.0)
    rare = policy.observe(policy.init(2), 2, Lesson((0,), (0.05, 0.95), (0.1, None)))
    often = policy.observe(policy.init(2), 2, Lesson((0,), (0.5, 0.5), (1.0, None)))
    assert rare == pytest.approx(often, rel=1e-12)


def test_exp3_ignores_losses_of_arms_not_asked() -> None:
    """What was not asked for is not learnt from, so the estimate stays unbiased."""
    policy = Exp3()
    asked = policy.observe(policy.init(2), 2, Lesson((0,), (0.5, 0.5), (0.0, None)))
    assert policy.observe(policy.init(2), 2, Lesson((0,), (0.5, 0.5), (0.0, 1.0))) == asked


def test_exp4_uses_plain_exponential_loss() -> None:
    """The weights become w exp(-eta L), normalised, then (1 - share) w + share / K."""
    policy = Exp4(eta=0.2, share=0.01)
    state = policy.observe(policy.init(3), 3, Lesson((0, 1, 2), (1.0,) * 3, (1.0, 0.0, 0.5)))
    expected = np.exp([-0.2, 0.0, -0.1])
    assert policy.weights(state, 3) == pytest.approx(0.99 * expected / expected.sum() + 0.01 / 3, rel=1e-12)


def test_exp4_lets_a_silent_arm_sleep() -> None:
    """An arm without a loss keeps its weight exactly; the others keep theirs between them."""
    policy = Exp4()
    before = policy.observe(policy.init(3), 3, Lesson((0, 1, 2), (1.0,) * 3, (1.0, 0.0, 0.5)))
    after = policy.observe(before, 3, Lesson((0, 1, 2), (1.0,) * 3, (1.0, None, 0.0)))
    assert after[1] == before[1]
    assert after[0] < before[0]
    assert math.fsum(policy.weights(after, 3)) == pytest.approx(1.0, abs=1e-12)


def test_epsilon_greedy_prefers_the_smallest_mean() -> None:
    """Means are compared, not sums; ties go to the lowest index."""
    policy = EpsilonGreedy(epsilon=0.3)
    assert policy.propensities((10.0, 2.0, 1.0, 2.0, 1.0, 1.0), 3) == pytest.approx((0.8, 0.1, 0.1))
    assert policy.propensities((2.0, 2.0, 1.0, 1.0, 1.0, 0.5), 3) == pytest.approx((0.8, 0.1, 0.1))


def test_ucb1_tries_every_arm_once_and_then_the_smallest_bound() -> None:
    """The bound is mean - sqrt(2 ln t / n): with t = 11 and means .1 and .3 the rare arm's bound is lower."""
    policy, state = Ucb1(), Ucb1().init(2)
    assert policy.select(state, 2, 0.9) == (0,)
    state = policy.observe(state, 2, Lesson((0,), (1.0, 0.0), (0.0, None)))
    assert policy.select(state, 2, 0.1) == (1,)
    assert policy.select((10.0, 1.0, 1.0, 0.3), 2, 0.5) == (1,)
    assert policy.select((500.0, 500.0, 50.0, 150.0), 2, 0.5) == (0,)


def best_by_scipy(parameters: tuple[tuple[float, float], ...], index: int) -> float:
    """Integrate adaptively, piece by piece so that no narrow density is missed."""
    alpha, beta = parameters[index]

    def density(x: float) -> float:
        shape = (alpha - 1) * math.log(x) + (beta - 1) * math.log1p(-x) - float(betaln(alpha, beta))
        others = [float(betainc(a, b, x)) for other, (a, b) in enumerate(parameters) if other != index]
        return math.exp(shape) * math.prod(others)

    marks = {0.0, 1.0}
    for a, b in parameters:
        mean = a / (a + b)
        deviation = math.sqrt(mean * (1 - mean) / (a + b + 1))
        marks |= {min(1.0, max(0.0, mean + step * deviation)) for step in (-9, -6, -3, 0, 3, 6, 9)}
    return sum(quad(density, low, high)[0] for low, high in pairwise(sorted(marks)))


@pytest.mark.parametrize(
    "parameters",
    [
        ((1.0, 1.0), (1.0, 1.0)),
        ((3.5, 1.25), (2.0, 7.5)),
        ((1000.0, 100.0), (1010.0, 95.0)),
        ((1e5, 1e4), (9e4, 9e3), (1.0, 1.0)),
        ((1.0, 50.0), (50.0, 1.0), (2.0, 2.0), (1.0, 1.0), (30.0, 20.0)),
    ],
)
def test_thompson_probabilities_agree_with_scipy(parameters: tuple[tuple[float, float], ...]) -> None:
    """The quadrature is within 1e-6 of adaptive integration with scipy's distribution functions."""
    for index, probability in enumerate(best_of_betas([a for a, _ in parameters] + [b for _, b in parameters])):
        assert probability == pytest.approx(best_by_scipy(parameters, index), abs=1e-6)


def test_thompson_of_a_single_arm_is_certain() -> None:
    """One arm is always the best."""
    assert Thompson().propensities((1.0, 1.0), 1) == pytest.approx((1.0,))


def test_thompson_stands_a_million_equal_outcomes() -> None:
    """Posteriors as narrow as floats allow still give probabilities."""
    assert best_of_betas((1e6, 1.0, 1.0, 1e6)) == pytest.approx((1.0, 0.0), abs=1e-6)
    assert best_of_betas((1e12, 1e12, 1.0, 1.0)) == pytest.approx((0.5, 0.5), abs=1e-3)


@pytest.mark.parametrize("policy", [EpsilonGreedy(), Ucb1()])
def test_a_new_arm_starts_with_one_average_observation(policy: EpsilonGreedy | Ucb1) -> None:
    """It must not take a million losses to tell a bad new model from the average."""
    state = policy.extend((100.0, 50.0, 10.0, 15.0), ["a", "b"], ["new", "b", "a"])
    assert state == pytest.approx((1.0, 50.0, 100.0, 0.2, 15.0, 10.0))


def test_a_new_arm_gets_the_average_weight() -> None:
    """Exponential weights: the mean of those kept, then all are normalised."""
    policy = Exp3()
    state = policy.extend(tuple(np.log([0.6, 0.3, 0.1]).tolist()), ["a", "b", "c"], ["a", "new", "b"])
    assert policy.weights(state, 3) == pytest.approx(np.array([0.6, 0.45, 0.3]) / 1.35)


def test_a_new_thompson_arm_starts_with_one_average_observation() -> None:
    """Uniform posterior plus one observation of the average rate."""
    assert Thompson().extend((3.0, 1.0), ["a"], ["a", "b"]) == pytest.approx((3.0, 1.75, 1.0, 1.25))


def test_a_context_starts_with_at_most_one_observation_of_each_mean() -> None:
    """Ten observations and four losses become one and .4; an arm never asked stays one to be tried."""
    assert Ucb1().start((10.0, 0.0, 0.5, 4.0, 0.0, 0.25), 3) == pytest.approx((1.0, 0.0, 0.5, 0.4, 0.0, 0.25))
    assert Thompson().start((9.0, 1.0, 3.0, 1.0), 2) == pytest.approx((1.8, 1.0, 1.2, 1.0))


def test_a_context_starts_with_half_the_common_weights_and_half_equal_ones() -> None:
    """Weights of .9 and .1 become .7 and .3, and a weight too small for a float a quarter."""
    assert Exp3().weights(Exp3().start((math.log(0.9), math.log(0.1)), 2), 2) == pytest.approx((0.7, 0.3))
    assert Exp4().weights(Exp4().start((0.0, -5_000.0), 2), 2) == pytest.approx((0.75, 0.25))


def test_linucb_learns_a_triangle_and_a_vector() -> None:
    """One reward at x = (1, 1): inverse(I + xx') = ((2, -1), (-1, 2)) / 3 and b = x; the other arm stays."""
    policy = LinUcb(features=1, gamma=0.0)
    state = policy.observe(policy.init(2), 2, Lesson((1,), (0.5, 0.5), (None, 0.0), (1.0,)))
    assert state[:5] == policy.init(1) == (1.0, 0.0, 1.0, 0.0, 0.0)
    assert state[5:] == pytest.approx((2 / 3, -1 / 3, 2 / 3, 1.0, 1.0))


def test_linucb_asks_the_arm_of_the_highest_bound() -> None:
    """At x = (1, 1) that arm has 2/3 + sqrt(2/3) alpha, the unknown one sqrt(2) alpha: equal at alpha = 1.115."""
    state = (1.0, 0.0, 1.0, 0.0, 0.0, 2 / 3, -1 / 3, 2 / 3, 1.0, 1.0)
    for alpha, expected in ((1.1, (0.1, 0.9)), (1.13, (0.9, 0.1))):
        ask = LinUcb(alpha=alpha, features=1, gamma=0.2).propensities_in(state, 2)
        assert ask(Situation((1.0,))) == pytest.approx(expected)


def test_linear_thompson_of_two_arms_is_a_normal_distribution_function() -> None:
    """At x = (1, 1) the rewards differ by N(2/3, spread^2 (2/3 + 2)), so the known arm is best with Phi(.8165)."""
    state = (2 / 3, -1 / 3, 2 / 3, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0)
    known, unknown = LinearThompson(features=1, gamma=0.1).propensities_in(state, 2)(Situation((1.0,)))
    assert known == pytest.approx(0.9 * 0.5 * (1 + math.erf(0.8165 / math.sqrt(2))) + 0.05, abs=2e-3)
    assert known + unknown == pytest.approx(1.0, abs=1e-12)


def test_a_new_linear_arm_starts_with_the_average_weights() -> None:
    """Arms of weights (1/3, 1/3) and (0, 0) give one that expects 1/6 + 1/6 f, and trusts it as little as any."""
    state = (2 / 3, -1 / 3, 2 / 3, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0)
    for policy in (LinUcb(features=1), LinearThompson(features=1)):
        extended = policy.extend(state, ["a", "b"], ["b", "new", "a"])
        assert extended == pytest.approx((*state[5:], 1.0, 0.0, 1.0, 1 / 6, 1 / 6, *state[:5]))


def test_a_linear_state_that_cannot_be_stored_is_refused() -> None:
    """With 256 features an arm has 33,410 numbers; two do not fit a record."""
    assert len(LinUcb(features=256).init(1)) == 33_410
    with pytest.raises(PolicyError, match="fewer features"):
        LinUcb(features=256).init(2)


def test_linear_features_are_filled_up_and_cut_off() -> None:
    """A query with fewer features than the policy counts has zeros for the rest; more are not looked at."""
    policy = LinUcb(features=2)
    state = policy.observe(policy.init(1), 1, Lesson((0,), (1.0,), (0.0,), (0.5,)))
    assert state == policy.observe(policy.init(1), 1, Lesson((0,), (1.0,), (0.0,), (0.5, 0.0, 9.0)))


@pytest.mark.parametrize(
    ("left_us", "latencies_us", "asked", "at_least"),
    [
        (20_000, (), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
        (20_000, (5_000, 20_001, 0), (1.0, 0.0, 1.0), (1.0, 0.0, 1.0)),
        (4_000, (5_000, 6_000, 7_000), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
        (-1, (9_000, 6_000, 6_000), (0.0, 0.0, 0.0), (0.0, 1.0, 1.0)),
        (-1, (), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    ],
)
def test_timely_asks_what_fits_and_no_other_unless_it_is_told_to(
    left_us: int, latencies_us: tuple[float, ...], asked: tuple[float, ...], at_least: tuple[float, ...]
) -> None:
    """An arm of which nothing is known fits, if there is time at all; `least` asks the quickest, or all such."""
    situation = Situation((), left_us, latencies_us)
    for policy, expected in ((Timely(), asked), (Timely(least=1), at_least)):
        assert policy.propensities_in(policy.init(3), 3)(situation) == expected


def test_timely_asks_none_or_one_where_none_fits() -> None:
    """Nothing else is said by `least`."""
    with pytest.raises(PolicyError, match="0 or 1"):
        Timely(least=2)


@pytest.mark.parametrize(
    "spec",
    ["exp3(share=5e-324)", "exp4(share=1e-300)", "timely(share=5e-324)", "linucb(ridge=1e-6)"],
)
def test_parameters_that_leave_the_numbers_of_a_double_are_refused(spec: str) -> None:
    """Nobody means them, and a fold would fail on them later."""
    with pytest.raises(PolicyError, match="is usual"):
        parse(spec)


def test_the_smallest_ridge_keeps_its_digits() -> None:
    """Half of 20,000 equal queries were right: so is the expectation."""
    policy, x = parse("linucb(features=3,ridge=0.001)"), (1.0, 1.0, 1.0)
    state = policy.init(1)
    for number in range(20_000):
        state = policy.observe(state, 1, Lesson((0,), (1.0,), (float(number % 2),), x))
    expected, _ = linear.unpacked(state, 1, 3).at(linear.vector(x, 3))
    assert expected[0] == pytest.approx(0.5, abs=1e-6)


def test_ridge_answers_what_the_normal_equations_say() -> None:
    """After ten labels w solves (sum of x x' + ridge) w = sum of y x, where labels are cut to their range."""
    policy, random = Ridge(features=3, ridge=2.0, low=0.0, high=5.0), np.random.default_rng(7)
    rows, labels, state = random.normal(size=(10, 3)), random.normal(2.5, 2.0, 10), policy.init(1)
    for row, label in zip(rows, labels.tolist(), strict=True):
        state = policy.observe(state, 1, Lesson((0,), (1.0,), (0.1,), scores=(Tensor.of(row),), label=label))
    x = np.column_stack([np.ones(10), rows])
    gram = x.T @ x + 2.0 * np.eye(4)
    weights = np.linalg.solve(gram, x.T @ np.clip(labels, 0.0, 5.0))
    asked, at = Tensor.of(np.array([0.3, -0.2, 0.1])), np.array([1.0, 0.3, -0.2, 0.1])
    found = policy.reading(state, 1)({0: asked})
    assert found.answer == pytest.approx(float(weights @ at), rel=1e-9)
    left = float(at @ np.linalg.solve(gram, at)) * 2.0 / float(at @ at)
    assert found.confidence == pytest.approx(1.0 - math.sqrt(left), rel=1e-9)


def test_ridge_keeps_its_state_small_and_its_labels_bounded() -> None:
    """18 KB for each user and model; one false label cannot move an answer by more than the range."""
    assert len(Ridge(features=64).init(1)) == 1 + 65 * 66 // 2 + 65
    for wrong in ("ridge(features=65)", "ridge(features=0)", "ridge(low=5,high=1)", "ridge(high=2000)"):
        with pytest.raises(PolicyError):
            parse(wrong)


def test_two_speed_moves_to_the_most_likely_weights() -> None:
    """One success at x: the gradient of prior and likelihood is 0 there, and the precisions grow by the curvature."""
    policy, x, cold = TwoSpeed(features=2, items=3, ridge=2.0), (0.5, -1.5), Tensor.of(np.array([9.0, -3.0, 9.0]))
    lesson = Lesson((0,), (1.0,), (0.0,), x, answers=(1,), scores=(cold,))
    state = np.array(policy.observe(policy.init(1), 1, lesson)).reshape(3, 2, 3)
    means, precisions = state[1]
    at = np.array([1.0, *x])
    chance = 1.0 / (1.0 + math.exp(3.0 - float(means @ at)))
    assert 2.0 * means == pytest.approx((1.0 - chance) * at, rel=1e-9)
    assert precisions == pytest.approx(2.0 + chance * (1.0 - chance) * at**2, rel=1e-9)
    assert state[[0, 2], 0].tolist() == [[0.0] * 3] * 2
    assert state[[0, 2], 1].tolist() == [[2.0] * 3] * 2


def test_two_speed_keeps_its_state_small() -> None:
    """1.4 KB for 10 items of 8 features; what would not fit a record is refused."""
    assert len(TwoSpeed(items=10).init(1)) == 180
    for wrong in ("two_speed(items=0)", "two_speed(items=4097)", "two_speed(items=1000,features=50)"):
        with pytest.raises(PolicyError):
            parse(wrong)
