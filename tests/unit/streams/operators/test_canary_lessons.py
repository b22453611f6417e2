"""Canaries teach their model's arm nothing: what the version that serves costs decides its weight."""

from __future__ import annotations

from math import exp

import pytest

from policies import draw
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Decision, JoinStatus, Observation, PolicyState
from streams.operators.contract import StateKey
from streams.operators.learn.fold import Fold, fold
from tests.loops import CODEC, Loop, digits, version
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of

SHARES = {"2": 0.5}
RIGHT, WRONG = 7, 3


def seen(
    chosen: tuple[int, ...], losses: tuple[float | None, ...], stable: tuple[float, ...], policy: str
) -> Observation:
    """Make an observation of two arms, asked with a probability of a half each."""
    decision = Decision(chosen, 0, "digits", policy, ("one", "other"), (0.5, 0.5), stable=stable)
    return Observation("q", "digits", None, decision, losses, losses[chosen[0]], None, JoinStatus.JOINED, 0, 0)


def taught(observation: Observation) -> PolicyState:
    """Return the state after one observation."""
    found = Fold(None, 1)
    found.take(observation, 0)
    return found.state


def test_a_loss_counts_by_how_seldom_the_version_that_serves_is_drawn() -> None:
    """By hand: eta 1, asked with a half of a half, a loss of 0.5 lowers the weight by a factor of e**2."""
    exp3 = "exp3(eta=1,gamma=1,share=0)"
    one, other = taught(seen((0,), (0.5, None), (0.5, 1.0), exp3)).values
    assert exp(one - other) == pytest.approx(exp(-2.0))
    one, other = taught(seen((1,), (None, 0.5), (0.5, 1.0), exp3)).values
    assert exp(other - one) == pytest.approx(exp(-1.0))


@pytest.mark.parametrize("policy", ["exp3", "exp4", "thompson", "ucb1", "epsilon_greedy", "discounted_ucb"])
def test_what_a_canary_costs_teaches_its_arm_nothing(policy: str) -> None:
    """The same state as if its loss were not known; other arms learn."""
    chosen = (0, 1) if policy == "exp4" else (0,)
    other = 0.0 if policy == "exp4" else None
    found = taught(seen(chosen, (1.0, other), (0.0, 1.0), policy))
    unknown = taught(seen(chosen, (None, other), (), policy))
    assert found == unknown
    assert found != taught(seen(chosen, (1.0, other), (), policy))


@pytest.mark.parametrize("stable", [(1.0,), (1.0, 2.0), (float("nan"), 1.0)])
def test_probabilities_that_cannot_be_make_a_dead_letter(stable: tuple[float, ...]) -> None:
    """A damaged log teaches nothing."""
    from policies.errors import PolicyError

    with pytest.raises((PolicyError, DecodeError)):
        taught(seen((0,), (1.0, None), stable, "exp3"))


class Canaried:
    """A loop whose model `good` has a canary for half of its queries, which is always wrong; feedback is prompt."""

    def __init__(self, **changes: object) -> None:
        models = {"good": lambda _: RIGHT, "bad": lambda _: RIGHT}
        self.loop = Loop(models, digits(window_s=20.0, **changes), has_workers=True)
        self.loop.driver.run(1.0)
        self.serve(SHARES)

    def serve(self, shares: dict[str, float]) -> None:
        """Publish the canaries of `good`."""
        for model, key in ((version("good", "2"), b"good@2"), (version("good", shares=shares), b"good")):
            self.loop.driver.produce(topics.MODELS, 0, CODEC.encode(model), key)
        self.loop.driver.run(1.0)

    def ask(self, count: int) -> None:
        """Ask, and tell that each answer of the canary was wrong."""
        for _ in range(count):
            query_id = self.loop.query()
            self.loop.driver.run(0.05)
            answered = {output.version for output in self.loop.answer(query_id).outputs}
            self.loop.feedback(query_id, label=WRONG if "2" in answered else RIGHT)
            self.loop.driver.run(0.05)


def test_a_decision_says_which_version_was_drawn_as_its_worker_draws_it() -> None:
    """Of the arm that has a canary alone; the probability is that of the version that serves."""
    place = Canaried(parameters={"gamma": 1.0})
    place.ask(60)
    answers = [each for each in place.loop.predictions() if each.decision is not None]
    assert len(answers) == 60
    for each in answers:
        assert each.decision is not None
        drawn = draw.version(each.query_id, SHARES)
        assert each.decision.stable == (0.0 if drawn else 0.5, 1.0)
        if each.decision.chosen == (0,):
            assert each.outputs[0].version == (drawn or "1")
    assert len({each.outputs[0].version for each in answers}) == 2


def test_a_bad_canary_costs_its_model_no_weight_and_the_fold_and_a_replay_agree() -> None:
    """All of the version that serves is right, so both models weigh the same; also after the canary has ended."""
    place = Canaried(parameters={"gamma": 1.0, "share": 0.0})
    place.ask(40)
    place.serve({})
    place.ask(10)
    log, stored = place.loop.observations(), place.loop.driver.store.states
    assert sum(loss for _, one in log for loss in one.losses if loss) > 5.0
    state = stored[StateKey(0, "digits")]
    assert state is not None
    assert state.values[0] == pytest.approx(state.values[1])
    assert fold(log, 130_000_000) == {"digits": state}
    report = replayed(trace_of(place.loop.driver))
    assert report.checked["predictions"] == 50
    assert not report.differences


def test_an_application_that_names_the_version_learns_what_it_costs() -> None:
    """No draw decides who answers it, so nothing is left out."""
    place = Canaried(models=("good", "bad"), versions={"good": "stable"})
    place.ask(5)
    assert {each.decision.stable for each in place.loop.predictions() if each.decision} == {()}


def test_records_without_the_probabilities_are_read_as_before() -> None:
    """Of an earlier release: every version teaches."""
    old = seen((0,), (1.0, None), (), "exp3")
    assert taught(old) == taught(old._replace(decision=old.decision._replace(stable=(1.0, 1.0))))
