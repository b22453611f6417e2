"""Who asks draws: the same model and version while the draw stands, with the propensity of the draw."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies import assignment, draw, registry
from policies.errors import PolicyError
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Outcome, Tensor
from streams.operators.configuration import Configuration, check_answering
from streams.operators.contract import Record, StateKey
from streams.topology import held_out_state
from tests.loops import CODEC, Loop, digits, version
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of
from tests.unit.streams.operators.test_answering import rated

if TYPE_CHECKING:
    from schemas.records import Application, Prediction

SHARES = {"2": 0.5}
RIGHT, WRONG = 7, 3
PEOPLE = [f"user-{number}" for number in range(12)]


class ByPerson:
    """A loop whose people draw; its model `good` has a canary for half of them."""

    def __init__(self, *, loaded: bool = True, cache_bytes: int = 0, **changes: object) -> None:
        fields = {"assign": "context", "window_s": 20.0, "parameters": {"gamma": 1.0}} | changes
        models = {"good": lambda _: RIGHT, "bad": lambda _: WRONG}
        self.loop = Loop(models, digits(**fields), has_workers=True, cache_bytes=cache_bytes)
        self.loop.driver.run(1.0)
        serving = version("good", shares=SHARES)
        for model, key in ((version("good", "2"), b"good@2"), (serving, b"good"))[0 if loaded else 1 :]:
            self.loop.driver.produce(topics.MODELS, 0, CODEC.encode(model), key)
        self.loop.driver.run(1.0 if loaded else 0.0)

    @property
    def application(self) -> Application:
        """As it is deployed."""
        return self.loop.application

    def ask(self, who: str | None, **changes: object) -> Prediction:
        """Ask for somebody, tell whether the answer was right, and return it."""
        query_id = self.loop.query(None, context=who, **changes)
        self.loop.driver.run(0.05)
        self.loop.feedback(query_id, label=RIGHT)
        self.loop.driver.run(0.05)
        return self.loop.answer(query_id)


def drawn_version(application: Application, answer: Prediction) -> str:
    """Return the canary that somebody drew; empty = none."""
    return draw.version(assignment.draw_id(application, answer.context, answer.episode, answer.drawn), SHARES)


def who_answered(answer: Prediction) -> tuple[str, str]:
    """Return model and version of an answer."""
    (output,) = answer.outputs
    return output.model, output.version


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_a_person_meets_one_model_and_version_and_people_meet_all(cache_bytes: int) -> None:
    """Four queries each; the probability is that of today, and the version that of the draw."""
    place = ByPerson(cache_bytes=cache_bytes)
    answers = {who: [place.ask(who) for _ in range(4)] for who in PEOPLE}
    for its in answers.values():
        assert len({who_answered(each) for each in its}) == 1
        for each in its:
            assert each.decision is not None
            assert each.drawn == "/0"
            assert each.decision.stable == (0.0 if drawn_version(place.application, each) else 0.5, 1.0)
            assert each.decision.propensities == (0.5, 0.5)
            if each.decision.chosen == (0,):
                assert who_answered(each) == ("good", drawn_version(place.application, each) or "1")
    met = {who_answered(each) for its in answers.values() for each in its}
    assert met == {("good", "1"), ("good", "2"), ("bad", "1")}


def test_the_next_period_is_drawn_anew_and_a_replay_agrees() -> None:
    """Half a minute each: what was drawn is told by answer and observation."""
    place = ByPerson(sticky_s=30.0)
    first = {who: place.ask(who) for who in PEOPLE}
    place.loop.driver.run(30.0)
    then = {who: place.ask(who) for who in PEOPLE}
    for who in PEOPLE:
        assert first[who].drawn != then[who].drawn
    assert {who_answered(each) for each in first.values()} == {who_answered(each) for each in then.values()}
    assert [who_answered(first[who]) for who in PEOPLE] != [who_answered(then[who]) for who in PEOPLE]
    assert {(one.context, one.drawn) for _, one in place.loop.observations()} == {
        (each.context, each.drawn) for each in (*first.values(), *then.values())
    }
    assert not replayed(trace_of(place.loop.driver)).differences


def test_a_canary_that_is_not_loaded_is_answered_for_by_the_version_that_serves() -> None:
    """As it is where queries draw."""
    place = ByPerson(loaded=False)
    for who in PEOPLE:
        query_id = place.loop.query(context=who)
        place.loop.driver.run(0.02)
        (output,) = place.loop.answer(query_id).outputs
        if output.model == "good":
            assert (output.version, output.outcome) == ("1", Outcome.OK)


def test_a_query_that_names_nobody_draws_for_itself_and_is_counted() -> None:
    """Its decision is that of its id."""
    place = ByPerson(models=("good",), policy="single", parameters={})
    for _ in range(8):
        answer = place.ask(None)
        assert not answer.drawn
        assert who_answered(answer) == ("good", draw.version(answer.query_id, SHARES) or "1")
    selection = place.loop.driver.operator("selection").statistics()
    assert selection["drawn_by_query_total{application=digits}"] == 8.0


def test_an_episode_draws_once_whoever_asks() -> None:
    """Its queries meet one model and version; those without an episode draw for themselves."""
    place = ByPerson(assign="episode")
    for number in range(6):
        met = {who_answered(place.ask(who, episode=f"visit-{number}")) for who in PEOPLE[:4]}
        assert len(met) == 1
    assert len({who_answered(place.ask("ann")) for _ in range(12)}) > 1


def test_a_context_with_a_state_of_its_own_draws_its_version_alone() -> None:
    """Its state would learn from one number; so its arms are drawn by the query."""
    place = ByPerson(per_context=True)
    answers = [place.ask("ann") for _ in range(16)]
    assert {each.decision.chosen for each in answers if each.decision} == {(0,), (1,)}
    assert len({who_answered(each) for each in answers if who_answered(each)[0] == "good"}) == 1


def test_those_who_are_held_out_are_answered_by_the_first_model_and_teach_nothing() -> None:
    """By the version that serves; neither the policy's state nor what is known of versions hears of them."""
    place = ByPerson(holdout=0.4, assign="query")
    held_out = [who for who in PEOPLE if assignment.is_held_out(place.application, who)]
    assert 0 < len(held_out) < len(PEOPLE)
    for who in PEOPLE:
        for _ in range(3):
            answer = place.ask(who)
            assert answer.decision is not None
            if who in held_out:
                assert who_answered(answer) == ("good", "1")
                assert answer.decision[:2] == ((0,), 0)
                assert (answer.decision.state, answer.decision.policy) == (held_out_state("digits"), "single(arm=0)")
                assert answer.decision.propensities == (1.0, 0.0)
    log = place.loop.observations()
    assert {one.context for _, one in log if one.decision.state == held_out_state("digits")} == set(held_out)
    assert all(bool(one.versions) == (one.context not in held_out) for _, one in log if one.decision.chosen == (0,))
    learnt = place.loop.driver.store.states[StateKey(0, "digits")]
    assert learnt is not None
    assert learnt.version == sum(one.context not in held_out for _, one in log)
    assert not replayed(trace_of(place.loop.driver)).differences


