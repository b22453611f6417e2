"""`class_vote`: what an answer weighs depends on how often the model was right with it."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

import pytest

from policies import class_counts, registry
from policies.class_vote import ClassVote
from policies.combine import combine
from policies.contract import is_answer_aware
from policies.errors import PolicyError
from policies.lessons import Lesson
from schemas.records import Status
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.testing import Crash, Duplicate
from tests.lessons import apply
from tests.loops import Loop, digits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.contract import Policy, State
    from schemas.records import Observation, Value
    from streams.testing import Fault
    from tests.loops import Row

ONES = (1.0, 1.0)
ANIMALS, VEHICLES = ("cat", "dog", "hen", "cow", "ant"), ("car", "bus", "tram", "bike", "boat")


def taught(policy: ClassVote, *seen: tuple[Value | None, float], arm: int = 0, arms: int = 2) -> State:
    """Let one arm give these answers at these losses; nothing is known of the others."""
    state = policy.init(arms)
    for answer, loss in seen:
        losses = [loss if place == arm else None for place in range(arms)]
        answers = [answer if place == arm else None for place in range(arms)]
        state = policy.observe(state, arms, Lesson(tuple(range(arms)), (1.0,) * arms, losses, answers=answers))
    return state


def test_an_answer_weighs_the_log_odds_of_its_smoothed_precision_against_the_number_of_classes() -> None:
    """Worked out by hand: three classes; "a" was right 3 times of 4, the arm overall 4 times of 6."""
    policy = ClassVote(prior=2.0, discount=1.0)
    state = taught(policy, ("a", 0.0), ("a", 0.0), ("a", 0.0), ("a", 1.0), ("b", 0.0), ("c", 1.0))
    overall = (4 + 1) / (6 + 2)
    votes = policy.vote_weights(state, 2)
    for answer, right, times in [("a", 3, 4), ("b", 1, 1), ("c", 0, 1)]:
        p = (right + 2 * overall) / (times + 2)
        assert votes({0: answer, 1: None})[0] == pytest.approx(math.log(p * 2 / (1 - p)))
    assert votes({0: 0.5, 1: None}) == pytest.approx({0: math.log(overall * 2 / (1 - overall)), 1: math.log(2)})


def test_a_context_starts_with_the_rates_of_all_and_believes_them_as_its_prior() -> None:
    """Eight of ten become 1.6 of 2, by class and overall; what was met less often stays; classes stay known."""
    policy = ClassVote(prior=2.0, discount=1.0)
    state = policy.start(taught(policy, *[("a", 0.0)] * 8, *[("a", 1.0)] * 2, ("b", 1.0)), 2)
    known = class_counts.cells(state, policy.classes)
    assert class_counts.counts(state, policy.classes, 0, class_counts.ALL) == pytest.approx((2 * 8 / 11, 2 * 3 / 11))
    assert class_counts.counts(state, policy.classes, 0, class_counts.cell("a", known)) == pytest.approx((1.6, 0.4))
    assert class_counts.counts(state, policy.classes, 0, class_counts.cell("b", known)) == (0.0, 1.0)
    assert class_counts.counts(state, policy.classes, 1, class_counts.ALL) == (0.0, 0.0)
    votes = policy.vote_weights(state, 2)({0: "a", 1: "b"})
    assert votes[0] > votes[1]


def test_old_counts_fade_by_class() -> None:
    """Each cell forgets with its own answers alone: one class says nothing of when another was met."""
    policy = ClassVote(discount=0.5)
    state = taught(policy, ("a", 1.0), *[("b", 0.0)] * 60)
    known = policy.vote_weights(taught(policy, ("a", 1.0), ("b", 0.0)), 2)
    assert policy.vote_weights(state, 2)({0: "b"})[0] > known({0: "b"})[0]
    assert policy.observe(state, 2, Lesson((0, 1), ONES, (None, None), answers=("a", "b"))) == state
    repaired = taught(policy, *[("a", 1.0)] * 1000, *[("a", 0.0)] * 10)
    assert policy.vote_weights(repaired, 2)({0: "a"})[0] > 1.0


def test_an_answer_no_better_than_a_guess_weighs_next_to_nothing_but_something() -> None:
    """Where nobody does better there still is an answer, and never a negative weight."""
    policy = ClassVote()
    state = taught(policy, *[("a", 1.0)] * 500)
    assert policy.vote_weights(state, 2)({0: "a", 1: "a"}) == {0: 0.01, 1: 0.01}
    assert combine(policy.vote_weights(state, 1)({0: "a"}), {0: "a"}) == ("a", 1.0)


def test_text_and_number_are_different_labels_and_true_is_one() -> None:
    """Over the wire a boolean answer becomes a whole number."""
    policy = ClassVote()
    votes = policy.vote_weights(taught(policy, *[(7, 0.0)] * 9, *[("7", 1.0)] * 9, *[(1, 0.0)] * 50), 2)
    assert votes({0: 7})[0] > votes({0: "7"})[0]
    assert votes({0: True}) == votes({0: 1})


def test_further_classes_than_are_told_apart_share_one_count() -> None:
    """The state never grows; those that came first keep a count of their own."""
    policy = ClassVote(classes=3, discount=1.0)
    state = taught(policy, *[(label, float(label == 0)) for label in range(3)] * 20)
    later = taught(policy, *[(label, float(label in (0, 50))) for label in range(1_000)])
    votes = policy.vote_weights(later, 2)
    assert len(later) == len(state) == 3 + 2 * 2 * 5
    assert votes({0: 50}) == votes({0: 51}) == votes({0: "never met"})
    assert votes({0: 0})[0] < votes({0: 1})[0]


def test_counts_follow_the_name_of_an_arm() -> None:
    """A new arm votes as the average of those kept, with every class."""
    policy = ClassVote()
    state = taught(policy, *[("a", 0.0), ("b", 1.0)] * 30)
    votes = policy.vote_weights(policy.extend(state, ["m", "n"], ["new", "m"]), 2)({0: "a", 1: "a"})
    assert votes[1] == policy.vote_weights(state, 2)({0: "a"})[0]
    assert votes[0] == pytest.approx(policy.vote_weights(policy.init(1), 1)({0: "a"})[0], abs=0.05)


def error(policy: Policy, queries: int = 2_000) -> float:
    """Ask two models, one that knows animals and one that knows vehicles; return how often the vote is wrong."""
    random, state, wrong = Random(11), policy.init(2), 0
    for _ in range(queries):
        label = random.choice(ANIMALS + VEHICLES)
        pair = [
            label if label in ANIMALS else random.choice(VEHICLES),
            label if label in VEHICLES else random.choice(ANIMALS),
        ]
        losses = [float(answer != label) for answer in pair]
        asked = dict(enumerate(pair))
        votes = policy.vote_weights(state, 2)(asked) if is_answer_aware(policy) else policy.weights(state, 2)
        wrong += combine({arm: votes[arm] for arm in asked}, asked)[0] != label
        state = policy.observe(state, 2, Lesson((0, 1), ONES, losses, answers=pair))
    return wrong / queries


def test_models_that_know_different_classes_are_heard_each_in_its_own() -> None:
    """One weight a model cannot do that: exp4 is wrong on most of what one of the two mixes up."""
    assert error(registry.create("class_vote")) < 0.02
    assert error(registry.create("exp4")) > 0.3


def zoo(faults: Sequence[Fault] = (), queries: int = 40, **changes: object) -> tuple[Loop, list[str]]:
    """Run the whole loop: `a` knows the cat, `b` the dog, each takes the other's animal for the third one."""
    labels: dict[str, str] = {}

    def model(known: str) -> Callable[[Row], str]:
        return lambda row: labels[row.query_id] if labels[row.query_id] == known else "hen"

    fields = {"models": ("a", "b"), "policy": "class_vote", "default_output": "none"} | changes
    loop = Loop({"a": model("cat"), "b": model("dog")}, digits(**fields), faults)
    for number in range(queries):
        labels[f"q{number + 1}"] = "cat" if number % 2 else "dog"
        query_id = loop.query()
        loop.driver.run(0.1)
        loop.feedback(query_id, label=labels[query_id])
        loop.driver.run(0.3)
    loop.driver.run(5)
    return loop, list(labels.values())


