"""Kafka through librdkafka for the harness: the sender and the sink must cost far less than what they measure.

Sending one record costs 1.9 us and reading one 1.4 us of CPU in C threads (measured). An asyncio client takes about
1 ms a request at low rates. The partitioner `murmur2_random` of librdkafka places keys as Java's client does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from schemas.sizes import MOST_BYTES, ROOM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka import Message

_POLL_ROWS = 1000
_METADATA_S = 10.0
_QUEUE_ROWS = 200_000
_RETRY_S = 0.1
# librdkafka waits in whole milliseconds: asked to wait for less, it returns at once, and a sender whose next query is
# due in half of one would spin, which cost .2 of a core at 2,000/s (measured) that the system did not get.
_TICK_S = 1e-3
# Feedback may be late. Sent like queries, a request each, it would cost the broker as much as they do.
_PATIENT_MS = 50.0
_BUSY_RATE, _BUSY_MS = 1_000.0, 2.0


def linger_ms(rate: float) -> float:
    """Return how long a sender at this rate (1/s) should gather records: from 1,000 on a request each saturates it."""
    return _BUSY_MS if rate >= _BUSY_RATE else 0.0


class Arrival(NamedTuple):
    """A record read from a followed topic; `topic` is the logical name, `timestamp_us` the record's own."""

    topic: str
    partition: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None