@pytest.mark.parametrize(("policy", "parameters"), [("ridge", {"features": 2.0}), ("two_speed", {"items": 3.0})])
def test_a_holdout_is_refused_where_the_policy_itself_answers(policy: str, parameters: dict[str, float]) -> None:
    """The first model has no answer for those who are held out: the application that served goes on serving."""
    wanted = digits(policy=policy, parameters=parameters, holdout=0.1)
    with pytest.raises(PolicyError, match=f"holdout is answered by the first model, and {policy} answers"):
        check_answering(wanted, registry.policy_of(wanted))
    configuration, served = Configuration(CODEC), replace(wanted, holdout=0.0)
    first, then = [
        Record(topics.APPLICATIONS, 0, offset, 0, b"digits", CODEC.encode(each))
        for offset, each in enumerate((served, wanted))
    ]
    configuration.on_record(first)
    with pytest.raises(DecodeError, match="leave it out"):
        configuration.on_record(then)
    assert configuration.applications["digits"].application == served


@pytest.mark.parametrize("policy", ["ridge", "two_speed"])
def test_what_a_ranking_explores_goes_by_the_person_too(policy: str) -> None:
    """Of rows and of items: somebody meets the same first one as long as the draw stands, and people meet all."""
    parameters = {"features": 2.0, "gamma": 1.0} | ({"items": 3.0} if policy == "two_speed" else {})
    wanted = rated(policy=policy, parameters=parameters, per_context=False, span=1.0, loss="given", assign="context")
    loop = Loop({"items": lambda _: Tensor.of(np.zeros(3))}, wanted)
    rows: dict[str, object] = {} if policy == "two_speed" else {"candidates": Tensor.of(np.zeros((3, 2)))}
    met: dict[str, set[str]] = {who: set() for who in PEOPLE}
    for who in PEOPLE * 4:
        query_id = loop.query(None, context=who, **rows)
        loop.driver.run(0.05)
        answer = loop.answer(query_id).answer
        met[who].add(str(answer.numpy()[0] if isinstance(answer, Tensor) else answer))
    assert all(len(firsts) == 1 for firsts in met.values())
    assert set.union(*met.values()) == {"0", "1", "2"}
