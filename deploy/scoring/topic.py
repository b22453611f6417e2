"""Topics as where rows come from, and where scored rows go.

A topic is read from its beginning, or from a time, to where it ended when the job began. What is written goes in
Kafka's transactions, one a chunk, and with it how many chunks are done: after a kill no row is there twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from deploy.connect.clients import TIMEOUT_S, librdkafka
from deploy.errors import DeployError, UsageError
from deploy.scoring import writing
from deploy.scoring.blocks import RowBlock, of_rows
from deploy.scoring.reading import BLOCK_BYTES
from deploy.state.catalog import END
from streams.mapping.errors import MappingError
from streams.mapping.formats import reader
from streams.mapping.schemas import RegisteredSchemas

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from deploy.config.settings import Settings
    from deploy.scoring.chunks import Chunks, DoneChunk
    from deploy.scoring.scored import Scored
    from deploy.scoring.writing import OutputForm
    from streams.mapping.formats import TopicForm

TOPIC: Final = "topic:"
_POLL_S: Final = 0.5
_SILENT: Final = 60  # polls without a word: half a minute


def bounds(settings: Settings, topic: str, since_us: int = 0) -> list[list[int]]:
    """Return of each partition where a job begins in it, and where it ends.

    Raises:
        UsageError: there is no such topic.
    """
    consumer = _consumer(settings, f"{settings.prefix}.score")
    try:
        found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        if found.error is not None or not found.partitions:
            raise UsageError(f"there is no topic {topic} on {settings.kafka.bootstrap}")
        places = [TopicPartition(topic, number) for number in sorted(found.partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=TIMEOUT_S) for place in places]
        if not since_us:
            return [[low, high] for low, high in ends]
        asked = [TopicPartition(topic, place.partition, -(-since_us // 1000)) for place in places]
        starts = consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
        return [[start.offset if start.offset >= 0 else high, high]
                for start, (_, high) in zip(starts, ends, strict=True)]  # fmt: skip
    finally:
        consumer.close()


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Rows of a topic, partition by partition.

    Attributes:
        settings: of the deployment.
        form: of the topic.
        bounds: of each partition: the first offset, and the one behind the last.
    """

    settings: Settings
    form: TopicForm
    bounds: Sequence[Sequence[int]]

    def left(self, part: int, start: int, rows: int) -> Iterator[tuple[int, str, RowBlock]]:
        """Yield what is left."""
        for number in range(part, len(self.bounds)):
            first, end = self.bounds[number]
            begin = max(first, start) if number == part else first
            if begin < end:
                for block in self._blocks(number, begin, end, rows):
                    yield number, self.form.topic, block

    def _blocks(self, partition: int, start: int, end: int, most: int) -> Iterator[RowBlock]:
        consumer = _consumer(self.settings, f"{self.settings.prefix}.score")
        held: list[Message] = []
        try:
            consumer.assign([TopicPartition(self.form.topic, partition, start)])
            size = 0
            for message in _until(consumer, end):
                held.append(message)
                size += len(message)
                if len(held) == most or size >= BLOCK_BYTES:
                    yield self._block(held)
                    held, size = [], 0
        finally:
            consumer.close()
        if held:
            yield self._block(held)

    def _block(self, messages: Sequence[Message]) -> RowBlock:
        read = reader(self.form, RegisteredSchemas())
        faults: dict[int, str] = {}
        rows: list[Mapping[str, Any]] = []
        for place, message in enumerate(messages):
            try:
                rows.append(read(_bytes(message.value())))
            except MappingError as error:
                faults[place] = str(error)
                rows.append({})
        block = of_rows(0, rows)
        block.faults = faults
        block.keys = [None if message.key() is None else _bytes(message.key()) for message in messages]
        block.ids = [f"{self.form.topic}-{message.partition()}-{message.offset()}" for message in messages]
        block.until = (messages[-1].offset() or 0) + 1
        return block


