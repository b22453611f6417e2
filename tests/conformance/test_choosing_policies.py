"""The further laws of policies whose state chooses among items, from what models compute for each."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.contract import Answering, Choose, chooses_among, has_shared_prior, is_answering, is_choosing
from policies.lessons import Lesson
from policies.registry import POLICIES, create, given, parse, spec
from schemas.records import Tensor

if TYPE_CHECKING:
    from policies.contract import Policy, Reading, State
    from schemas.records import Value

ITEMS = 4
EXTREMES = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, -1e30, 1e300)
ANSWERS: tuple[Value | None, ...] = (None, 0, 3, 4, -1, 1.0, "2", True, 10**30)


@pytest.fixture(params=[*sorted(name for name in POLICIES if is_choosing(create(name))), "two_speed(together=2)"])
def policy(request: pytest.FixtureRequest) -> Answering:
    """Each such policy with two features and four items."""
    name, parameters = given(request.param)
    made: Policy = create(name, {"features": 2, "items": ITEMS} | parameters)
    assert is_answering(made)
    return made


@pytest.fixture(params=(1, 2, 5))
def arms(request: pytest.FixtureRequest) -> int:
    """A number of arms."""
    return request.param


def cold(*log_odds: float) -> Tensor:
    """Return what a model computes."""
    return Tensor.of(np.array(log_odds, np.float32))


def told(policy: Answering, state: State, arms: int, item: int, loss: float, x: tuple[float, ...] = ()) -> State:
    """Teach that an item cost a loss, where all models found all items alike."""
    everyone, scores = tuple(range(arms)), (cold(*(0.0,) * ITEMS),) * arms
    lesson = Lesson(everyone, (1.0,) * arms, (loss,) * arms, x, answers=(item,) * arms, scores=scores)
    return policy.observe(state, arms, lesson)


def taught(policy: Answering, state: State, arms: int, steps: int, seed: int = 5) -> State:
    """Let it learn that item k succeeds where feature k % 2 is positive (k < 2) or negative."""
    random = Random(seed)
    for _ in range(steps):
        x, item = (random.gauss(0, 1), random.gauss(0, 1)), random.randrange(ITEMS)
        chance = 1.0 / (1.0 + math.exp(-4.0 * x[item % 2] * (1 if item < 2 else -1)))
        state = told(policy, state, arms, item, float(random.random() >= chance), x)
    return state


def read(policy: Answering, state: State, x: tuple[float, ...] = (), u: float = 0.5, *log_odds: float) -> Reading:
    """Return what it answers where one model was asked."""
    return policy.reading(state, 1)({0: cold(*(log_odds or (0.0,) * ITEMS))}, x, u)


def test_every_model_is_asked(policy: Answering) -> None:
    """What they compute is added up."""
    assert policy.full_information


def test_two_folds_of_one_log_give_the_same_bits(policy: Answering, arms: int) -> None:
    """A policy made anew from its text folds the same log to the same state."""
    again = parse(spec(policy))
    assert is_answering(again)
    assert taught(policy, policy.init(arms), arms, 200) == taught(again, again.init(arms), arms, 200)


def test_each_item_is_answered_exactly_as_often_as_is_logged(policy: Answering, arms: int) -> None:
    """Over all draws; no item's probability is below its floor."""
    for state in (policy.init(arms), taught(policy, policy.init(arms), arms, 100)):
        found, times = policy.reading(state, arms), [0] * ITEMS
        for step in range(2_000):
            reading = found({arm: cold(0.1, 0.0, -0.2, 0.3) for arm in range(arms)}, (0.4, -0.3), (step + 0.5) / 2_000)
            assert isinstance(reading.answer, int)
            times[reading.answer] += 1
        assert [count / 2_000 for count in times] == pytest.approx(reading.first, abs=1 / 2_000 + 1e-9)
        assert math.isclose(sum(reading.first), 1.0, abs_tol=1e-9)
        assert min(reading.first) > 0.0
        assert reading.answers == dict.fromkeys(range(arms), reading.answer)


def among(policy: Answering, state: State) -> Choose:
    """Return what chooses among some items."""
    found = policy.reading(state, 1)
    assert chooses_among(found)
    assert found.count == ITEMS
    return found


def test_of_some_items_each_is_answered_as_often_as_is_logged(policy: Answering) -> None:
    """In whatever order they are given; the others are never answered."""
    found = among(policy, taught(policy, policy.init(1), 1, 100))
    items, times = (3, 0, 2), [0, 0, 0]
    for step in range(2_000):
        reading, best = found.among(items, {0: cold(0.1, 0.0, -0.2, 0.3)}, (0.4, -0.3), 2, (step + 0.5) / 2_000)
        assert reading.answer == items[best[0]]
        assert len({*best}) == 2
        times[best[0]] += 1
    assert [count / 2_000 for count in times] == pytest.approx(reading.first, abs=1 / 2_000 + 1e-9)
    assert math.isclose(sum(reading.first), 1.0, abs_tol=1e-9)


def test_all_items_are_chosen_among_as_without_candidates(policy: Answering) -> None:
    """And those behind the first follow by what is expected of them."""
    found = among(policy, taught(policy, policy.init(1), 1, 100))
    for u in (0.0, 0.3, 0.6, 0.999):
        reading, best = found.among(range(ITEMS), {0: cold(0.0, 3.0, 1.0, 2.0)}, (), ITEMS, u)
        assert reading == found({0: cold(0.0, 3.0, 1.0, 2.0)}, (), u)
        assert reading.answer == best[0]
        assert sorted(best) == list(range(ITEMS))
    blank = among(policy, policy.init(1)).among(range(ITEMS), {0: cold(0.0, 3.0, 1.0, 2.0)}, (), ITEMS, 0.5)[1]
    assert [item for item in blank if item != blank[0]] == [item for item in (1, 3, 2, 0) if item != blank[0]]
    assert found.among([0], {0: cold(1.0)}, (), 1, 0.5)[1] == ()


