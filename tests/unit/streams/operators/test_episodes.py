"""Feedback on an episode is about all its answers, each of which gets the whole of it."""

from __future__ import annotations

from random import Random

import pytest

from schemas import topics
from schemas.records import KeyedFeedback
from streams.operators.contract import StateKey
from streams.operators.join.keyed import MOST_OF_EPISODE
from streams.testing import Crash
from tests.loops import CODEC, Loop, digits
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of

WITHIN_US = 600_000_000


def visits(*faults: object, columns: bool = False, **changes: object) -> Loop:
    """Return a loop whose application has episodes."""
    packed = Random(3) if columns else None
    application = digits(**({"window_s": 60.0, "episodes": True, "loss": "given"} | changes))
    models = {"good": lambda _: 7, "bad": lambda _: 3}
    return Loop(models, application, faults, packed=packed, columns=columns)  # type: ignore[arg-type]


def came_to(loop: Loop, episode: str, loss: float, *, within_us: int = WITHIN_US) -> None:
    """Tell what an episode came to."""
    told = KeyedFeedback("", "digits", "ann", within_us, None, loss, loop.driver.now_us, episode=episode)
    loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(told), b"ann")


def learnt(loop: Loop) -> dict[str, float | None]:
    """Return what was learnt about each query."""
    found = [(seen.query_id, seen.loss) for _, seen in loop.observations()]
    assert len(found) == len(dict(found))
    return dict(found)


@pytest.mark.parametrize("columns", [False, True])
def test_all_answers_of_the_episode_are_meant_and_no_others(*, columns: bool) -> None:
    """Those of another episode, or of none, learn nothing; both ways of joining take it, and a replay agrees."""
    loop = visits(columns=columns)
    for query_id, episode in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("none", ""), ("a3", "a")):
        loop.query(query_id, context="ann", episode=episode)
        loop.driver.run(1)
    came_to(loop, "a", 0.25)
    loop.driver.run(5)
    assert learnt(loop) == {"a1": 0.25, "a2": 0.25, "a3": 0.25}
    assert {seen.episode for _, seen in loop.observations()} == {"a"}
    if not columns:
        assert not replayed(trace_of(loop.driver)).differences


def test_what_was_asked_later_or_too_long_ago_is_not_meant() -> None:
    """By the time that is told, and how old an answer may be."""
    loop = visits()
    for query_id in ("old", "young"):
        loop.query(query_id, context="ann", episode="a")
        loop.driver.run(10)
    came_to(loop, "a", 0.5, within_us=15_000_000)
    loop.driver.run(0.5)
    loop.query("later", context="ann", episode="a")
    loop.driver.run(5)
    assert learnt(loop) == {"young": 0.5}


def test_an_answer_whose_window_has_ended_is_not_meant() -> None:
    """It has waited for a minute."""
    loop = visits()
    loop.query("a1", context="ann", episode="a")
    loop.driver.run(70)
    loop.query("a2", context="ann", episode="a")
    loop.driver.run(1)
    came_to(loop, "a", 1.0)
    loop.driver.run(5)
    assert learnt(loop) == {"a2": 1.0}


@pytest.mark.parametrize("at_ms", range(3_000, 5_500, 350))
def test_a_joiner_that_ends_on_the_way_teaches_each_once(at_ms: int) -> None:
    """Whichever of its effects it had not performed: what is observed again is a copy, and no lesson."""
    loop = visits(Crash(at_ms * 1_000, "joiner"))
    for query_id in ("a1", "a2", "a3"):
        loop.query(query_id, context="ann", episode="a")
        loop.driver.run(1)
    came_to(loop, "a", 0.75)
    loop.driver.run(20)
    assert {(seen.query_id, seen.loss) for _, seen in loop.observations()} == {("a1", 0.75), ("a2", 0.75), ("a3", 0.75)}
    learnt_by = loop.driver.store.states[StateKey(0, "digits")]
    assert learnt_by is not None
    assert learnt_by.version == 3
    assert not loop.dead(topics.FEEDBACK)


def test_without_episodes_such_feedback_is_a_dead_letter() -> None:
    """Which says what to set."""
    loop = visits(episodes=False)
    loop.query("a1", context="ann", episode="a")
    loop.driver.run(1)
    came_to(loop, "a", 1.0)
    loop.driver.run(5)
    assert [cause for cause, _ in loop.dead(topics.FEEDBACK)] == ["not_keyed"]


def visit_of(answers: int) -> Loop:
    """Return a loop whose one visit has so many answers, and feedback on it."""
    loop = visits()
    for number in range(answers):
        loop.query(f"a{number}", context="ann", episode="a")
        if number % 50 == 0:
            loop.driver.run(0.1)
    loop.driver.run(1)
    came_to(loop, "a", 0.25)
    loop.driver.run(5)
    return loop


def test_an_episode_of_a_thousand_answers_is_taken_and_a_longer_one_refused_as_a_whole() -> None:
    """One record becomes no more than that, and a dead letter says how many there were."""
    assert len(learnt(visit_of(MOST_OF_EPISODE))) == MOST_OF_EPISODE
    loop = visit_of(MOST_OF_EPISODE + 1)
    assert not learnt(loop)
    assert len(loop.driver.read(topics.FEEDBACK)) == 1
    ((cause, _),) = loop.dead(topics.FEEDBACK)
    assert cause == "long_episode"
