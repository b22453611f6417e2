"""How sure an answer of one model is: its own score, calibrated by feedback, in the whole loop in virtual time."""

from __future__ import annotations

import pytest

from policies import calibration
from policies.errors import PolicyError
from policies.registry import asks_one, parse, spec
from schemas.records import Decision, JoinStatus, Observation, PolicyState, Status
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold, taught
from streams.operators.policy_state import numbers, state_of
from streams.testing import Crash
from tests.lessons import WINDOW_US, apply
from tests.loops import Loop, Row, Sure, digits

EXP3, THOMPSON, SINGLE = (spec(parse(text)) for text in ("exp3", "thompson", "single"))


def boastful(asked: Row) -> Sure:
    """Say 0.99 of every answer."""
    return Sure(7, 0.99)


def modest(asked: Row) -> Sure:
    """Say 0.6 of every answer."""
    return Sure(7, 0.6)


def seen(policy: str = EXP3, confidence: float | None = 0.99, loss: float | None = 1.0, **more: object) -> Observation:
    """Make an observation: the first of two models was asked."""
    decision = Decision((0,), 0, "app", policy, ("a", "b"), (0.5, 0.5))
    told = Observation("q", "app", None, decision, (loss, None), loss, None, JoinStatus.JOINED, 0, 0)
    return told._replace(confidence=confidence, **more)  # type: ignore[arg-type]


def asked(loop: Loop, label: int | None = None) -> float:
    """Ask, and tell the label if there is one; return the confidence of the answer."""
    query_id = loop.query()
    loop.driver.run(seconds=0.2)
    found = loop.answer(query_id)
    if label is not None:
        loop.feedback(query_id, label)
        loop.driver.run(seconds=0.3)
    return found.confidence


def test_a_confidence_begins_as_the_models_own_and_becomes_the_share_that_was_right() -> None:
    """A network that says 0.99 is right in three of four cases; crashes change nothing of what is learnt."""
    crashes = [Crash(at_us=7_000_000, role="learner"), Crash(at_us=15_000_000, role="joiner")]
    loop = Loop({"net": boastful}, digits(policy="single", models=("net",)), crashes)
    assert asked(loop) == pytest.approx(0.99)
    for number in range(80):
        asked(loop, label=7 if number % 4 else 3)
    loop.driver.run(seconds=1)
    assert asked(loop) == pytest.approx(0.75, abs=0.05)
    log = loop.observations()
    assert {told.confidence for _, told in log} == {0.99}
    assert fold(log, WINDOW_US)["digits"] == loop.driver.store.states[StateKey(0, "digits")]


def test_each_model_is_judged_by_itself() -> None:
    """Both are right in half of all cases, and claim too much and nearly the truth."""
    application = digits(policy="epsilon_greedy", parameters={"epsilon": 1.0}, models=("net", "tree"))
    loop = Loop({"net": boastful, "tree": modest}, application)
    for number in range(200):
        asked(loop, label=7 if number % 2 else 3)
    state = loop.driver.store.states[StateKey(0, "digits")]
    assert calibration.calibrated(state.confidences, 0, 0.99) == pytest.approx(0.5, abs=0.12)
    assert calibration.calibrated(state.confidences, 1, 0.6) == pytest.approx(0.5, abs=0.12)
    assert calibration.calibrated(state.confidences, 1, 0.99) > 0.9


@pytest.mark.parametrize("policy", ["single", "exp4"])
def test_a_model_without_scores_and_a_vote_are_as_sure_as_ever(policy: str) -> None:
    """Nothing is learnt about either."""
    answer = boastful if policy == "exp4" else lambda _: 7
    loop = Loop({"net": answer}, digits(policy=policy, models=("net",)))
    assert [asked(loop, label=3) for _ in range(5)] == [1.0] * 5
    assert all(told.confidence is None for _, told in loop.observations())
    assert loop.driver.store.states[StateKey(0, "digits")].confidences == ()


def test_a_version_that_a_query_names_is_as_sure_as_it_says() -> None:
    """Nobody's policy asked it, so nothing is known of it but what it says; a floor holds for it, too."""
    application = digits(policy="single", models=("net",), confidence_floor=0.7, default_output=-1)
    for answer, status, confidence in ((boastful, Status.COMPLETE, 0.99), (modest, Status.DEFAULT, 0.6)):
        loop = Loop({"net": answer}, application)
        query_id = loop.query(version="net@1")
        loop.driver.run(seconds=1)
        found = loop.answer(query_id)
        assert (found.status, found.confidence) == (status, pytest.approx(confidence))


