"""Tests of dead letters: the copy and its headers."""

from __future__ import annotations

from typing import Any

import pytest

from streams.operators.contract import DeadLetter, Emit, Position, Record
from streams.runtime.errors import MisconfiguredError, RecordRefusedError
from streams.runtime.ports import size_of
from streams.runtime.role.dead_letters import CAUSE_BYTES, MESSAGE_BYTES, TRUNCATED_BYTES, DeadLetters

RECORD = Record("queries", 3, 17, 1_000_123, b"\xffkey", b"\x00\xff garbage", (("traceparent", b"00-ab"),))
LETTERS = DeadLetters("selection", "0.1.0")


def headers(emit: Emit) -> dict[str, bytes]:
    """Return the headers without their common prefix."""
    return {name.removeprefix("skysail.error."): value for name, value in emit.headers}


def test_key_and_bytes_are_untouched() -> None:
    """The copy can be put back as it was; its own headers come first."""
    emit = LETTERS.emit(DeadLetter(RECORD, "undecodable", "unknown schema id"))
    assert emit[:4] == ("queries.dlq", 0, RECORD.key, RECORD.value)
    assert emit.headers[0] == ("traceparent", b"00-ab")


def test_the_headers_say_why_and_where_from() -> None:
    """Everything needed to find the source and to group by cause."""
    emit = LETTERS.emit(DeadLetter(RECORD, "undecodable", "unknown schema id"))
    assert headers(emit) == {
        "traceparent": b"00-ab",
        "cause": b"undecodable",
        "message": b"unknown schema id",
        "group": b"selection",
        "version": b"0.1.0",
        "topic": b"queries",
        "partition": b"3",
        "offset": b"17",
        "timestamp": b"1000123",
    }


def test_the_source_is_complete_with_its_acknowledgement() -> None:
    """The letter completes the refused record, nothing else does."""
    assert LETTERS.emit(DeadLetter(RECORD, "late", "")).completes == (RECORD.position,)


def test_a_long_message_is_cut() -> None:
    """An exception's text does not make a small record a large one."""
    found = headers(LETTERS.emit(DeadLetter(RECORD, "c" * 5_000, "m" * 500_000)))
    assert (len(found["cause"]), len(found["message"])) == (CAUSE_BYTES, MESSAGE_BYTES)


def test_a_null_value_is_marked() -> None:
    """An empty copy of a null value can be told from an empty value."""
    emit = LETTERS.emit(DeadLetter(RECORD._replace(value=None), "undecodable", ""))
    assert (emit.value, headers(emit)["null"]) == (b"", b"value")


def test_a_record_that_cannot_be_produced_leaves_its_beginning() -> None:
    """Its sources are completed by what fits: the first bytes and the size."""
    position = Position("queries", 0, 1)
    emit = LETTERS.too_large(Emit("predictions", 2, b"k", b"v" * 3_000_000, (position,), (("small", b"h"),)))
    assert emit.topic == "predictions.dlq"
    assert emit.partition == 0
    assert len(emit.value) == TRUNCATED_BYTES
    assert emit.completes == (position,)
    assert headers(emit)["truncated"] == b"3000000"
    assert headers(emit)["small"] == b"h"


def test_a_record_that_is_refused_for_good_is_kept_whole_with_its_cause() -> None:
    """Unlike one that is too large, it fits."""
    position = Position("queries", 0, 1)
    fault = RecordRefusedError("no key on a compacted topic")
    emit = LETTERS.refused(Emit("predictions", 2, b"k", b"value", (position,), (("traceparent", b"00-ab"),)), fault)
    assert emit[:5] == ("predictions.dlq", 0, b"k", b"value", (position,))
    assert headers(emit)["cause"] == b"refused"
    assert b"no key on a compacted topic" in headers(emit)["message"]
    assert headers(emit)["traceparent"] == b"00-ab"


def test_a_copy_that_is_too_large_is_cut_in_the_same_topic() -> None:
    """A dead letter of a dead letter goes nowhere else, and keeps its first cause."""
    copy = LETTERS.emit(DeadLetter(RECORD._replace(value=b"v" * 3_000_000), "undecodable", ""))
    emit = LETTERS.too_large(copy)
    assert emit.topic == "queries.dlq"
    assert [value for name, value in emit.headers if name.endswith("cause")] == [b"undecodable", b"too_large"]


BIG = b"x" * 2_000_000
# Headers that look like ours, of senders who want to end the role that writes the dead letter.
FORGED = (("skysail.error.message", BIG), ("skysail.error.other", BIG), ("skysail.error.truncated", b"1"))


@pytest.mark.parametrize("headers_", [(), (("big", BIG),), FORGED, FORGED[::-1], FORGED[2:], (("none", None),) * 99])
@pytest.mark.parametrize("value", [b"", b"v", BIG, None])
@pytest.mark.parametrize("key", [None, b"k", BIG])
def test_whatever_is_too_large_fits_after_a_few_cuts(key: bytes | None, value: bytes | None, headers_: Any) -> None:
    """Value, key, headers: the last cut leaves some KiB, and the cause and where it came from."""
    emit = LETTERS.emit(
        DeadLetter(Record("queries", 3, 17, 1_000_123, key, value, headers_), "undecodable", "m" * 9_999)
    )
    left = _refused_again_and_again(emit)
    assert len(left) <= 5
    assert {each.topic for each in left} == {"queries.dlq"}
    assert size_of(left[-1]) < 8 * 1024
    assert headers(left[-1])["topic"] == b"queries"
    causes = [text for name, text in left[-1].headers if name == "skysail.error.cause"]
    assert causes == [b"undecodable", b"too_large"][: len(left)]


def _refused_again_and_again(emit: Emit) -> list[Emit]:
    """Return what was left of it each time, until nothing more could be cut."""
    left = [emit]
    try:
        while True:
            left.append(LETTERS.too_large(left[-1]))
    except MisconfiguredError:
        return left


@pytest.mark.parametrize("headers_", [(), (("big", BIG),), FORGED, FORGED[::-1], FORGED[2:]])
def test_what_is_too_large_and_no_dead_letter_becomes_one(headers_: Any) -> None:
    """Also where its headers, a client's, say that it is one."""
    emit = LETTERS.too_large(Emit("predictions", 2, BIG, BIG, (), headers_))
    assert (emit.topic, emit.partition, headers(emit)["truncated"]) == ("predictions.dlq", 0, b"2000000")


def test_as_little_is_cut_as_can_be() -> None:
    """Value first, then the key, then what others put into the headers."""
    record = RECORD._replace(key=BIG, value=BIG, headers=(("traceparent", b"00-ab"),))
    first = LETTERS.too_large(LETTERS.emit(DeadLetter(record, "undecodable", "")))
    assert (len(first.value), len(first.key or b"")) == (TRUNCATED_BYTES, len(BIG))
    second = LETTERS.too_large(first)
    assert len(second.key or b"") == TRUNCATED_BYTES
    assert headers(second)["traceparent"] == b"00-ab"
    third = LETTERS.too_large(second)
    assert len(third.value) == TRUNCATED_BYTES
    assert "traceparent" not in headers(third)
