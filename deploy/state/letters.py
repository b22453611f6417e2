"""Dead letters on the broker: read by what was asked for, sent again with a receipt, removed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, Producer, TopicPartition

from deploy.connect.clients import TIMEOUT_S, admin, librdkafka
from deploy.errors import DeployError, UsageError
from deploy.state import catalog
from deploy.state.messages import records
from deploy.state.topics import partition_counts
from schemas import topics
from schemas.records import Application
from streams.dead_letters.letter import Letter, Receipt, read, receipts
from streams.dead_letters.redriving import Redriving, application_of_letter
from streams.mapping.kernel import TopicMapper
from streams.operators.contract import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.operators.contract import Emit

_DEAD: Final = topics.dead_letters("")
RECEIPT_LETTERS: Final = 500  # a receipt is written after so many: who is killed sends so many twice
NO_TIME: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class LettersWanted:
    """Which letters are meant; what is not named is not asked for.

    Attributes:
        topic: whose records they are: `feedback`, `mapping`.
        cause: of all of them.
        application: that they are about; "" = those whose bytes tell none.
        since_us: written then or later.
        before_us: written earlier.
        places: these alone, as `feedback@17`.
    """

    topic: str | None = None
    cause: str | None = None
    application: str | None = None
    since_us: int = 0
    before_us: int = NO_TIME
    places: tuple[str, ...] = ()

    def reads(self, topic: str) -> bool:
        """Tell whether any of a topic's letters may be meant."""
        source = topic.removesuffix(_DEAD)
        return self.topic in {None, source} and (
            not self.places or any(place.rpartition("@")[0] == source for place in self.places)
        )

    def has(self, letter: Letter, codec: Codec) -> bool:
        """Tell whether a letter is meant."""
        return (
            self.cause in {None, letter.cause}
            and self.since_us <= letter.written_us < self.before_us
            and (not self.places or letter.place in self.places)
            and (self.application is None or (application_of_letter(letter, codec) or "") == self.application)
        )


def topics_of(settings: Settings, wanted: LettersWanted) -> list[str]:
    """Return the topics of dead letters that are read.

    Raises:
        UsageError: there is none of the wanted one's.
    """
    there = sorted(name for name in partition_counts(settings) if name.endswith(_DEAD))
    named = {
        name for name in (wanted.topic, *(place.rpartition("@")[0] for place in wanted.places)) if name is not None
    }
    if unknown := sorted(named - {name.removesuffix(_DEAD) for name in there}):
        known = ", ".join(name.removesuffix(_DEAD) for name in there) or "none"
        raise UsageError(f"there are no dead letters of {', '.join(unknown)}; there are those of: {known}")
    return [name for name in there if wanted.reads(name)]


def letters(settings: Settings, wanted: LettersWanted, codec: Codec) -> Iterator[Letter]:
    """Yield the letters that are meant, topic by topic, oldest first, up to the present end."""
    for topic in topics_of(settings, wanted):
        for record in records(settings, topic, since_us=wanted.since_us):
            found = read(record)
            if isinstance(found, Letter) and wanted.has(found, codec):
                yield found


def known_receipts(settings: Settings, wanted: LettersWanted) -> dict[str, tuple[Receipt, ...]]:
    """Return what says which letters were sent again, by topic of dead letters."""
    found: dict[str, tuple[Receipt, ...]] = {}
    for topic in topics_of(settings, wanted):
        seen = map(read, records(settings, topic, since_us=wanted.since_us))
        found[topic] = tuple(each for each in seen if isinstance(each, Receipt))
    return found


def redriving(settings: Settings, codec: Codec, attempts: int, *, anew: bool) -> Redriving:
    """Return who decides what becomes of letters: it knows the applications as they are deployed now."""
    known = catalog.read(settings, codec, Application)
    mapper = TopicMapper(codec, settings.partitions, {})
    mapper.on_records(
        [Record(topics.APPLICATIONS, 0, 0, 0, name.encode(), codec.encode(each)) for name, each in known.items()], 0
    )
    slos = {name: each.slo_ms for name, each in known.items()}
    return Redriving(codec, partition_counts(settings), mapper, slos, attempts, anew)


