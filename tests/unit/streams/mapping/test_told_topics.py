"""What topics of one's own tell of answers by their ids, in the whole loop in virtual time: places, and metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from schemas import topics
from schemas.records import Application
from streams.mapping.kernel import TopicMapper
from streams.operators.contract import Emit, Record
from tests.loops import CODEC
from tests.unit.streams.operators.test_measured import measuring, values
from tests.unit.streams.operators.test_places import asked, ranking, states

if TYPE_CHECKING:
    from tests.loops import Loop


def mapped(**feedback: object) -> str:
    """Return a mapping; feedback is by id, unless a key says whose last answer it is about."""
    return json.dumps({"feedback": {"topic": "heard", **({} if "key" in feedback else {"id": "id"}), **feedback}})


def heard(loop: Loop, row: dict[str, Any], **feedback: object) -> None:
    """Map a record of another topic for the loop's application, and let the loop take what comes of it."""
    made = TopicMapper(CODEC, 1, {})
    mapping = mapped(**feedback)
    application = CODEC.encode(Application("digits", ("any",), mapping=mapping))
    made.on_records([Record(topics.APPLICATIONS, 0, 0, 0, b"digits", application)], 0)
    now_us = loop.driver.now_us
    (emit,) = made.on_records([Record("/heard", 0, 0, now_us, None, json.dumps(row).encode())], now_us)
    assert isinstance(emit, Emit)
    loop.driver.produce(emit.topic, emit.partition, emit.value, emit.key)
    loop.driver.run(0.5)


def test_each_place_of_a_ranking_that_a_record_tells_of_teaches() -> None:
    """The first by its label, the others each by their own; states are the fold of the log."""
    loop = ranking()
    query_id = asked(loop)
    shown = [{"position": 0, "label": 0.0}, {"item": "c", "label": 4.0}]
    heard(loop, {"id": query_id, "shown": shown}, places="shown")
    ((_, seen),) = loop.observations()
    assert seen.label == 0.0  # of the first place
    assert [("abcd"[one.place], one.label) for one in seen.places] == [("c", 4.0)]
    assert states(loop)["digits/ann"].version == 1


def test_a_metric_that_a_record_tells_is_measured() -> None:
    """As if the application had told it."""
    loop = measuring()
    loop.query("q1")
    loop.driver.run(1.0)
    heard(loop, {"id": "q1", "price": 12.5, "count": 2}, metric="sold", value="price * count")
    loop.driver.run(1.0)
    assert ("q1", "sold", 25.0, 0.75) in values(loop)
    assert not loop.dead(topics.FEEDBACK)


def test_a_metric_is_told_of_the_last_answer_of_a_key() -> None:
    """Who buys knows no query: what was bought is measured for what they were shown last, once."""
    told = {"key": "user", "within": "20s", "metric": "sold", "value": "price"}
    loop = measuring(mapping=mapped(**told))
    for query_id in ("q1", "q2"):
        loop.query(query_id, context="ann")
        loop.driver.run(1.0)
    heard(loop, {"user": "ann", "price": 25.0}, **told)
    loop.driver.run(5.0)
    heard(loop, {"user": "ann", "price": 99.0}, **told)
    loop.driver.run(5.0)
    assert [one for one in values(loop) if one[1] == "sold"] == [("q2", "sold", 25.0, 0.75)]
    assert not loop.dead(topics.FEEDBACK)


def test_places_are_told_of_the_last_ranking_of_a_key() -> None:
    """As by its id."""
    told = {"key": "user", "within": "20s", "places": "shown"}
    loop = ranking(mapping=mapped(**told))
    asked(loop)
    heard(loop, {"user": "ann", "shown": [{"position": 0, "label": 0.0}, {"item": "c", "label": 4.0}]}, **told)
    loop.driver.run(5.0)
    ((_, seen),) = loop.observations()
    assert (seen.label, [("abcd"[one.place], one.label) for one in seen.places]) == (0.0, [("c", 4.0)])


def test_places_that_are_corrected_teach_as_they_were_told_last() -> None:
    """What says nothing any more takes them back."""
    for last, labels in (([{"position": 0, "label": 4.0}], [4.0]), (None, [])):
        loop = ranking(mapping=mapped(places="shown", replaces=True), window_s=20.0)
        query_id = asked(loop)
        for shown in ([{"position": 0, "label": 0.0}, {"item": "c", "label": 4.0}], last):
            heard(loop, {"id": query_id, "shown": shown}, places="shown", replaces=True)
        loop.driver.run(60.0)
        assert [seen.label for _, seen in loop.observations()] == labels
        assert all(seen.places == () for _, seen in loop.observations())