def test_below_the_floor_the_answer_is_the_default() -> None:
    """As soon as feedback has shown that the model claims too much."""
    loop = Loop({"net": boastful}, digits(policy="single", models=("net",), confidence_floor=0.9, default_output=-1))
    first = loop.query()
    loop.driver.run(seconds=0.2)
    for _ in range(5):
        asked(loop, label=3)
    late = loop.query()
    loop.driver.run(seconds=1)
    assert (loop.answer(first).status, loop.answer(first).answer) == (Status.COMPLETE, 7)
    found = loop.answer(late)
    assert (found.status, found.reason, found.answer) == (Status.DEFAULT, "low_confidence", -1)
    assert [output.answer for output in found.outputs] == [7]


def test_nothing_is_learnt_without_feedback() -> None:
    """The default loss says what no feedback costs, not whether the answer was right."""
    loop = Loop({"net": boastful}, digits(policy="single", models=("net",), default_loss=1.0))
    asked(loop)
    loop.driver.run(seconds=100)
    ((_, told),) = loop.observations()
    assert (told.status, told.confidence) == (JoinStatus.DEFAULT, None)


def test_a_state_from_before_there_was_calibration_goes_on() -> None:
    """It has no confidences: they begin as the models' own."""
    before = PolicyState(EXP3, ("a", "b"), 70, (-0.7, -0.7))
    after = apply(before, seen())
    assert after.version == 71
    assert after.confidences == calibration.observed((), 2, 0, 0.99, 1.0)
    assert apply(before, seen(confidence=None)).confidences == ()
    assert numbers(after) == 2 + len(after.confidences)


def test_what_is_known_of_a_model_follows_its_name() -> None:
    """When the application has other models."""
    known = apply(None, seen())
    others = seen()._replace(decision=Decision((0,), 0, "app", EXP3, ("c", "a"), (0.5, 0.5)), confidence=None)
    after = apply(known, others).confidences
    assert calibration.calibrated(after, 1, 0.99) == calibration.calibrated(known.confidences, 0, 0.99) < 0.99
    assert calibration.calibrated(after, 0, 0.99) == 0.99


def test_each_policy_keeps_its_own_so_that_a_version_of_a_state_is_one() -> None:
    """Late lessons of the policy before do not touch that of the one that decides; an apprentice learns along."""
    along = seen(EXP3)._replace(decision=seen(EXP3).decision._replace(apprentice=THOMPSON))
    state = apply(apply(apply(apply(None, along), seen(THOMPSON)), seen(EXP3)), seen(EXP3))
    mine, theirs = state_of(state, EXP3), state_of(state, THOMPSON)
    assert mine is not None
    assert theirs is not None
    assert mine.confidences == calibration.observed(theirs.confidences, 2, 0, 0.99, 1.0)
    assert mine.version == theirs.version + 1 == 3


def test_a_context_begins_with_what_all_have_taught() -> None:
    """And believes it little."""
    ann = seen(context="ann", decision=seen().decision._replace(state="app/ann"))
    states: dict[str, PolicyState | None] = {"app": None, "app/ann": None, "app/bob": None}
    for _ in range(20):
        states |= taught(states, ann, 0, WINDOW_US)
    bob = ann._replace(context="bob", decision=ann.decision._replace(state="app/bob"), confidence=None)
    begun = taught(states, bob, 0, WINDOW_US)["app/bob"]
    common = states["app"]
    assert common is not None
    assert begun.confidences == calibration.started(common.confidences)
    assert 0.3 < calibration.calibrated(begun.confidences, 0, 0.99) < 0.8


def test_an_observation_that_claims_more_than_certainty_is_refused() -> None:
    """The state stays."""
    with pytest.raises(PolicyError, match="confidences"):
        apply(None, seen(confidence=1.5))


def test_policies_that_ask_one_model_are_known() -> None:
    """Those that vote, ask again or answer themselves have a confidence of another kind."""
    assert all(map(asks_one, (EXP3, THOMPSON, SINGLE, "linucb", "ucb1", "discounted_ucb", "epsilon_greedy")))
    assert not any(map(asks_one, ("exp4", "class_vote", "timely", "cascade", "ridge", "none")))