@dataclass(slots=True)
class LetterSender:
    """Sends records of letters again, so many a second, and writes receipts of what the broker has taken.

    Args:
        settings: of the deployment.
        rate: records a second at most.
    """

    settings: Settings
    rate: float
    sent: int = 0
    _failures: list[str] = field(default_factory=list)
    _unsaid: set[str] = field(default_factory=set)  # why receipts were not taken
    _taken: dict[str, list[int]] = field(default_factory=dict)
    _next_s: float = 0.0
    _producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        """Connect."""
        options = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": int(TIMEOUT_S * 1_000)}
        self._producer = Producer({**librdkafka(self.settings), **options})

    def send(self, letter: Letter, emit: Emit) -> None:
        """Send one when it is its turn.

        Raises:
            DeployError: the broker refused an earlier one.
        """
        self._next_s = max(self._next_s, time.monotonic())
        while (left_s := self._next_s - time.monotonic()) > 0:
            self._producer.poll(left_s)  # meanwhile it sends
        self._next_s += 1 / self.rate

        name = f"{self.settings.prefix}.{emit.topic}"

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is None:
                self._taken.setdefault(letter.topic, []).append(letter.offset)
            else:
                self._failures.append(f"{letter.place}: {_why(error, name)}")

        self._producer.produce(name, emit.value, emit.key, emit.partition, delivered, headers=list(emit.headers))
        self.sent += 1
        if self.sent % RECEIPT_LETTERS == 0:
            self.finish()

    def finish(self) -> None:
        """Wait for the broker, and write receipts of what it has taken.

        Raises:
            DeployError: it refused some, or does not answer.
        """
        silent = self._producer.flush(TIMEOUT_S)
        self._write_receipts()
        if self._unsaid:
            raise DeployError(
                f"letters were sent again, but there is no receipt of it, so the next time they are sent once more:"
                f" {'; '.join(sorted(self._unsaid)[:3])}"
            )
        if silent or self._failures:
            why = "; ".join(self._failures[:3]) or "the broker does not answer"
            raise DeployError(f"{silent + len(self._failures)} letters were not sent again: {why}")

    def _write_receipts(self) -> None:
        for topic, offsets in self._taken.items():
            name = f"{self.settings.prefix}.{topic}"

            def written(error: KafkaError | None, _message: object, name: str = name) -> None:
                if error is not None:
                    self._unsaid.add(_why(error, name))

            for header in receipts(offsets):
                self._producer.produce(name, b"", None, 0, written, headers=[header])
        self._taken.clear()
        self._producer.flush(TIMEOUT_S)


def _why(error: KafkaError, topic: str) -> str:
    """Return why the broker did not take a record, and which right that takes."""
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"this user has no right Write on topic {topic}: `skysail topics acl` prints who needs which"
    return f"{error} (topic {topic})"


def purge(settings: Settings, ends: Mapping[str, int]) -> None:
    """Remove all letters before an offset, by topic of dead letters.

    Raises:
        DeployError: the broker refused.
    """
    places = [TopicPartition(f"{settings.prefix}.{topic}", 0, end) for topic, end in ends.items()]
    client = admin(settings)  # its futures end with it
    for place, future in client.delete_records(places).items():
        try:
            future.result(TIMEOUT_S)
        except Exception as error:
            raise DeployError(f"{place.topic}: {error}; who purges needs the right to delete records") from error


def purged(settings: Settings, wanted: LettersWanted) -> dict[str, Sequence[int]]:
    """Return what a purge would remove, by topic: how many letters, and the offset behind them and their receipts."""
    found: dict[str, Sequence[int]] = {}
    for topic in topics_of(settings, wanted):
        count, end = 0, 0
        for record in records(settings, topic):
            if record.timestamp_us >= wanted.before_us:
                break
            count, end = count + isinstance(read(record), Letter), record.offset + 1
        if end:
            found[topic] = count, end
    return found
