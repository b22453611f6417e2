"""Which dead letters can be sent again, as what, and why the others cannot.

    letter ─▶ was it sent already? is it whole? does it still help? can it be read now? ─▶ Emit, or a reason

What is sent is the record as it was: key, bytes, partition; one header more says how often. So ids find duplicates as
they always do. Of two kinds it is another one: a record of a topic that is not Skysail's own is mapped anew, since its
topic is its owner's; and a query gets a new time where that is wished, since its own is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from schemas import records, topics
from schemas.errors import DecodeError
from schemas.topics import OUTSIDE
from streams.dead_letters.letter import ATTEMPTS
from streams.operators.contract import DeadLetter, Emit, Record
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from streams.dead_letters.letter import Letter, Receipt
    from streams.mapping.kernel import TopicMapper

ATTEMPTS_AT_MOST: Final = 3
# What is sent again comes back for these causes, whatever is mended.
_HOPELESS: Final = {
    "late": "the time for feedback on its query is over",
    "ambiguous_id": "two applications were asked with its id: nobody can tell whose it is",
    "other_application": "who told it may teach another application alone",
}
KINDS: Final[Mapping[str, type]] = {
    topics.QUERIES: records.Query,
    topics.FEEDBACK: records.Feedback,
    topics.PREDICTIONS: records.Prediction,
    topics.OBSERVATIONS: records.Observations,
}
_OTHERS: Final = {
    topics.MODEL_PREDICTIONS: "its query has been answered without it since",
    topics.SHADOWS: "its query has been answered without it since",
    topics.APPLICATIONS: "a newer record may stand under its key: use `skysail app`",
    topics.MODELS: "a newer record may stand under its key: use `skysail model`",
    topics.FEATURES: "a newer record may stand under its key: write it anew",
    topics.REPORTS: "it has been replaced by newer ones",
}


@dataclass(frozen=True, slots=True)
class RedriveRefusal:
    """Why a letter is not sent again, in a few words that many letters share."""

    reason: str


@dataclass(frozen=True, slots=True)
class Redriving:
    """Decides what becomes of dead letters.

    Args:
        codec: of the deployment.
        partitions: of each topic on the broker, by logical name.
        mapper: the kernel of role `mapping`, which knows the applications.
        objectives_ms: of each application, in which its queries are answered.
        attempts: a record is sent again so often at most.
        anew: whether queries get the present time as their own.
    """

    codec: Codec
    partitions: Mapping[str, int]
    mapper: TopicMapper
    objectives_ms: Mapping[str, float] = field(default_factory=dict)
    attempts: int = ATTEMPTS_AT_MOST
    anew: bool = False

    def decide(self, letter: Letter, receipts: Mapping[str, tuple[Receipt, ...]], now_us: int) -> Emit | RedriveRefusal:
        """Return what is sent for a letter.

        Args:
            letter: of any topic.
            receipts: of all topics of dead letters, by topic.
            now_us: the time.
        """
        if any(letter.offset in receipt for receipt in receipts.get(letter.topic, ())):
            return RedriveRefusal("was sent again already")
        if letter.attempts >= self.attempts:
            return RedriveRefusal(f"was sent again {letter.attempts} times and came back: mend its cause first")
        if letter.cut:
            return RedriveRefusal("is only a part of the record: the rest is gone")
        if letter.cause in _HOPELESS:
            return RedriveRefusal(_HOPELESS[letter.cause])
        if letter.source.startswith(OUTSIDE):
            return self._mapped(letter, now_us)
        return self._sent(letter, now_us)

    def _mapped(self, letter: Letter, now_us: int) -> Emit | RedriveRefusal:
        """Map a record of a topic that is not ours, as what it was: at its own place, from which its id may come."""
        place = letter.partition or 0, letter.source_offset or 0
        record = Record(letter.source, *place, letter.record_us, letter.key, letter.value, letter.headers)
        for effect in self.mapper.on_records([record], now_us):
            if isinstance(effect, Emit):
                made: object = self.codec.decode(KINDS[effect.topic], effect.value)
                value = self._value(made, effect.value, now_us)
                return value if isinstance(value, RedriveRefusal) else _again(effect._replace(value=value), letter)
            if isinstance(effect, DeadLetter):
                return RedriveRefusal(f"still cannot be mapped: {effect.message.partition('; value ')[0]}")
        return RedriveRefusal("no application maps it, or its `where` does not hold")

    def _sent(self, letter: Letter, now_us: int) -> Emit | RedriveRefusal:
        """Send a record of one of our topics to where it was, if it can be read now and still helps."""
        if letter.source not in KINDS:
            return RedriveRefusal(_OTHERS.get(letter.source, "the time of its queries is over"))
        if letter.value is None:
            return RedriveRefusal("has no value: nothing can be made of it")
        if (partition := self._partition(letter)) is None:
            return RedriveRefusal("nobody knows its partition")
        try:
            value = self._value(self.codec.decode(KINDS[letter.source], letter.value), letter.value, now_us)
        except DecodeError as error:
            return RedriveRefusal(f"still cannot be read: {error}")
        if isinstance(value, RedriveRefusal):
            return value
        return _again(Emit(letter.source, partition, letter.key, value, (), letter.headers), letter)

    def _value(self, decoded: object, value: bytes, now_us: int) -> bytes | RedriveRefusal:
        """Return the value that is sent, which for a query may have the present time."""
        if isinstance(decoded, records.Observations) and len(decoded.items) > 1:
            return RedriveRefusal("the other observations in its record have been learnt")
        if not isinstance(decoded, records.Query):
            return value
        if self.anew:
            return self.codec.encode(decoded._replace(sent_us=now_us))
        slo_ms = decoded.slo_ms or self.objectives_ms.get(decoded.application)
        if decoded.sent_us and slo_ms is not None and decoded.sent_us + slo_ms * 1e3 <= now_us:
            return RedriveRefusal("its time is over: it would be answered by default; --anew asks it as of now")
        return value  # without a time of its own it is asked when its record is written

    def _partition(self, letter: Letter) -> int | None:
        """Return where the record was; where it never came, where its key belongs."""
        count = self.partitions.get(letter.source, 0)
        if letter.partition is not None and letter.partition < count:
            return letter.partition
        return partition_of(letter.key, count) if letter.key is not None and count else None


def _again(emit: Emit, letter: Letter) -> Emit:
    """Return what is sent, with a header that counts how often it was."""
    others = (header for header in emit.headers if header[0] != ATTEMPTS)
    count = str(letter.attempts + 1).encode()
    return emit._replace(completes=(), headers=(*others, (ATTEMPTS, count)))


def application_of_letter(letter: Letter, codec: Codec) -> str:
    """Return the application that a letter is about, as far as its bytes tell; else an empty text."""
    kind = KINDS.get(letter.source)
    if kind is None or letter.value is None or letter.cut:
        return ""
    try:
        decoded: object = codec.decode(kind, letter.value)
    except DecodeError:
        return ""
    if isinstance(decoded, records.Observations):
        decoded = decoded.items[0] if decoded.items else decoded
    return getattr(decoded, "application", "")