def _until(consumer: Consumer, end: int) -> Iterator[Message]:
    """Yield messages up to an offset; the last ones may be marks of transactions, which are none."""
    silent = 0
    while silent < _SILENT:
        message = consumer.poll(_POLL_S)
        if message is None:
            silent += 1
            continue
        error, silent = message.error(), 0
        if error is not None:
            if error.code() != END:
                raise KafkaException(error)
            if (message.offset() or 0) >= end:
                return
            continue  # a transaction is open there: what it holds is waited for
        if (message.offset() or 0) >= end:
            return
        yield message
        if (message.offset() or 0) + 1 >= end:
            return
    raise DeployError(
        f"nothing has come for {_SILENT * _POLL_S:g} s, and the topic does not end yet: is a transaction open there?"
        " Give the command again to go on"
    )


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""  # a tombstone is no row that can be read
    return value if isinstance(value, bytes) else str(value).encode()


def _consumer(settings: Settings, group: str) -> Consumer:
    way = {"group.id": group, "group.protocol": "classic", "enable.auto.commit": False, "enable.partition.eof": True}
    return Consumer({**librdkafka(settings), **way, "isolation.level": "read_committed", "auto.offset.reset": "error"})


@dataclass(slots=True)
class TopicSink:
    """A topic that gets scored rows as JSON objects, under the keys of their records, else under their ids.

    Attributes:
        settings: of the deployment.
        topic: that is written.
        form: of the rows.
        job: by which a job that goes on is known to the broker.
    """

    settings: Settings
    topic: str
    form: OutputForm
    job: str
    _producer: Producer | None = field(default=None, init=False)

    @property
    def _group(self) -> str:
        return f"{self.settings.prefix}.score.{self.job}"

    def holds(self, number: int) -> bool:
        """Tell whether a chunk is in the topic that was begun before a kill."""
        self._ready()  # what an earlier start left open is given up first
        consumer = _consumer(self.settings, self._group)
        try:
            (found,) = consumer.committed([TopicPartition(self.topic, 0)], timeout=TIMEOUT_S)
        finally:
            consumer.close()
        if number and int(found.offset) < 0:
            raise DeployError(
                f"the broker no longer knows which chunks {self.topic} holds: a job goes on within"
                " `offsets.retention.minutes` (a week). Read what is there, and write another topic with --restart"
            )
        return int(found.offset) > number

    def _ready(self) -> Producer:
        if self._producer is None:
            self._producer = Producer({
                **librdkafka(self.settings), "transactional.id": self._group, "compression.type": "lz4",
                "transaction.timeout.ms": "600000", "queue.buffering.max.messages": "1000000",
            })  # fmt: skip
            self._producer.init_transactions(TIMEOUT_S)
        return self._producer

    def put(self, chunks: Chunks, done: DoneChunk, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
        """Write a chunk in one transaction, and note it."""
        producer, number = self._ready(), len(chunks.done)
        chunks.begin(done)
        producer.begin_transaction()
        try:
            self._write(producer, number, block, ids, scored)
        except KafkaException as error:
            raise DeployError(f"{self.topic} was not written: {error}; give the command again to go on") from error
        chunks.add(done)

    def _write(self, producer: Producer, number: int, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
        """Write a chunk, and how many are done, in the transaction that is open."""
        for place, row in enumerate(writing.lines(self.form, block, ids, scored)):
            key = None if block.keys is None else block.keys[place]
            _produce(producer, self.topic, row, ids[place].encode() if key is None else key)
        consumer = _consumer(self.settings, self._group)
        try:
            member = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(self.topic, 0, number + 1)], member, TIMEOUT_S)
            producer.commit_transaction(_SILENT)
        finally:
            consumer.close()

    def finish(self, chunks: Chunks) -> None:
        """Do nothing: all is there."""


def _produce(producer: Producer, topic: str, row: Mapping[str, Any], key: bytes) -> None:
    value = orjson.dumps(row, default=writing.as_json)
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(_POLL_S)  # as many wait as there is room for
        else:
            producer.poll(0)
            return
