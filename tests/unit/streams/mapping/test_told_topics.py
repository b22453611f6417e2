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


def heard(loop: Loop, row: dict[str, Any], **feedback: object) -> None:
    """Map a record of another topic for the loop's application, and let the loop take what comes of it."""
    made = TopicMapper(CODEC, 1, {})
    mapping = json.dumps({"feedback": {"topic": "heard", "id": "id", **feedback}})
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
