"""Beliefs with covariances: dense regressions by numpy, groups that do not know each other, and what always holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.beliefs import Beliefs, beliefs
from policies.errors import PolicyError
from policies.lessons import Lesson
from policies.registry import parse, spec
from policies.two_speed import TwoSpeed
from schemas.records import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.contract import State

    Floats = NDArray[np.float64]

RIDGE = 2.0


def rows(features: int, count: int = 40, seed: int = 3) -> Floats:
    """Draw (1, features), of which neighbours are much alike."""
    random = np.random.default_rng(seed)
    drawn = random.normal(size=(count, 1)) + 0.3 * random.normal(size=(count, features))
    return np.column_stack([np.ones(count), drawn])


def regressed(form: Beliefs, x: Floats, y: Floats, curvature: float) -> State:
    """Teach one number after the other, as Bayesian linear regression with a known noise does."""
    belief = form.empty(RIDGE)
    for row, number in zip(x.tolist(), y.tolist(), strict=True):
        error = number - sum(mean * value for mean, value in zip(belief, row, strict=False))
        push = curvature * error / (1.0 + curvature * form.variance(belief, row))
        belief = form.moved(belief, row, push, curvature)
    return belief


def precision(form: Beliefs, belief: State) -> Floats:
    """Return the precision matrix that a belief stands for."""
    lower = np.eye(form.width)
    for weight, first, at in form.rows:
        lower[weight, first:weight] = belief[at : at + weight - first]
    found: Floats = lower @ np.diag(belief[form.width : 2 * form.width]) @ lower.T
    return found


@pytest.mark.parametrize("features", [0, 1, 5, 16])
def test_one_group_of_all_is_bayesian_linear_regression(features: int) -> None:
    """Means and covariance are those of numpy's solution of all rows at once."""
    x, form = rows(features), beliefs(features, 16)
    y = x @ np.arange(1.0, features + 2.0)
    belief = regressed(form, x, y, 0.7)
    dense = RIDGE * np.eye(features + 1) + 0.7 * x.T @ x
    assert belief[: form.width] == pytest.approx(np.linalg.solve(dense, 0.7 * x.T @ y), rel=1e-9)
    assert precision(form, belief) == pytest.approx(dense, rel=1e-9)
    for row in rows(features, 5, seed=8):
        assert form.variance(belief, row.tolist()) == pytest.approx(row @ np.linalg.inv(dense) @ row, rel=1e-9)


@pytest.mark.parametrize(
    ("together", "firsts"),
    [
        (1, (0, 1, 2, 3, 4, 5, 6, 7)),
        (2, (0, 0, 0, 3, 3, 5, 5, 7)),
        (3, (0, 0, 0, 0, 4, 4, 4, 7)),
        (7, (0,) * 8),
    ],
)
def test_groups_know_the_covariances_of_their_own_alone(together: int, firsts: tuple[int, ...]) -> None:
    """The precision is that of all rows, without what lies between groups; the constant goes with the first."""
    x, form = rows(7), beliefs(7, together)
    belief = form.empty(RIDGE)
    for row in x.tolist():
        belief = form.moved(belief, row, 0.1, 0.2)
    dense, group = RIDGE * np.eye(8) + 0.2 * x.T @ x, np.array(firsts)
    assert form.firsts == firsts
    assert precision(form, belief) == pytest.approx(np.where(group[:, None] == group, dense, 0.0), rel=1e-9, abs=1e-12)


def test_weights_that_go_alone_have_variances_alone_to_the_bit() -> None:
    """Each mean moves by its own precision, which grows by its own feature."""
    form, x, belief = beliefs(3, 1), (1.0, 0.3, -1.7, 0.1), (0.1, 0.2, 0.3, 0.4, 2.0, 2.1, 2.2, 2.3)
    means, precisions = belief[:4], belief[4:]
    moved = [mean + 0.37 * v / q for mean, q, v in zip(means, precisions, x, strict=True)]
    grown = [q + 0.21 * v * v for q, v in zip(precisions, x, strict=True)]
    assert form.moved(belief, x, 0.37, 0.21) == (*moved, *grown)
    assert form.size == 8


FEATURES = st.floats(-1e3, 1e3, allow_nan=False)
SEEN = st.tuples(st.lists(FEATURES, min_size=6, max_size=6), st.floats(0.0, 1.0), st.floats(-1.0, 1.0))


@given(st.lists(SEEN, max_size=30), st.integers(1, 6), st.sampled_from([1e-3, 1.0, 1e6]), st.integers(0, 5))
@settings(deadline=None)
def test_whatever_is_observed_the_covariance_stays_positive_definite_and_never_grows(
    seen: list[tuple[list[float], float, float]], together: int, ridge: float, axis: int
) -> None:
    """Each q stays at the ridge or above it; nothing observed makes a belief less sure anywhere."""
    form = beliefs(6, together)
    belief = form.empty(ridge)
    probes = [[1.0, *x] for x, _, _ in seen] + [[float(at == axis) for at in range(7)]]
    for x, curvature, push in seen:
        after = form.moved(belief, [1.0, *x], push, curvature)
        assert np.isfinite(after).all()
        for before_q, q in zip(belief[7:14], after[7:14], strict=True):
            assert q >= before_q >= ridge
        for probe in probes:
            assert 0.0 < form.variance(after, probe) <= form.variance(belief, probe) * (1 + 1e-6) + 1e-9
        belief = after


