"""The log of a day, as a deployment leaves it: records of the same kinds, sizes and times, in batches as small.

Two applications have half of the queries each. `digits` has one state; `fraud` has a context a user. Queries that will
be asked about are written as the roles write them. Of the others only ids and timestamps are their own: nobody reads
more of them.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Producer

from schemas import topics
from schemas.ids import DRAWN_BITS, query_id
from schemas.records import (
    Decision,
    Feedback,
    JoinStatus,
    ModelOutput,
    ModelPredictions,
    ModelQueries,
    Observation,
    Observations,
    Outcome,
    Prediction,
    Query,
    Status,
    Tensor,
)
from streams.topology import partition_of, state_name, state_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from schemas.codec import Codec

DAY_S: Final = 86_400
PARTITIONS: Final = 4
MODELS: Final = ("forest", "linear")
TOPICS: Final[Mapping[str, int]] = {
    topics.QUERIES: PARTITIONS,
    topics.PREDICTIONS: PARTITIONS,
    topics.MODEL_PREDICTIONS: PARTITIONS,
    topics.SHADOWS: PARTITIONS,
    topics.FEEDBACK: PARTITIONS,
    topics.OBSERVATIONS: PARTITIONS,
    **{topics.model_queries(model): topics.MODEL_PARTITIONS for model in MODELS},
}
_USERS: Final = 100_000
_FEATURES: Final = 16
_BATCH: Final = 10  # records; at a hundred queries a second a role's own batches are no larger
_QUEUE: Final = 500_000
_LATER_US: Final = {  # after the query: what its model was asked, said; the answer; what was learnt, and taught
    "asked": 500,
    "said": 1_500,
    "answered": 2_000,
    "told": 5_000_000,
    "taught": 5_001_000,
}
_ID: Final = "0" * 32
_USER: Final = "user-00000"


class Asked(NamedTuple):
    """A query of the day.

    Attributes:
        query_id: its id.
        application: that it is for.
        context: its user; None = it has none.
        at_us: when it was asked.
    """

    query_id: str
    application: str
    context: str | None
    at_us: int


class _Row(NamedTuple):
    query: Asked
    key: bytes
    partition: int
    is_whole: bool


class DayLog:
    """Writes the log of a day, second after second.

    Args:
        codec: of the records.
        producer: of librdkafka; `producer_of` returns one.
        prefix: of the topics.
        begin_us: when the day begins.
        count: queries of it.
        seed: of the ids, and of the queries that will be asked about.
        chosen: how many of them.
    """

    def __init__(
        self, codec: Codec, producer: Producer, prefix: str, begin_us: int, count: int, seed: int, chosen: int
    ) -> None:
        self._codec, self._producer, self._prefix = codec, producer, prefix
        self._begin_us, self._count = begin_us, count
        self._random = random.Random(seed)  # noqa: S311 - equal logs, no secrets
        self._chosen = set(random.Random(seed + 1).sample(range(count), chosen))  # noqa: S311
        self._single_forms: dict[tuple[str, bool], bytes] = {}
        self._forms: dict[tuple[str, int], list[bytes]] = {}
        self.asked: list[Asked] = []
        self.bytes = 0

    def write(self, told: Callable[[int], None]) -> None:
        """Write all of it; `told` hears how many queries are written, once an hour of the day."""
        done = 0
        for second in range(DAY_S):
            until = self._count * (second + 1) // DAY_S
            rows = [self._row(number, second, place) for place, number in enumerate(range(done, until))]
            done = until
            self._singles(rows)
            for partition in range(PARTITIONS):
                self._batches(partition, [row for row in rows if row.partition == partition])
            if second % 3_600 == 3_599:
                told(done)
        self._producer.flush()

    def _row(self, number: int, second: int, place: int) -> _Row:
        at_us = self._begin_us + second * 1_000_000 + place * 1_000
        context = f"user-{self._random.randrange(_USERS):05}" if number % 2 else None
        is_whole = number in self._chosen
        # Every third of those that are asked about has an id of its client's: it tells no time.
        name = query_id(at_us, self._random.getrandbits(DRAWN_BITS))
        if is_whole and len(self.asked) % 3 == 2:
            name = f"order-{number:026}"
        asked = Asked(name, "fraud" if context else "digits", context, at_us)
        if is_whole:
            self.asked.append(asked)
        key = (context or name).encode()
        return _Row(asked, key, partition_of(key, PARTITIONS), is_whole)

    def _singles(self, rows: Sequence[_Row]) -> None:
        for row in rows:
            query, at_us = row.query, row.query.at_us
            for topic, later, make in _SINGLES:
                value = self._single(topic, query, make, is_whole=row.is_whole)
                self._send(topic, row.partition, row.key, value, at_us + _LATER_US.get(later, 0))
            if query.context is not None:
                name = state_name(query.application, query.context)
                value = self._single(topics.OBSERVATIONS, query, _observation, is_whole=row.is_whole)
                home = state_partition(name, PARTITIONS)
                self._send(topics.OBSERVATIONS, home, name.encode(), value, at_us + _LATER_US["taught"])

    def _single(self, topic: str, query: Asked, make: Callable[[Asked], object], *, is_whole: bool) -> bytes:
        """Return a record; of others than the chosen, one of the same form with its ids put in."""
        if is_whole:
            return self._codec.encode(make(query))
        kind = topic, query.context is not None
        form = self._single_forms.get(kind)
        if form is None:
            model = Asked(_ID, query.application, _USER if query.context else None, query.at_us)
            form = self._single_forms[kind] = self._codec.encode(make(model))
        found = form.replace(_ID.encode(), query.query_id.encode())
        return found.replace(_USER.encode(), query.context.encode()) if query.context else found

    def _batches(self, partition: int, rows: Sequence[_Row]) -> None:
        if not rows:
            return
        at_us = rows[-1].query.at_us
        alone = [row for row in rows if row.query.context is None]
        for model in MODELS:
            name = topics.model_queries(model)
            value = self._together(name, rows, partial(_questions, partition))
            self._send(name, partition, None, value, at_us + _LATER_US["asked"])
            value = self._together(f"{topics.MODEL_PREDICTIONS}/{model}", rows, partial(_outputs, model))
            self._send(topics.MODEL_PREDICTIONS, partition, None, value, at_us + _LATER_US["said"])
        if alone:
            value = self._together(topics.OBSERVATIONS, alone, _observations)
            home = state_partition("digits", PARTITIONS)
            self._send(topics.OBSERVATIONS, home, b"digits", value, at_us + _LATER_US["taught"])

    def _together(self, kind: str, rows: Sequence[_Row], make: Callable[[Sequence[Asked]], object]) -> bytes:
        """Return a record of several queries."""
        if any(row.is_whole for row in rows):
            return self._codec.encode(make([row.query for row in rows]))
        form = self._forms.get((kind, len(rows)))
        if form is None:
            model = Asked(_ID, "digits", None, rows[0].query.at_us)
            form = self._forms[kind, len(rows)] = self._codec.encode(make([model] * len(rows))).split(_ID.encode())
        return b"".join(_woven(form, [row.query.query_id.encode() for row in rows]))

    def _send(self, topic: str, partition: int, key: bytes | None, value: bytes, at_us: int) -> None:
        self.bytes += len(value)
        while True:
            try:
                self._producer.produce(
                    f"{self._prefix}.{topic}", value, key, partition=partition, timestamp=at_us // 1000
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


def producer_of(bootstrap: str) -> Producer:
    """Return a producer whose batches are as small as those of a role at a hundred queries a second."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.num.messages": _BATCH,
            "linger.ms": 50,
            "queue.buffering.max.messages": _QUEUE,
            "acks": 1,
        }
    )


