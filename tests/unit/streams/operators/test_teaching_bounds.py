"""Who may teach which application, and how much: what the joiner writes down of it, and what is learnt then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas import topics
from schemas.records import Feedback, TeachingBound
from tests.loops import CODEC, Loop, digits

if TYPE_CHECKING:
    from schemas.records import Application

MODELS = {"good": lambda _: 7, "bad": lambda _: 3}


def loop(**changes: object) -> Loop:
    """Return a loop with one application."""
    application: Application = digits(**changes)
    return Loop(MODELS, application, [])


def told(there: Loop, query_id: str, **fields: object) -> None:
    """Send feedback with a name, as the gateway does."""
    feedback = Feedback(query_id, 7, None, there.driver.now_us, **fields)  # type: ignore[arg-type]
    there.driver.produce(topics.FEEDBACK, 0, CODEC.encode(feedback), query_id.encode())
    there.driver.run(1)


def bounds(there: Loop) -> list[TeachingBound | None]:
    """Return how far each observation may teach."""
    return [seen.bound for _, seen in there.observations()]


def asked(there: Loop, **changes: object) -> str:
    """Ask, and wait for the answer."""
    query_id = there.query(**changes)
    there.driver.run(1)
    return query_id


def test_feedback_of_another_application_teaches_nothing_and_the_query_waits_on() -> None:
    """Ids are chosen by clients, so two applications may have the same one; the right feedback still counts."""
    there = loop()
    query_id = asked(there)
    told(there, query_id, application="news", teacher="news-team")
    assert [cause for cause, _ in there.dead(topics.FEEDBACK)] == ["other_application"]
    assert there.observations() == []
    told(there, query_id, application="digits")
    assert [seen.query_id for _, seen in there.observations()] == [query_id]


def test_feedback_that_came_first_is_compared_as_well() -> None:
    """It waits for its prediction with what it says of itself."""
    there = loop()
    told(there, "early", application="news")
    asked(there, query_id="early")
    assert [cause for cause, _ in there.dead(topics.FEEDBACK)] == ["other_application"]
    assert there.observations() == []


def test_without_a_bound_an_observation_says_nothing_of_its_teacher() -> None:
    """It has the bytes that it had."""
    there = loop()
    told(there, asked(there), teacher="web")
    assert bounds(there) == [None]


@pytest.mark.parametrize(
    ("teachers", "names"),
    [((), ["web", "forged", ""]), (("web",), ["web", "", ""])],
)
def test_a_bounded_application_s_observations_name_their_teacher(teachers: tuple[str, ...], names: list[str]) -> None:
    """Where teachers are listed, all others are one, however they call themselves."""
    there = loop(lessons_per_teacher=5, lessons_per_context=2, teachers=teachers)
    for fields in ({"teacher": "web"}, {"teacher": "forged"}, {}):
        told(there, asked(there), **fields)
    assert bounds(there) == [TeachingBound(name, 5, 2) for name in names]


def test_a_default_loss_is_no_teacher_s() -> None:
    """Nobody told it; a context's share of it is bounded all the same."""
    there = loop(lessons_per_teacher=1, lessons_per_context=2, default_loss=0.5, window_s=5.0)
    asked(there, context="ann")
    there.driver.run(30)
    assert bounds(there) == [TeachingBound("", 0, 2)]


def test_a_teacher_that_floods_is_bounded_and_the_others_are_learnt() -> None:
    """Of twenty lessons of one within a minute three teach; another teacher's count as ever."""
    there = loop(lessons_per_teacher=3)
    for number in range(20):
        told(there, asked(there), teacher="flood")
        if number % 10 == 0:
            told(there, asked(there), teacher="web")
    statistics = there.driver.operator("learner").statistics()
    minutes = {at_us // 60_000_000 for at_us, _ in there.observations()}
    assert len(there.observations()) == 22
    assert statistics["applied_total{application=digits}"] <= 3 * len(minutes) + 2
    cut = statistics["bounded_lessons_total{application=digits,by=teacher}"]
    assert cut + statistics["applied_total{application=digits}"] == 22