def test_the_loop_answers_by_class_and_is_sure_of_it() -> None:
    """Answers travel to the learner, weights by class back to the combiner and into the confidence."""
    loop, labels = zoo()
    last = loop.predictions()[-10:]
    assert [prediction.answer for prediction in last] == labels[-10:]
    assert min(prediction.confidence for prediction in last) > 0.9
    assert loop.observations()[1][1].answers == ("cat", "hen")


@pytest.mark.parametrize(
    "faults", [[Crash(4_000_000, "learner"), Duplicate("feedback")], [Crash(7_700_000, "selection")]]
)
def test_its_stored_state_is_the_fold_of_the_log(faults: list[Fault]) -> None:
    """Bit for bit, as every policy's; nothing but the log is needed."""
    loop, _ = zoo(faults)
    states = {StateKey(0, name): state for name, state in fold(loop.observations(), 130_000_000).items()}
    assert loop.driver.store.states == states
    assert states[StateKey(0, "digits")].version == 40


def test_a_silent_model_counts_against_the_confidence_as_it_weighs_overall() -> None:
    """Its class is not known, so neither is a weight by class."""
    loop = Loop({"a": lambda _: "cat", "b": lambda _: None}, digits(models=("a", "b"), policy="class_vote"))
    query_id = loop.query()
    loop.driver.run(1)
    prediction = loop.answer(query_id)
    assert (prediction.status, prediction.answer) == (Status.PARTIAL, "cat")
    assert prediction.confidence == pytest.approx(0.5)


def test_numbers_are_averaged_by_the_weight_overall() -> None:
    """What is of no class is weighed as the arm is, here equally, and is not logged as a label."""
    loop = Loop({"a": lambda _: 1.0, "b": lambda _: 2.0}, digits(models=("a", "b"), policy="class_vote"))
    query_id = loop.query()
    loop.driver.run(1)
    loop.feedback(query_id, label=1.5)
    loop.driver.run(5)
    assert loop.answer(query_id).answer == pytest.approx(1.5)
    assert loop.observations()[0][1].answers == (None, None)


@pytest.mark.parametrize("policy", ["exp4", "exp3"])
def test_answers_are_logged_only_for_policies_that_learn_from_them(policy: str) -> None:
    """The others' observations are as small as they were."""
    loop, _ = zoo(queries=1, policy=policy)
    assert [seen.answers for _, seen in loop.observations()] == [None]


def logged() -> Observation:
    """Return an observation of the loop."""
    ((_, seen),) = zoo(queries=1)[0].observations()
    return seen


def test_an_observation_with_another_number_of_answers_is_impossible() -> None:
    """It becomes a dead letter, like one with too few losses."""
    with pytest.raises(PolicyError, match="2 arms, 1 answers"):
        apply(None, logged()._replace(answers=("cat",)))


def test_without_answers_an_observation_teaches_the_weight_overall() -> None:
    """As one that an older joiner wrote."""
    seen = logged()
    state = apply(None, seen._replace(answers=None))
    policy = registry.parse(seen.decision.policy)
    assert sum(map(bool, state.values)) == 2
    assert policy.weights(state.values, 2)[0] < policy.weights(state.values, 2)[1]
