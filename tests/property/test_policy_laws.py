"""Laws of the arithmetic, over whatever hypothesis can think of."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies import linear
from policies.aimd import Aimd
from policies.best_arm import best_of_betas, best_of_normals
from policies.class_vote import ClassVote
from policies.combine import COMBINES, MEAN, MEDIAN, combine
from policies.draw import pick, uniform
from policies.epsilon_greedy import EpsilonGreedy
from policies.errors import LossError
from policies.exp3 import Exp3
from policies.exp4 import Exp4
from policies.lessons import Lesson
from policies.linucb import LinUcb
from policies.logweights import normalised
from policies.losses import loss
from policies.registry import parse, spec
from schemas.records import Tensor

if TYPE_CHECKING:
    from random import Random

unit = st.floats(0.0, 1.0)
logs = st.lists(st.floats(-1e6, 0.0), min_size=2, max_size=6).map(normalised)
values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.floats(width=32), max_size=4).map(lambda scores: Tensor.of(np.array(scores, np.float32))),
    st.none(),
)
finite = st.one_of(st.integers(0, 3), st.floats(-10, 10), st.sampled_from(["a", "b"]))


@given(
    st.lists(st.tuples(st.tuples(finite, finite), st.tuples(unit, unit)), max_size=30),
    st.tuples(finite, finite),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1.0),
)
def test_class_vote_treats_arms_alike(
    log: list[tuple[tuple[object, object], tuple[float, float]]],
    answers: tuple[object, object],
    prior: float,
    discount: float,
) -> None:
    """Two arms that change places change votes, whatever they answer, as long as all classes are told apart."""
    policy = ClassVote(prior, discount)
    state = turned = policy.init(2)
    for given_answers, losses in log:
        state = policy.observe(state, 2, Lesson((0, 1), (1.0, 1.0), losses, answers=given_answers))
        turned = policy.observe(turned, 2, Lesson((0, 1), (1.0, 1.0), losses[::-1], answers=given_answers[::-1]))
    first, second = policy.vote_weights(state, 2)(dict(enumerate(answers))).values()
    assert [*policy.vote_weights(turned, 2)(dict(enumerate(answers[::-1]))).values()] == [second, first]
    assert first > 0.0
    assert second > 0.0
    assert math.isclose(sum(policy.weights(state, 2)), 1.0)


@given(logs, unit, st.floats(1e-6, 1.0), st.data())
def test_exp3_treats_arms_alike(state: tuple[float, ...], cost: float, p: float, data: st.DataObject) -> None:
    """Renaming the arms renames the weights and changes nothing else."""
    policy, arms = Exp3(), len(state)
    order = data.draw(st.permutations(range(arms)))
    arm = data.draw(st.integers(0, arms - 1))
    plain = policy.observe(state, arms, Lesson((arm,), (p,) * arms, [cost] * arms))
    turned = policy.observe(
        tuple([state[i] for i in order]), arms, Lesson((order.index(arm),), (p,) * arms, [cost] * arms)
    )
    assert np.allclose(turned, [plain[i] for i in order], rtol=1e-12, atol=1e-12)


@given(logs)
def test_full_mixing_is_uniform(state: tuple[float, ...]) -> None:
    """With gamma = 1 every arm is asked alike, whatever was learnt."""
    arms = len(state)
    assert np.allclose(Exp3(gamma=1.0).propensities(state, arms), 1.0 / arms)


@given(logs, unit, st.floats(0.0, 1.0), st.data())
def test_a_loss_never_raises_the_arm_that_caused_it(
    state: tuple[float, ...], cost: float, p: float, data: st.DataObject
) -> None:
    """Without sharing the weight of the chosen arm falls or stays."""
    policy, arms = Exp3(share=0.0), len(state)
    arm = data.draw(st.integers(0, arms - 1))
    after = policy.observe(state, arms, Lesson((arm,), (p,) * arms, [cost] * arms))
    assert after[arm] <= state[arm] + 1e-9 * max(1.0, abs(state[arm]))


@given(logs, st.lists(st.one_of(st.none(), unit), min_size=6, max_size=6))
def test_exp4_weights_stay_a_distribution(state: tuple[float, ...], losses: list[float | None]) -> None:
    """Any mixture of known and unknown losses leaves weights that sum to 1; unknown arms stay bit for bit."""
    policy, arms = Exp4(), len(state)
    after = policy.observe(state, arms, Lesson(tuple(range(arms)), (1.0,) * arms, losses[:arms]))
    assert math.isclose(math.fsum(policy.weights(after, arms)), 1.0, abs_tol=1e-9)
    assert all(new == old for new, old, cost in zip(after, state, losses, strict=False) if cost is None)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 1.0])), max_size=50), st.randoms())
def test_zero_one_means_do_not_depend_on_order(seen: list[tuple[int, float]], random: object) -> None:
    """Reordered feedback leaves the same bits."""
    policy = EpsilonGreedy()

    def fold(observations: list[tuple[int, float]]) -> tuple[float, ...]:
        state = policy.init(3)
        for arm, cost in observations:
            state = policy.observe(state, 3, Lesson((arm,), (1.0,) * 3, [cost] * 3))
        return state

    mixed = list(seen)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert fold(mixed) == fold(seen)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(1.0, 1e5), st.floats(1.0, 1e5)), min_size=1, max_size=5))
def test_thompson_probabilities_are_a_distribution(parameters: list[tuple[float, float]]) -> None:
    """Any posteriors give probabilities that sum to 1."""
    best = best_of_betas([a for a, _ in parameters] + [b for _, b in parameters])
    assert all(-1e-9 <= probability <= 1.0 + 1e-9 for probability in best)
    assert math.isclose(sum(best), 1.0, abs_tol=1e-9)


@given(st.lists(unit, min_size=1, max_size=8).filter(any), st.floats(0.0, 1.0, exclude_max=True))
def test_pick_returns_an_index_of_positive_propensity(propensities: list[float], u: float) -> None:
    """Whatever the rounding, an impossible arm is never asked."""
    total = sum(propensities)
    assert propensities[pick([p / total for p in propensities], u)] > 0.0


@given(st.text())
def test_draws_lie_in_the_half_open_unit_interval(query_id: str) -> None:
    """Any id has a draw below 1, the same each time."""
    assert 0.0 <= uniform(query_id) < 1.0
    assert uniform(query_id) == uniform(query_id)


@given(st.floats(1e-6, 1e6), st.floats(1e-9, 1.0), st.just(0.0) | st.floats(1e-12, 1.0))
def test_spec_reads_back_exactly(eta: float, gamma: float, share: float) -> None:
    """Every parameter value survives being written."""
    policy = Exp3(eta, gamma, share)
    assert parse(spec(policy)) == policy


@given(st.dictionaries(st.integers(0, 5), finite, min_size=1), st.dictionaries(st.integers(0, 5), unit))
@example({1: "b", 3: "b", 2: "a", 0: "b"}, {0: 0.1, 1: 0.5, 2: 0.9, 3: 0.3})  # a tie but for rounding
def test_combining_is_total_and_does_not_depend_on_arrival(answers: dict[int, int], weights: dict[int, float]) -> None:
    """Any answers combine to one with a confidence in [0, 1], in whatever order they came."""
    answer, confidence = combine(weights, answers)
    turned = combine(weights, dict(reversed(answers.items())))
    assert 0.0 <= confidence <= 1.0
    assert turned[0] == answer or math.isclose(turned[0], answer, rel_tol=1e-9, abs_tol=1e-9)  # type: ignore[arg-type]
    assert math.isclose(turned[1], confidence, abs_tol=1e-9) or isinstance(answer, float)


@given(st.sampled_from(["zero_one", "absolute", "squared", "log", "given"]), values, values, values, st.booleans())
def test_a_loss_lies_in_the_unit_interval_or_is_refused(
    kind: str, answer: object, label: object, scores: object, named: bool
) -> None:
    """Any answer and label give a loss in [0, 1] or the one error."""
    given_scores = scores if isinstance(scores, Tensor) else None
    try:
        value = loss(kind, answer, label, given_scores, ("a", "b") if named else ())  # type: ignore[arg-type]
    except LossError:
        return
    assert 0.0 <= value <= 1.0


@given(st.integers(1, 64), st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100_000)), max_size=100))
def test_aimd_stays_within_its_bounds(max_rows: int, batches: list[tuple[int, int]]) -> None:
    """No history takes the cap out of [1, max_rows]."""
    aimd = Aimd(max_rows=max_rows)
    state = aimd.init()
    for rows, duration_us in batches:
        state = aimd.observe(state, min(rows, aimd.cap(state)), duration_us, 20_000)
        assert 1 <= aimd.cap(state) <= max_rows


numbers = st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(-1e6, 1e6)), min_size=1, max_size=6)


@given(numbers, st.sampled_from([MEAN, MEDIAN]), st.randoms())
def test_mean_and_median_lie_between_the_answers_in_any_order(
    arms: list[tuple[float, float]], how: str, random: Random
) -> None:
    """No combination leaves the range of what it combines, and who came first does not matter."""
    weights = {arm: weight for arm, (weight, _) in enumerate(arms)}
    answers = {arm: answer for arm, (_, answer) in enumerate(arms)}
    combined, confidence = combine(weights, answers, how)
    assert isinstance(combined, float)
    assert min(answers.values()) - 1e-6 <= combined <= max(answers.values()) + 1e-6
    assert 0.0 <= confidence <= 1.0
    order = random.sample(list(answers), len(answers))
    again, _ = combine({arm: weights[arm] for arm in order}, {arm: answers[arm] for arm in order}, how)
    assert math.isclose(again, combined, rel_tol=1e-9, abs_tol=1e-6)  # type: ignore[arg-type]  # a float, too


@given(st.lists(st.integers(-1_000, 1_000), min_size=1, max_size=9))
def test_with_equal_weights_the_median_is_the_textbook_one(answers: list[int]) -> None:
    """The middle answer, or halfway between the two in the middle."""
    arms = dict(enumerate(answers))
    combined, _ = combine(dict.fromkeys(arms, 1.0), arms, MEDIAN)
    assert combined == statistics.median(answers)


@given(numbers, st.floats(-1e6, 1e6))
def test_more_than_half_of_the_weight_is_the_median(arms: list[tuple[float, float]], heavy: float) -> None:
    """One arm that outweighs all others decides alone."""
    answers = {arm: answer for arm, (_, answer) in enumerate(arms)} | {len(arms): heavy}
    weights = {arm: weight for arm, (weight, _) in enumerate(arms)} | {len(arms): 1.01 + sum(w for w, _ in arms)}
    assert combine(weights, answers, MEDIAN)[0] == heavy


@given(st.sampled_from(COMBINES), numbers)
def test_scores_keep_their_shape_however_they_are_combined(how: str, arms: list[tuple[float, float]]) -> None:
    """Scores in, scores out."""
    answers = {arm: Tensor.of(np.array([answer, 1.0, -answer])) for arm, (_, answer) in enumerate(arms)}
    combined, confidence = combine({arm: weight for arm, (weight, _) in enumerate(arms)}, answers, how)
    assert isinstance(combined, Tensor)
    assert combined.shape == (3,)
    assert 0.0 <= confidence <= 1.0


@settings(max_examples=30)
@given(st.lists(st.tuples(st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=2), unit), max_size=20))
def test_sherman_and_morrison_agree_with_solving_the_regression(seen: list[tuple[list[float], float]]) -> None:
    """One observation at a time gives the inverse and the weights of all of them at once."""
    policy = LinUcb(features=2, ridge=0.5)
    state, matrix, vector = policy.init(1), 0.5 * np.eye(3), np.zeros(3)
    for features, cost in seen:
        state = policy.observe(state, 1, Lesson((0,), (1.0,), (cost,), tuple(features)))
        x = np.array([1.0, *features])
        matrix, vector = matrix + np.outer(x, x), vector + (1.0 - cost) * x
    found = linear.unpacked(state, 1, 2)
    assert np.allclose(found.inverses[0], np.linalg.inv(matrix), rtol=1e-8, atol=1e-10)
    assert np.allclose(found.weights[0], np.linalg.solve(matrix, vector), rtol=1e-8, atol=1e-8)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(-10.0, 10.0), st.floats(1e-9, 1e3)), min_size=1, max_size=6))
def test_normal_probabilities_are_a_distribution(parameters: list[tuple[float, float]]) -> None:
    """Any means and deviations give probabilities; of two they are the distribution function's within .002."""
    means, deviations = np.array(parameters).T
    best = best_of_normals(means, deviations)
    assert np.all(best >= 0.0)
    assert math.isclose(best.sum(), 1.0, abs_tol=1e-9)
    if len(parameters) == 2 and means[0] != means[1]:
        away = (means[0] - means[1]) / math.hypot(*deviations)
        assert math.isclose(best[0], 0.5 * (1.0 + math.erf(away / math.sqrt(2.0))), abs_tol=2e-3)
