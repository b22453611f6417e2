"""Feedback on any place of a ranking, in the whole loop in virtual time: what it teaches, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies import registry
from policies.errors import PolicyError
from schemas import topics
from schemas.errors import DecodeError, SchemaError
from schemas.records import Feedback, Tensor
from schemas.told import as_places
from streams.operators.configuration import check, check_ranking
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.story.words import lines
from tests.loops import CODEC, Loop, digits
from tests.unit.streams.operators.test_answering import computed, rated
from tests.unit.streams.operators.test_candidates_by_id import FILMS, KNOWN, WINDOW_US, stored
from tests.unit.streams.operators.test_two_speed import cold
from tests.unit.streams.operators.test_two_speed import served as items
from tests.unit.streams.story import test_stories

if TYPE_CHECKING:
    from schemas.records import Application, PolicyState

SEEN = (1.0, 0.5, 0.25)
EARNED = {"features": 2.0, "low": 0.0, "high": 5.0, "gamma": 0.0}
ROWS = Tensor.of(np.array([KNOWN[f"films/{name}"] for name in "abcd"]))


def ranking(**changes: object) -> Loop:
    """Return a loop that ranks films, of which each place that is looked at may teach."""
    fields: dict[str, object] = {"sources": (FILMS,), "parameters": EARNED, "examination": SEEN}
    return Loop({"items": computed}, rated(**(fields | changes)), features=stored)


def asked(loop: Loop, candidates: Tensor | tuple[str, ...] = tuple("abcd"), top: int = 4, **changes: object) -> str:
    """Ask for the best, and wait for the answer."""
    query_id = loop.query(context="ann", candidates=candidates, top=top, **changes)
    loop.driver.run(0.2)
    return query_id


def told(loop: Loop, query_id: str, *places: dict[str, object]) -> None:
    """Tell of places, and wait until they have taught."""
    record = Feedback(query_id, sent_us=loop.driver.now_us, places=as_places(places))
    loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(record), query_id.encode())
    loop.driver.run(0.5)


def refused(loop: Loop) -> list[tuple[str, str]]:
    """Return cause and message of each dead letter of feedback."""
    found = [dict(record.headers) for record in loop.driver.read(topics.dead_letters(topics.FEEDBACK))]
    return [(headers["skysail.error.cause"].decode(), headers["skysail.error.message"].decode()) for headers in found]


def states(loop: Loop) -> dict[str, PolicyState]:
    """Return what was learnt; it is the fold of the log, whatever was told."""
    found = fold(loop.observations(), WINDOW_US)
    assert {key: state for key, state in loop.driver.store.states.items() if state is not None} == {
        StateKey(0, name): state for name, state in found.items()
    }
    return found


@pytest.mark.parametrize("candidates", [tuple("abcd"), ROWS])
def test_feedback_on_a_place_teaches_of_the_candidate_that_stood_there(candidates: Tensor | tuple[str, ...]) -> None:
    """By its features, which the log has; the candidates may be ids or rows, and replay looks nothing up."""
    loop = ranking()
    query_id = asked(loop, candidates)
    answer = loop.answer(query_id).answer
    assert isinstance(answer, Tensor)
    third = answer.numpy().tolist()[2]
    told(loop, query_id, {"position": 2, "label": 4.0})
    ((_, seen),) = loop.observations()
    (place,) = seen.places
    assert (place.position, place.place, place.label, place.examined) == (2, third, 4.0, 0.25)
    assert place.features == Tensor.of(ROWS.numpy()[third])
    assert (seen.loss, seen.losses, seen.label) == (None, (None,), None)
    assert states(loop)["digits/ann"].version == 1
    asked(loop, candidates)  # reads the latest state
    before, after = (loop.answer(each).outputs[0].answer for each in (query_id, asked(loop, candidates)))
    assert isinstance(after, float)
    assert (before, after > 0.5) == (0.0, True)


def test_several_places_are_told_at_once_by_position_or_id() -> None:
    """The first as if it were told alone; all of it is one observation."""
    loop = ranking()
    query_id = asked(loop)
    first, second, *_ = loop.answer(query_id).best
    told(loop, query_id, {"item": second, "label": 0.0}, {"item": first, "label": 5.0})
    ((_, seen),) = loop.observations()
    assert (seen.label, [(one.position, one.label) for one in seen.places]) == (5.0, [(1, 0.0)])
    asked(loop)  # reads the latest state
    assert loop.answer(asked(loop)).best[0] == first
    states(loop)


def test_feedback_on_the_first_place_teaches_what_it_did_before() -> None:
    """The same bits, whether it names no place, the first place, or the application has no examination."""
    found = []
    for examination, by_place in ((), False), (SEEN, False), (SEEN, True):
        loop = ranking(examination=examination)
        query_id = asked(loop)
        if by_place:
            told(loop, query_id, {"position": 0, "label": 4.0})
        else:
            loop.feedback(query_id, 4.0)
            loop.driver.run(0.5)
        found.append((states(loop), CODEC.encode(loop.observations()[0][1]._replace(observed_us=0, query_id="q"))))
    assert found[0] == found[1] == found[2]


def test_a_place_that_nobody_looks_at_teaches_nothing() -> None:
    """It lies beyond the examination, or its share is 0; nothing else was told, so there is no observation."""
    loop = ranking(examination=(1.0, 0.0))
    for position in (1, 3):
        told(loop, asked(loop), {"position": position, "label": 5.0})
    assert loop.observations() == []
    assert refused(loop) == []


def test_an_item_of_the_models_learns_at_its_place() -> None:
    """Only its own weights move."""
    application = items(examination=(1.0, 0.5), parameters={"features": 1.0, "items": 3.0, "gamma": 0.0})
    loop = Loop({"cold": cold}, application)
    query_id = loop.query(context="ann", candidates=("0", "1", "2"), top=2)
    loop.driver.run(0.2)
    second = int(loop.answer(query_id).best[1])
    told(loop, query_id, {"position": 1, "loss": 0.0})
    ((_, seen),) = loop.observations()
    assert [(one.item, one.loss, one.examined) for one in seen.places] == [(second, 0.0, 0.5)]
    values = np.array(states(loop)["digits"].values).reshape(3, 2, 2)
    moved = [item for item in range(3) if values[item, 0].any()]
    assert moved == [second]
    assert values[second, 0, 0] > 0.0


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([{"position": 4, "label": 1.0}], "the answer has 4 places"),
        ([{"item": "z", "label": 1.0}], "'z' is not in the answer"),
        ([{"position": 1, "label": 1.0}, {"position": 1, "label": 1.0}], "told twice"),
        ([{"position": 1, "loss": 1.0}], "a label that is a number"),
        ([{"position": 1, "label": "good"}], "a label that is a number"),
    ],
)
def test_what_does_not_fit_the_answer_is_a_dead_letter(places: list[dict[str, object]], message: str) -> None:
    """It says why, and the prediction waits for better feedback."""
    loop = ranking()
    query_id = asked(loop)
    told(loop, query_id, *places)
    ((cause, text),) = refused(loop)
    assert cause == "invalid_feedback"
    assert message in text
    told(loop, query_id, {"position": 0, "label": 1.0})
    assert len(loop.observations()) == 1


def test_places_of_what_is_no_ranking_or_without_examination_are_dead_letters() -> None:
    """Nobody knows what was there, or how likely it was looked at."""
    loop = ranking(examination=())
    told(loop, asked(loop), {"position": 1, "label": 1.0})
    other = ranking()
    query_id = other.query(context="ann")
    other.driver.run(0.2)
    told(other, query_id, {"position": 0, "label": 1.0})
    found = [text for each in (loop, other) for _, text in refused(each)]
    assert "needs the application's examination" in found[0]
    assert "is none" in found[1]


@pytest.mark.parametrize(
    "places",
    [
        [{"label": 1}], [{"position": 0, "item": "a", "label": 1}], [{"position": -1, "label": 1}],
        [{"position": 1}], [{"position": 1, "label": 1, "loss": 1}], [{"position": 1, "loss": 1.5}],
        [{"position": True, "loss": 1}], [{"position": 1, "los": 1}], [{"item": "", "loss": 1}], [7],
    ],
)  # fmt: skip
def test_what_is_told_of_places_is_checked_where_it_is_told(places: list[dict[str, object]]) -> None:
    """Before it is sent."""
    with pytest.raises(SchemaError, match="places"):
        as_places(places)


def test_an_examination_begins_with_1_and_has_shares() -> None:
    """What earns something unseen, and policies that learn from no places, are refused with what to do."""
    for wrong in ((0.5,), (1.0, 1.5), (1.0, -0.1), (1.0,) * 65):
        with pytest.raises(DecodeError, match="examination"):
            check(rated(examination=wrong))
    for application, message in (
        (digits(examination=SEEN), "learns from no places"),
        (rated(examination=SEEN), "make low at most 0"),
    ):
        with pytest.raises(PolicyError, match=message):
            _ranking(application)
    _ranking(rated(examination=(1.0, 1.0)))


def _ranking(application: Application) -> None:
    check_ranking(application, registry.policy_of(application))


def test_a_prediction_without_examination_keeps_no_rows_of_the_query() -> None:
    """Their bytes stay as they were."""
    loop = ranking(examination=())
    assert loop.answer(asked(loop, ROWS)).ranked is None


def test_the_story_of_a_ranking_tells_its_places() -> None:
    """What was told of each, and as how often looked at it teaches."""
    loop = ranking()
    query_id = asked(loop)
    told(loop, query_id, {"position": 0, "label": 0.0}, {"position": 2, "label": 1.0})
    found = [*lines(test_stories.told(loop, query_id))]
    assert any(line.startswith("feedback   place 0: label 0.0, place 2: label 1.0, after") for line in found)
    assert any(line.endswith("teaches as looked at by 25%") for line in found)