def test_before_any_feedback_the_models_decide(policy: Answering) -> None:
    """The item with the highest log-odds is answered most often, the lowest one least."""
    shares = read(policy, policy.init(1), (), 0.5, 2.0, 1.0, 0.0, -1.0).first
    assert sorted(shares, reverse=True) == list(shares)


def test_it_learns_which_item_suits_the_features(policy: Answering) -> None:
    """After much feedback it is nearly sure."""
    state = taught(policy, policy.init(1), 1, 3_000)
    for x, best in (((1.5, 0.0), 0), ((0.0, 1.5), 1), ((-1.5, 0.0), 2), ((0.0, -1.5), 3)):
        assert np.argmax(read(policy, state, x).first) == best
        assert read(policy, state, x).first[best] > 0.9


def test_feedback_outweighs_a_model_that_is_wrong(policy: Answering) -> None:
    """Warm log-odds are added to cold ones, and learnt on top of them."""
    state = policy.init(1)
    for _ in range(300):
        for item in range(ITEMS):
            scores = (cold(3.0, 0.0, 0.0, 0.0),)
            lesson = Lesson((0,), (1.0,), (float(item != 2),), answers=(item,), scores=scores)
            state = policy.observe(state, 1, lesson)
    assert np.argmax(read(policy, state, (), 0.5, 3.0, 0.0, 0.0, 0.0).first) == 2


def test_confidence_is_the_success_that_is_expected(policy: Answering) -> None:
    """Of an item that succeeds three times in four it says so."""
    state = policy.init(1)
    for number in range(4_000):
        state = told(policy, state, 1, 1, float(number % 4 == 0))
    found = [read(policy, state, (), u / 64) for u in range(64)]
    assert next(one.confidence for one in found if one.answer == 1) == pytest.approx(0.75, abs=0.01)


def test_a_context_starts_with_the_weights_of_all_and_believes_them_little(policy: Answering, arms: int) -> None:
    """Its first feedback moves it more than it moves them."""
    assert has_shared_prior(policy)
    common = taught(policy, policy.init(arms), arms, 2_000)
    start = policy.start(common, arms)
    assert len(start) == len(common)
    x = (1.0, 0.0)
    before, theirs = read(policy, start, x, 0.0), read(policy, common, x, 0.0)
    assert before.confidence == pytest.approx(theirs.confidence)
    moved = [read(policy, told(policy, state, arms, 0, 1.0, x), x, 0.0).confidence for state in (start, common)]
    assert before.confidence - moved[0] > 3.0 * (before.confidence - moved[1]) > 0.0


@pytest.mark.parametrize("answer", ANSWERS)
def test_state_stays_finite_whatever_is_computed_and_told(policy: Answering, answer: Value | None) -> None:
    """What is no item teaches nothing, and numbers at both ends leave a state that answers."""
    random, state = Random(4), policy.init(1)
    for _ in range(300):
        x = tuple(random.choice(EXTREMES) for _ in range(3))
        scores = (Tensor.of(np.array([random.choice(EXTREMES) for _ in range(ITEMS)])),)
        lesson = Lesson((0,), (1.0,), (random.choice((0.0, 1.0, 0.5, 1e-300)),), x, answers=(answer,), scores=scores)
        state = policy.observe(state, 1, lesson)
    assert len(state) == len(policy.init(1))
    assert all(type(value) is float and math.isfinite(value) for value in state)
    assert isinstance(read(policy, state, (1e300, -1e300)).answer, int)


def test_what_is_no_log_odds_of_the_items_is_left_out(policy: Answering) -> None:
    """Too few or too many numbers, or one that is not finite: such a model has computed nothing."""
    state = taught(policy, policy.init(1), 1, 20)
    for values in ([1.0], [1.0] * 5, [1.0, 2.0, 3.0, float("nan")]):
        scores = Tensor.of(np.array(values))
        assert policy.reading(state, 1)({0: scores}).answer is None
        lesson = Lesson((0,), (1.0,), (0.0,), answers=(0,), scores=(scores,))
        assert policy.observe(state, 1, lesson) == state
        others = policy.reading(state, 2)({0: scores, 1: cold(0.0, 0.0, 0.0, 5.0)})
        assert others.answers.keys() == {1}


def test_what_was_learnt_stays_when_the_models_change(policy: Answering) -> None:
    """As long as one is kept: a model that is trained anew comes beside the old one, which then goes."""
    state = taught(policy, policy.init(1), 1, 100)
    both = policy.extend(state, ["old"], ["old", "new"])
    assert policy.extend(both, ["old", "new"], ["new"]) == state
    assert policy.extend(state, ["old"], ["other"]) == policy.init(1)


def test_candidates_are_not_ranked(policy: Answering) -> None:
    """What is chosen among are the items."""
    assert policy.reading(policy.init(1), 1).rank(Tensor.of(np.zeros((3, 2))), 1, 0.5) is None


def test_many_items_contend_in_bounded_time_and_none_is_left_out(policy: Answering) -> None:
    """Those that can hardly be the best have the floor."""
    made = create(policy.name, {"features": 2, "items": 300})
    assert is_answering(made)
    scores = np.zeros(300)
    scores[7] = 9.0
    found = made.reading(made.init(1), 1)({0: Tensor.of(scores)}, (0.5, 0.5), 0.5)
    assert found.answer == 7
    assert min(found.first) == pytest.approx(0.01 / 300)