class Wire:
    """One producer and one group-less reader over all partitions of the followed topics.

    Args:
        bootstrap: `host:port` of the brokers.
        prefix: of the deployment's topics.
        properties: passed on to librdkafka, to producer and reader alike.
        linger_ms: for how long records are gathered; see `linger_ms`.
    """

    def __init__(
        self, bootstrap: str, prefix: str, properties: Mapping[str, str] | None = None, linger_ms: float = 0
    ) -> None:
        common = {"bootstrap.servers": bootstrap, **(properties or {})}
        self._prefix = f"{prefix}." if prefix else ""
        self._producer = self._sender(common, linger_ms)
        self._patient = self._sender(common, max(linger_ms, _PATIENT_MS))
        self._consumer = Consumer(
            {
                **common,
                "group.id": f"{self._prefix}load",
                "group.protocol": "classic",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._starts: dict[TopicPartition, int] = {}
        self.undelivered = 0

    def follow(self, topics: Sequence[str], *, from_start: bool = False) -> None:
        """Read these topics from their present end, or from their start; returns once every position is known.

        Reading from the end returns when the first fetch has been answered, which takes half a second. Records that are
        written earlier sometimes come 50 ms late, or even 500.

        Raises:
            LookupError: a topic does not exist.
        """
        places = [place for topic in topics for place in self._places(topic)]
        for place in places:
            low, high = self._ends(place)
            place.offset = low if from_start else high
        self._consumer.assign(places)
        self._starts = {place: place.offset for place in places}
        end_s = time.monotonic() + _METADATA_S
        while not from_start and any(end < 0 for end in self._known_ends()) and time.monotonic() < end_s:
            time.sleep(_TICK_S)

    def appended(self, *, asking: bool = False) -> int:
        """Return how many records the followed topics have got since.

        Args:
            asking: of the broker; else as the latest fetch says, which costs nothing.
        """
        ends = [self._ends(place)[1] for place in self._starts] if asking else self._known_ends()
        return sum(max(0, end - at) for end, at in zip(ends, self._starts.values(), strict=True))

    def hold(self) -> None:
        """Fetch nothing until `go_on`; librdkafka's threads would, whether anybody asks for it or not."""
        self._consumer.pause([*self._starts])

    def go_on(self) -> None:
        """Fetch again, from where the last record was taken."""
        self._consumer.resume([*self._starts])

    def _known_ends(self) -> list[int]:
        """Return the followed partitions' ends by the latest fetch, negative before the first."""
        return [self._consumer.get_watermark_offsets(place, cached=True)[1] for place in self._starts]

    def produce(
        self, topic: str, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]] = (), *, patient: bool = False
    ) -> None:
        """Hand one record to the sender threads; blocks only when 200,000 records wait.

        Args:
            topic: without the prefix.
            key: of the record.
            value: of the record.
            headers: of the record.
            patient: no query depends on it, so it may be gathered with others for longer.
        """
        name = self._prefix + topic
        sender = self._patient if patient else self._producer
        # An empty list would cost 0.5 us.
        given: list[tuple[str, str | bytes | None]] | None = list(headers) if headers else None
        while True:
            try:
                sender.produce(name, value, key, -1, None, None, 0, given)
            except BufferError:
                sender.poll(0.01)
            else:
                return

    def poll(self, timeout_s: float) -> list[Arrival]:
        """Return what has arrived, waiting up to `timeout_s` for the first record only.

        Raises:
            KafkaException: a partition cannot be read.
        """
        return [self._arrival(message) for message in self._messages(timeout_s)]

    def values(self, timeout_s: float) -> list[bytes | None]:
        """Return the values of what has arrived, as `poll` does: 0.1 us a record, where the rest takes 1.1.

        Raises:
            KafkaException: a partition cannot be read.
        """
        return [_value(message) for message in self._messages(timeout_s)]

    def stamped(self, timeout_s: float) -> list[tuple[int, bytes | None]]:
        """Return timestamp (us) and value of what has arrived, as `poll` does.

        Raises:
            KafkaException: a partition cannot be read.
        """
        return [(message.timestamp()[1] * 1000, _value(message)) for message in self._messages(timeout_s)]

    def _messages(self, timeout_s: float) -> tuple[Message, ...]:
        self._producer.poll(0)
        self._patient.poll(0)
        if not self._starts:
            self._producer.poll(timeout_s)
        elif (first := self._consumer.poll(timeout_s)) is not None:
            return first, *self._consumer.consume(_POLL_ROWS, 0)
        if timeout_s < _TICK_S:
            time.sleep(timeout_s)
        return ()

    def rest(self, quiet_s: float = 0.5) -> Iterator[Arrival]:
        """Yield everything that arrives until nothing does for `quiet_s`."""
        while arrived := self.poll(quiet_s):
            yield from arrived

    def written(self, patience_s: float = 30.0) -> Iterator[Arrival]:
        """Yield what had been written to the followed topics when this was called, and has not been read.

        Silence does not end it: librdkafka rests for a second when it has fetched far more than was taken.

        Raises:
            TimeoutError: there is more, and nothing of it comes for `patience_s`.
        """
        ends = {place: self._ends(place)[1] for place in self._starts}
        while self._is_behind(ends):
            arrived = self.poll(patience_s)
            if not arrived:
                raise TimeoutError(f"nothing of what was written to {self._prefix}* came for {patience_s:g} s")
            yield from arrived

    def flush(self, timeout_s: float = 30.0) -> int:
        """Wait until everything is acknowledged; returns how many records are not."""
        return int(self._producer.flush(timeout_s)) + int(self._patient.flush(timeout_s)) + self.undelivered

    def close(self) -> None:
        """Leave the broker; what is not flushed is lost."""
        self._consumer.close()
        for sender in (self._producer, self._patient):
            sender.purge()  # closing it would wait for what a broker that is gone has not acknowledged
            sender.close()

    def _sender(self, common: Mapping[str, str], linger_ms: float) -> Producer:
        return Producer(
            {
                **common,
                "acks": "all",
                "linger.ms": linger_ms,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": _QUEUE_ROWS,
                "message.max.bytes": MOST_BYTES + ROOM_BYTES,
                "log_level": 3,  # errors; at 6 librdkafka tells when a client is closed
                "delivery.report.only.error": True,
                "on_delivery": self._undelivered,
            }
        )

    def _is_behind(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Tell whether records before these offsets are unread; before the first read there is no position."""
        places = self._consumer.position([*ends])
        return any(max(place.offset, self._starts[place]) < ends[place] for place in places)

    def _places(self, topic: str) -> list[TopicPartition]:
        name = self._prefix + topic
        found = self._consumer.list_topics(name, timeout=_METADATA_S).topics[name]
        if found.error or not found.partitions:
            raise LookupError(f"topic {name} is not there ({found.error}); run `skysail topics create`")
        return [TopicPartition(name, partition) for partition in found.partitions]

    def _ends(self, place: TopicPartition) -> tuple[int, int]:
        """Return a partition's first and next offset; a topic that is just being created has no leader for a moment."""
        end_s = time.monotonic() + _METADATA_S
        while True:
            try:
                return self._consumer.get_watermark_offsets(place, timeout=_METADATA_S)
            except KafkaException:
                if time.monotonic() > end_s:
                    raise
            time.sleep(_RETRY_S)

    def _arrival(self, message: Message) -> Arrival:
        value = _value(message)
        return Arrival(
            str(message.topic()).removeprefix(self._prefix),
            message.partition() or 0,
            message.timestamp()[1] * 1000,
            message.key(),
            value,
        )

    def _undelivered(self, error: object, _message: Message) -> None:
        self.undelivered += error is not None


def _value(message: Message) -> bytes | None:
    if message.error():
        raise KafkaException(message.error())
    return message.value()
