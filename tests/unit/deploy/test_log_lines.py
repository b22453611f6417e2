"""How commands show the log, of which a record may hold many observations."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deploy.cli.feedback import CAUSE, MESSAGE, Fate, fate_in
from deploy.cli.tail import shown
from schemas import topics
from schemas.codec import Codec
from schemas.records import Feedback, KeyedFeedback, Observation, Observations
from streams.operators.contract import Record
from tests.samples import SEEN

if TYPE_CHECKING:
    from confluent_kafka import Message

CODEC = Codec()
LOG = tuple(SEEN._replace(query_id=name) for name in ("a", "b"))


class Sent:
    """A message as librdkafka gives it."""

    def __init__(self, value: bytes | None) -> None:
        """Take the bytes."""
        self._value = value

    def partition(self) -> int:
        """Return the partition."""
        return 1

    def offset(self) -> int:
        """Return the offset."""
        return 7

    def timestamp(self) -> tuple[int, int]:
        """Return kind and time."""
        return 1, 1_000

    def key(self) -> bytes:
        """Return the key."""
        return b"app"

    def headers(self) -> None:
        """Return none."""

    def value(self) -> bytes | None:
        """Return the bytes."""
        return self._value


def lines(value: bytes | None, record: type | None = Observations) -> list[tuple[int, object]]:
    """Return offset and id of each line, or what stands there instead of an observation."""
    found = shown(cast("Message", Sent(value)), record, CODEC)
    return [(line["offset"], (line["value"] or {}).get("query_id") if record else line["value"]) for line in found]


def test_each_observation_of_a_record_is_a_line() -> None:
    """All with the record's offset; one alone is one line."""
    assert lines(CODEC.encode(Observations(LOG))) == [(7, "a"), (7, "b")]
    assert lines(CODEC.encode(LOG[0])) == [(7, "a")]


def test_feedback_by_key_is_shown_as_what_it_is() -> None:
    """Among that by id, in the same topic."""
    keyed = KeyedFeedback("", "fraud", "ann", 1_000, loss=0.5)
    (line,) = shown(cast("Message", Sent(CODEC.encode(keyed))), Feedback, CODEC)
    assert cast("dict[str, object]", line["value"])["context"] == "ann"
    assert lines(CODEC.encode(Feedback("q", 1)), Feedback) == [(7, "q")]


def test_raw_bytes_and_no_bytes_are_one_line() -> None:
    """Nothing is decoded."""
    value = CODEC.encode(Observations(LOG))
    assert len(lines(value, None)) == 1
    assert lines(None) == [(7, None)]


def record(topic: str, value: object, **headers: bytes) -> Record:
    """Make a record."""
    return Record(topic, 0, 0, 0, None, CODEC.encode(value), tuple(headers.items()))


def test_the_fate_of_feedback_is_found_in_whatever_record_it_is() -> None:
    """The second of a record, one alone, a refusal; a record about others says nothing."""
    several, alone = record(topics.OBSERVATIONS, Observations(LOG)), record(topics.OBSERVATIONS, LOG[1])
    refused = record("feedback.dlq", Feedback("b"))._replace(
        headers=((CAUSE, b"late"), (MESSAGE, b"the window is over"))
    )
    for each in (several, alone):
        fate = fate_in(each, CODEC, "b")
        assert fate == Fate(LOG[1])
        assert isinstance(fate.observation, Observation)
    assert fate_in(refused, CODEC, "b") == Fate(refused="late", message="the window is over")
    assert [fate_in(each, CODEC, "c") for each in (several, alone, refused)] == [None] * 3


def test_what_is_no_record_of_the_log_is_passed_over() -> None:
    """The wait goes on."""
    garbage = record(topics.OBSERVATIONS, LOG[0])._replace(value=b"garbage")
    assert fate_in(garbage, CODEC, "a") is None
