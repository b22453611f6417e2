"""What is sent again goes where it was, once; what cannot help stays, and says why."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Decision, Feedback, JoinStatus, Observation, Observations, Query, Tensor
from streams.dead_letters.letter import ATTEMPTS, Letter, Receipt
from streams.dead_letters.redriving import RedriveRefusal, Redriving, application_of_letter
from streams.mapping.kernel import TopicMapper
from streams.operators.contract import Emit, Record
from streams.topology import partition_of

NOW_US = 1_700_000_000_000_000
CODEC = Codec()
ROW = Tensor.of(np.ones(2, dtype=np.float32))
MAPPING = {"from": {"topic": "orders", "id": "id", "input": ["amount"]}}


def redriving(**changes: Any) -> Redriving:
    """Return who decides, with one application that maps a topic."""
    mapper = TopicMapper(CODEC, 4, {})
    application = Application("fraud", ("forest",), slo_ms=100, mapping=json.dumps(MAPPING))
    mapper.on_records([Record(topics.APPLICATIONS, 0, 0, 0, b"fraud", CODEC.encode(application))], 0)
    return replace(
        Redriving(CODEC, {"queries": 4, "feedback": 4, "observations": 4}, mapper, {"fraud": 100.0}), **changes
    )


def letter(source: str = topics.FEEDBACK, value: bytes | None = None, **changes: Any) -> Letter:
    """Return a letter of feedback that nothing has been done with."""
    value = CODEC.encode(Feedback("q-1", label=1)) if value is None else value
    told = Letter(
        f"{source}.dlq", 3, NOW_US, "unmatched", "no such query", source, 2, 17, NOW_US, "joiner", b"k", value, (), 0, 0
    )
    return replace(told, **changes)


def reason(decided: Emit | RedriveRefusal) -> str:
    """Return why a letter is not sent again."""
    assert isinstance(decided, RedriveRefusal)
    return decided.reason


def test_a_record_goes_back_to_its_partition_as_it_was_with_a_count() -> None:
    """Key, bytes and headers are the record's own."""
    its = letter(headers=(("traceparent", b"00"), (ATTEMPTS, b"1")), attempts=1)
    assert redriving().decide(its, {}, NOW_US) == Emit(
        topics.FEEDBACK, 2, b"k", its.value or b"", (), (("traceparent", b"00"), (ATTEMPTS, b"2"))
    )


def test_a_record_whose_partition_is_not_known_goes_where_its_key_belongs() -> None:
    """One without a key, either, stays."""
    sent = redriving().decide(letter(partition=None), {}, NOW_US)
    assert isinstance(sent, Emit)
    assert sent.partition == partition_of(b"k", 4)
    assert "partition" in reason(redriving().decide(letter(partition=None, key=None), {}, NOW_US))


def test_a_letter_with_a_receipt_is_not_sent_again() -> None:
    """Of its own topic; a receipt in another one says nothing of it."""
    receipt = Receipt(((1, 3),), NOW_US)
    assert "already" in reason(redriving().decide(letter(), {"feedback.dlq": (receipt,)}, NOW_US))
    assert isinstance(redriving().decide(letter(), {"queries.dlq": (receipt,)}, NOW_US), Emit)


def test_what_comes_back_is_sent_so_often_and_no_more() -> None:
    """A loop ends."""
    its, sent = letter(), 0
    while isinstance(made := redriving(attempts=3).decide(its, {}, NOW_US), Emit):
        sent += 1
        its = letter(headers=made.headers, attempts=int(dict(made.headers)[ATTEMPTS]))
    assert sent == 3
    assert "came back" in made.reason


@pytest.mark.parametrize(
    ("its", "why"),
    [
        (letter(cut=100_000), "part"),
        (letter(cause="late"), "time for feedback"),
        (letter(cause="ambiguous_id"), "two applications"),
        (letter(value=b"\x00rubbish"), "still cannot be read"),
        (letter(topics.APPLICATIONS), "skysail app"),
        (letter(topics.MODEL_PREDICTIONS), "has been answered"),
        (letter("models.forest.queries"), "time of its queries is over"),
    ],
)
def test_what_would_not_help_stays_and_says_why(its: Letter, why: str) -> None:
    """Before anything is sent."""
    assert why in reason(redriving().decide(its, {}, NOW_US))


def test_a_query_whose_time_is_over_is_asked_anew_only_where_that_is_wished() -> None:
    """Its id stays, so that its answer is one."""
    old = Query("q", "fraud", ROW, sent_us=NOW_US - 200_000)
    its = letter(topics.QUERIES, CODEC.encode(old), cause="bug")
    assert "--anew" in reason(redriving().decide(its, {}, NOW_US))
    sent = redriving(anew=True).decide(its, {}, NOW_US)
    assert isinstance(sent, Emit)
    assert CODEC.decode(Query, sent.value) == old._replace(sent_us=NOW_US)
    in_time = letter(topics.QUERIES, CODEC.encode(old._replace(slo_ms=500.0)), cause="bug")
    assert isinstance(redriving().decide(in_time, {}, NOW_US), Emit)


def test_observations_whose_record_was_learnt_in_part_are_not_taught_twice() -> None:
    """One alone was not."""
    decision = Decision((0,), 0, "fraud", "exp3", ("forest",), (1.0,))
    one = Observation("q", "fraud", None, decision, (1.0,), 1.0, 1, JoinStatus.JOINED, NOW_US, NOW_US)
    both = CODEC.encode(Observations((one, one._replace(query_id="p"))))
    assert "learnt" in reason(redriving().decide(letter(topics.OBSERVATIONS, both, cause="bug"), {}, NOW_US))
    alone = letter(topics.OBSERVATIONS, CODEC.encode(one), cause="bug")
    assert isinstance(redriving().decide(alone, {}, NOW_US), Emit)
    assert application_of_letter(alone, CODEC) == "fraud"


def test_an_order_that_can_be_mapped_now_is_asked_and_its_topic_is_left_alone() -> None:
    """Its id comes of its own place, as it would have."""
    its = letter("/orders", b'{"id": "o-1", "amount": 3}', topic="mapping.dlq", cause="unmapped")
    sent = redriving().decide(its, {}, NOW_US)
    assert isinstance(sent, Emit)
    assert sent.topic == topics.QUERIES
    asked = CODEC.decode(Query, sent.value)
    assert (asked.query_id, asked.application) == ("o-1", "fraud")
    assert (ATTEMPTS, b"1") in sent.headers
    still = replace(its, value=b'{"id": "o-1"}')
    assert "still cannot be mapped" in reason(redriving().decide(still, {}, NOW_US))
    assert "no application" in reason(redriving().decide(replace(its, source="/others"), {}, NOW_US))
