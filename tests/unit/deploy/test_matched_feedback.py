"""Which of the last queries feedback is about, as it is shown before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.diagnose.mapped_topics import MappedRecord, made_of
from deploy.diagnose.matched_feedback import AskedQueries
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application
from streams.mapping.kernel import TopicMapper
from streams.operators.contract import Emit, Record

CODEC = Codec()
S = 1_000_000
TOLD: dict[str, Any] = {"truth": 1, "price": 2.5, "shown": [{"position": 0, "loss": 1}]}
MAPPING: dict[str, Any] = {
    "from": {"topic": "orders", "id": "id", "key": "user", "input": ["amount"]},
    "feedback": [
        {"topic": "truths", "id": "id", "key": "user", "label": "truth"},
        {"topic": "revised", "id": "id", "key": "user", "label": "truth", "replaces": True},
        {"topic": "sales", "id": "id", "key": "user", "metric": "revenue", "value": "price"},
        {"topic": "views", "id": "id", "key": "user", "places": "shown"},
        {"topic": "clicks", "key": "user", "within": "30s", "loss": "0 if clicked else 1", "sent": "at"},
    ],
}


def mapped(topic: str, row: dict[str, Any], at_s: int) -> MappedRecord:
    """Return what the role's kernel makes of a row."""
    kernel = TopicMapper(CODEC, 4, {})
    application = Application("fraud", ("forest",), mapping=json.dumps(MAPPING))
    kernel.on_records([Record(topics.APPLICATIONS, 0, 0, 0, b"fraud", CODEC.encode(application))], 0)
    record = Record(topics.outside(topic), 0, 0, at_s * S, None, json.dumps(row).encode())
    (emit,) = kernel.on_records([record], at_s * S)
    assert isinstance(emit, Emit)
    return MappedRecord(record, made_of(emit, CODEC), emit.key or b"")


ASKED = AskedQueries(
    [
        mapped("orders", {"id": "a-1", "user": "ann", "amount": 1}, 1_000),
        mapped("orders", {"id": "b-1", "user": "bob", "amount": 1}, 1_005),
        mapped("orders", {"id": "a-2", "user": "ann", "amount": 1}, 1_010),
    ]
)


@pytest.mark.parametrize("topic", ["truths", "revised", "sales", "views"])
@pytest.mark.parametrize(
    ("row", "at_s", "found", "words"),
    [
        ({"id": "a-1", "user": "ann"}, 1_012, "a-1", "12.0 s later"),
        ({"id": "a-1", "user": "ann"}, 999, "a-1", "1.0 s earlier"),
        ({"id": "a-1", "user": "bob"}, 1_012, None, "its query has key ann, not bob"),
        ({"id": "c-1", "user": "ann"}, 1_012, None, "none of the last 3"),
    ],
)
def test_feedback_by_id_finds_its_query_under_the_same_key(
    topic: str, row: dict[str, Any], at_s: int, found: str | None, words: str
) -> None:
    """Under another key the joiner would look for it in another partition."""
    assert ASKED.match(mapped(topic, row | TOLD, at_s)) == (found, words)


@pytest.mark.parametrize(
    ("user", "at_s", "found", "words"),
    [
        ("ann", 1_012, "a-2", "a-2, 2.0 s later"),
        ("ann", 1_009, "a-1", "a-1, 9.0 s later"),
        ("bob", 1_035, "b-1", "b-1, 30.0 s later"),
        ("bob", 1_036, None, "b-1, 31.0 s later: too old"),
        ("ann", 999, None, "none of that key before, of the last 3"),
        ("eve", 1_012, None, "none of that key before, of the last 3"),
    ],
)
def test_feedback_by_key_finds_the_last_query_that_is_young_enough(
    user: str, at_s: int, found: str | None, words: str
) -> None:
    """By when it was told, not by when it was written."""
    row = {"user": user, "clicked": True, "at": at_s}
    assert ASKED.match(mapped("clicks", row, 2_000)) == (found, words)
