"""The further laws of policies whose state answers with a number, from features that the models compute."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.contract import Answering, Reading, has_shared_prior, is_answering, is_choosing
from policies.lessons import Lesson
from policies.registry import POLICIES, create, parse, spec
from schemas.records import Tensor

if TYPE_CHECKING:
    from policies.contract import Policy, State
    from schemas.records import Value

LABELS: tuple[Value | None, ...] = (None, 0, 1, -7, 1e300, -1e300, 5e-324, float("inf"), float("nan"), "text", True)
EXTREMES = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, -1e30, float("inf"), float("nan"))


@pytest.fixture(
    params=sorted(name for name in POLICIES if is_answering(made := create(name)) and not is_choosing(made))
)
def policy(request: pytest.FixtureRequest) -> Answering:
    """Each such policy with two features."""
    made: Policy = create(request.param, {"features": 2})
    assert is_answering(made)
    return made


@pytest.fixture(params=(1, 2, 5))
def arms(request: pytest.FixtureRequest) -> int:
    """A number of arms."""
    return request.param


def some_scores(random: Random, arms: int) -> list[Tensor | None]:
    """Draw what the models compute; one in ten computes nothing."""
    drawn = [Tensor.of(np.array([random.gauss(0, 1), random.gauss(0, 1)], np.float32)) for _ in range(arms)]
    return [None if random.random() < 0.1 else scores for scores in drawn]


def taught(policy: Answering, state: State, arms: int, steps: int, seed: int = 5) -> State:
    """Let it learn that the label is 2 + the first feature of each arm's model."""
    random, everyone = Random(seed), tuple(range(arms))
    for _ in range(steps):
        scores = some_scores(random, arms)
        label = 2.0 + next((float(one.numpy()[0]) for one in scores if one is not None), 0.0)
        losses = [None if one is None else random.random() for one in scores]
        state = policy.observe(state, arms, Lesson(everyone, (1.0,) * arms, losses, scores=scores, label=label))
    return state


def test_every_arm_is_asked(policy: Answering) -> None:
    """Each regression learns from every label."""
    assert policy.full_information


def test_two_folds_of_one_log_give_the_same_bits(policy: Answering, arms: int) -> None:
    """A policy made anew from its text folds the same log to the same state."""
    again = parse(spec(policy))
    assert is_answering(again)
    assert taught(policy, policy.init(arms), arms, 200) == taught(again, again.init(arms), arms, 200)


def test_the_answer_lies_between_those_of_the_arms(policy: Answering, arms: int) -> None:
    """Whichever have computed something; its confidence is a share."""
    random = Random(1)
    for state in (policy.init(arms), taught(policy, policy.init(arms), arms, 60)):
        read = policy.reading(state, arms)
        for _ in range(50):
            computed = {arm: one for arm, one in enumerate(some_scores(random, arms)) if one is not None}
            found = read(computed)
            assert found.answers.keys() == computed.keys()
            assert 0.0 <= found.confidence <= 1.0
            if computed:
                assert found.answer is not None
                assert min(found.answers.values()) - 1e-9 <= found.answer <= max(found.answers.values()) + 1e-9
            else:
                assert found == Reading(None, 0.0, {})


def test_it_learns_the_label(policy: Answering) -> None:
    """And knows that it does: its confidence grows."""
    read, before = (policy.reading(state, 1) for state in (taught(policy, policy.init(1), 1, 300), policy.init(1)))
    asked = {0: Tensor.of(np.array([1.5, -0.5]))}
    assert read(asked).answer == pytest.approx(3.5, abs=0.1)
    assert before(asked) == Reading(0.0, 0.0, {0: 0.0})
    assert read(asked).confidence > 0.8


def test_a_context_starts_with_the_answers_of_all_and_believes_them_little(policy: Answering, arms: int) -> None:
    """Its first label moves it more than it moves them; it knows nothing yet."""
    assert has_shared_prior(policy)
    common = taught(policy, policy.init(arms), arms, 300)
    start = policy.start(common, arms)
    assert len(start) == len(common)
    scores = [Tensor.of(np.array([0.5, 0.5]))] * arms
    asked = dict(enumerate(scores))
    first, theirs = policy.reading(start, arms)(asked), policy.reading(common, arms)(asked)
    assert first.answer == pytest.approx(theirs.answer, abs=1e-9)
    assert first.confidence == pytest.approx(0.0, abs=1e-6)
    told = [
        policy.observe(state, arms, Lesson((0,), (1.0,) * arms, [None] * arms, scores=scores, label=10.0))
        for state in (start, common)
    ]
    moved = [policy.reading(state, arms)(asked).answer for state in told]
    assert moved[0] is not None
    assert moved[1] is not None
    assert moved[0] > moved[1] + 1.0


@pytest.mark.parametrize("label", LABELS)
def test_state_stays_finite_whatever_is_computed_and_told(policy: Answering, label: Value | None) -> None:
    """Labels that are no numbers teach nothing; numbers at both ends leave a state that answers."""
    random, arms = Random(4), 2
    state = taught(policy, policy.init(arms), arms, 20)
    for _ in range(300):
        scores = [Tensor.of(np.array([random.choice(EXTREMES), random.choice(EXTREMES)])) for _ in range(arms)]
        state = policy.observe(state, arms, Lesson((0, 1), (1.0, 1.0), (0.5, None), scores=scores, label=label))
    assert len(state) == len(policy.init(arms))
    assert all(type(value) is float and math.isfinite(value) for value in state)
    answer = policy.reading(state, arms)({0: Tensor.of(np.array([1e30, -1e30])), 1: Tensor.of(np.zeros(2))}).answer
    assert answer is not None
    assert math.isfinite(answer)