def test_many_equal_observations_leave_a_covariance() -> None:
    """What goes along with what is observed becomes sure; what goes against it stays as unsure as it was."""
    form, along, against = beliefs(2, 2), (1.0, 1000.0, 1000.0), (0.0, 1.0, -1.0)
    belief = form.empty(1e-3)
    for _ in range(20_000):
        belief = form.moved(belief, along, 0.0, 0.25)
    assert form.variance(belief, against) == pytest.approx(2e3, rel=1e-6)
    assert 0.0 < form.variance(belief, along) <= 1.001 / (0.25 * 20_000)


def lessons(truth: Floats, x: Floats, seed: int) -> list[Lesson]:
    """Draw successes of one item, whose log-odds are truth . x."""
    draws = np.random.default_rng(seed).random(len(x))
    failed = (draws >= 1.0 / (1.0 + np.exp(-x @ truth))).astype(np.float64)
    scores = (Tensor.of(np.zeros(1)),)
    return [
        Lesson((0,), (1.0,), (loss,), tuple(row[1:]), answers=(0,), scores=scores)
        for row, loss in zip(x.tolist(), failed.tolist(), strict=True)
    ]


def taught(policy: TwoSpeed, told: list[Lesson]) -> State:
    """Fold lessons."""
    state = policy.init(1)
    for lesson in told:
        state = policy.observe(state, 1, lesson)
    return state


def test_two_speed_of_one_group_is_a_dense_laplace_approximation() -> None:
    """After each lesson: the most likely weights under the dense normal before, and the curvature there."""
    x, policy = rows(4), TwoSpeed(features=4, items=1, ridge=RIDGE, together=4)
    told = lessons(np.array([0.2, 1.0, -1.0, 0.5, 0.0]), x, 5)
    means, dense = np.zeros(5), RIDGE * np.eye(5)
    for row, lesson in zip(x, told, strict=True):
        new, target = means.copy(), 1.0 - float(lesson.losses[0] or 0.0)
        for _ in range(50):  # Newton's
            chance = 1.0 / (1.0 + np.exp(-row @ new))
            slope = dense @ (new - means) - (target - chance) * row
            new -= np.linalg.solve(dense + chance * (1.0 - chance) * np.outer(row, row), slope)
        chance = 1.0 / (1.0 + np.exp(-row @ new))
        means, dense = new, dense + chance * (1.0 - chance) * np.outer(row, row)
    state, form = taught(policy, told), beliefs(4, 4)
    assert state[:5] == pytest.approx(means, rel=1e-7)
    assert precision(form, state) == pytest.approx(dense, rel=1e-7)


def test_what_is_answered_by_is_the_variance_of_each_item() -> None:
    """All items at once as one after the other."""
    policy = TwoSpeed(features=5, items=3, together=2)
    form, state = beliefs(5, 2), policy.init(1)
    for lesson in lessons(np.ones(6), rows(5), 2):
        at = int(lesson.features[0] > 0.0)
        state = policy.observe(state, 1, lesson._replace(answers=(at,), scores=(Tensor.of(np.zeros(3)),)))
    found, x = policy.reading(state, 1), rows(5, 1)[0]
    assert form.variances(found.variances, found.factors, x) == pytest.approx(
        [form.variance(state[item * form.size : (item + 1) * form.size], x.tolist()) for item in range(3)], rel=1e-12
    )


def test_where_features_go_together_covariances_are_nearer_to_the_truth_and_as_sure_as_they_say() -> None:
    """Variances alone take the same news four times: they are further off, and by more than they believe possible."""
    errors: dict[int, list[float]] = {1: [], 4: []}
    surprises: dict[int, list[float]] = {1: [], 4: []}
    for seed in range(8):
        truth = np.random.default_rng(seed + 500).normal(0.0, 0.5, 5)
        told = lessons(truth, rows(4, 1_000, seed), seed + 1_000)
        for together in (1, 4):
            form = beliefs(4, together)
            belief = taught(TwoSpeed(features=4, items=1, ridge=4.0, together=together), told)
            for row in rows(4, 20, seed + 2_000):
                error = float(row @ belief[:5] - row @ truth)
                errors[together].append(error**2)
                surprises[together].append(error**2 / form.variance(belief, row.tolist()))
    assert np.mean(errors[4]) < 0.5 * np.mean(errors[1])
    assert 0.6 < np.mean(surprises[4]) < 1.5  # errors in their deviations, squared: 1 where it is as sure as it says
    assert np.mean(surprises[1]) > 2.0


def test_states_of_before_are_found_again() -> None:
    """Without groups the policy is written as it was before there were any."""
    assert spec(TwoSpeed()) == "two_speed(features=8,gamma=0.01,items=2,ridge=4.0,spread=1.0)"
    assert parse(spec(TwoSpeed(together=4))) == TwoSpeed(together=4)
    assert spec(TwoSpeed(together=4)) == "two_speed(features=8,gamma=0.01,items=2,ridge=4.0,spread=1.0,together=4)"


@pytest.mark.parametrize("wrong", ["together=0", "together=17", "features=64,items=500,together=8"])
def test_groups_are_bounded(wrong: str) -> None:
    """In how many go together, and in the state's size."""
    with pytest.raises(PolicyError, match="together"):
        parse(f"two_speed({wrong})")