def _woven(pieces: Sequence[bytes], between: Sequence[bytes]) -> Iterator[bytes]:
    yield pieces[0]
    for name, piece in zip(between, pieces[1:], strict=True):
        yield name
        yield piece


def _tensor(width: int) -> Tensor:
    return Tensor("float32", (width,), bytes(4 * width))


def _query(asked: Asked) -> Query:
    return Query(asked.query_id, asked.application, _tensor(_FEATURES), asked.context, sent_us=asked.at_us)


def _decision(asked: Asked) -> Decision:
    state = state_name(asked.application, asked.context)
    return Decision((0, 1), 7, state, "exp4", MODELS, (1.0, 1.0))


def _answer(asked: Asked) -> Prediction:
    outputs = tuple(ModelOutput(model, "1", Outcome.OK, 3, _tensor(10)) for model in MODELS)
    at_us = asked.at_us
    return Prediction(
        asked.query_id, asked.application, asked.context, _decision(asked), Status.COMPLETE, None, 3, 0.9, outputs,
        at_us, at_us + 300, at_us + 20_000, at_us + _LATER_US["answered"],
    )  # fmt: skip


def _feedback(asked: Asked) -> Feedback:
    return Feedback(asked.query_id, label=3, sent_us=asked.at_us + _LATER_US["told"])


def _observation(asked: Asked) -> Observation:
    return Observation(
        asked.query_id, asked.application, asked.context, _decision(asked), (0.0, 0.0), 0.0, 3, JoinStatus.JOINED,
        asked.at_us + _LATER_US["answered"], asked.at_us + _LATER_US["told"],
    )  # fmt: skip


def _observations(rows: Sequence[Asked]) -> Observations:
    return Observations(tuple(_observation(each) for each in rows))


def _questions(partition: int, rows: Sequence[Asked]) -> ModelQueries:
    inputs = Tensor("float32", (len(rows), _FEATURES), bytes(4 * _FEATURES * len(rows)))
    return ModelQueries(
        tuple(row.query_id for row in rows), partition, tuple(row.at_us + 20_000 for row in rows), inputs
    )


def _outputs(model: str, rows: Sequence[Asked]) -> ModelPredictions:
    count = len(rows)
    scores = Tensor("float32", (count, 10), bytes(40 * count))
    return ModelPredictions(
        model, "1", f"worker.{model}@1", tuple(row.query_id for row in rows), (Outcome.OK,) * count,
        Tensor("int64", (count,), bytes(8 * count)), scores, (200,) * count, 700, count, 64, 0, "eager",
    )  # fmt: skip


_SINGLES: Final[Sequence[tuple[str, str, Callable[[Asked], object]]]] = (
    (topics.QUERIES, "", _query),
    (topics.PREDICTIONS, "answered", _answer),
    (topics.FEEDBACK, "told", _feedback),
)