def test_what_is_no_feature_of_the_policy_is_left_out(policy: Answering) -> None:
    """Too few or too many numbers, or one that is not finite: such an arm has computed nothing."""
    state = taught(policy, policy.init(1), 1, 20)
    for values in ([1.0], [1.0, 2.0, 3.0], [1.0, float("nan")]):
        scores = Tensor.of(np.array(values))
        assert policy.reading(state, 1)({0: scores}) == Reading(None, 0.0, {})
        assert policy.observe(state, 1, Lesson((0,), (1.0,), (None,), scores=(scores,), label=1.0)) == state


def test_regressions_follow_names_not_positions(policy: Answering) -> None:
    """Reordered arms carry what is known of their features along."""
    state, random = taught(policy, policy.init(3), 3, 200), Random(3)
    turned = policy.extend(state, ["a", "b", "c"], ["c", "a", "b"])
    a, b, c = (Tensor.of(np.array([random.random(), random.random()])) for _ in range(3))
    before, after = policy.reading(state, 3)({0: a, 1: b, 2: c}), policy.reading(turned, 3)({0: c, 1: a, 2: b})
    assert after.answer == pytest.approx(before.answer)
    assert [after.answers[arm] for arm in (1, 2, 0)] == pytest.approx([before.answers[arm] for arm in range(3)])


def test_a_model_that_comes_to_others_hardly_counts_until_its_answers_are_better(policy: Answering) -> None:
    """Then it takes over: features that were trained anew learn beside the old ones."""
    state = policy.extend(taught(policy, policy.init(1), 1, 200), ["old"], ["old", "new"])
    assert policy.weights(state, 2)[1] < 0.02
    for _ in range(100):
        state = policy.observe(state, 2, Lesson((0, 1), (1.0, 1.0), (0.4, 0.1)))
    assert policy.weights(state, 2)[1] > 0.9
    alone = policy.extend(state, ["old", "new"], ["new"])
    assert policy.weights(alone, 1) == pytest.approx((1.0,))


def some_candidates(random: Random, count: int) -> Tensor:
    """Draw rows of two features."""
    return Tensor.of(np.array([[random.gauss(0, 1), random.gauss(0, 1)] for _ in range(count)], np.float32))


@pytest.mark.parametrize(("count", "top"), [(1, 1), (1, 5), (7, 3), (256, 10), (5, 5)])
def test_a_ranking_has_the_best_candidates_and_exact_probabilities_of_the_first(
    policy: Answering, count: int, top: int
) -> None:
    """All different, as many as are asked for or there are; over all draws each stands first as often as is logged."""
    state, candidates = taught(policy, policy.init(2), 2, 50), some_candidates(Random(2), count)
    read, first = policy.reading(state, 2), [0] * count
    for step in range(2_000):
        found = read.rank(candidates, top, (step + 0.5) / 2_000)
        assert found is not None
        assert len(found.best) == len({*found.best}) == min(count, top)
        assert 0.0 <= found.confidence <= 1.0
        first[found.best[0]] += 1
    assert math.isclose(sum(found.shares), 1.0, abs_tol=1e-9)
    assert min(found.shares) > 0.0
    assert [times / 2_000 for times in first] == pytest.approx(found.shares, abs=1 / 2_000 + 1e-9)


def test_a_ranking_is_that_of_the_expected_answers_once_much_is_known(policy: Answering) -> None:
    """Checked against sorting all of them by the answer to each alone."""
    state, candidates = taught(policy, policy.init(1), 1, 3_000), some_candidates(Random(8), 40)
    read = policy.reading(state, 1)
    answers = [read({0: Tensor.of(row)}).answer or 0.0 for row in candidates.numpy()]
    found = read.rank(candidates, 5, 0.5)
    assert found is not None
    assert [*found.best] == sorted(range(40), key=answers.__getitem__, reverse=True)[:5]
    assert found.answer == pytest.approx(max(answers))


def test_what_little_is_known_of_is_tried_first(policy: Answering) -> None:
    """Of two that promise the same, the one farther from what was seen has the higher bound."""
    random, state = Random(6), policy.init(1)
    for _ in range(200):
        seen = Tensor.of(np.array([random.gauss(0, 1), 0.0]))
        state = policy.observe(state, 1, Lesson((0,), (1.0,), (0.1,), scores=(seen,), label=1.0))
    found = policy.reading(state, 1).rank(Tensor.of(np.array([[0.0, 0.0], [0.0, 2.0]])), 1, 0.5)
    assert found is not None
    assert found.best == (1,)


def test_rows_that_are_no_features_are_not_ranked(policy: Answering) -> None:
    """Of another width, of no width, or not finite."""
    read = policy.reading(policy.init(1), 1)
    for rows in (np.zeros((3, 3)), np.zeros(2), np.zeros((0, 2)), np.array([[1.0, float("inf")]])):
        assert read.rank(Tensor.of(rows), 1, 0.5) is None


def test_a_model_of_hardly_any_weight_may_be_all_that_is_kept(policy: Answering) -> None:
    """However much it lost before, beside a new one it has nearly all."""
    made = create(policy.name, {"features": 2, "share": 0.0, "eta": 50.0})
    state = made.init(2)
    for _ in range(30):
        state = made.observe(state, 2, Lesson((0, 1), (1.0, 1.0), (1.0, 0.0)))
    assert made.weights(state, 2)[0] == 0.0
    assert made.weights(made.extend(state, ["worse", "better"], ["worse", "new"]), 2)[0] > 0.98
