"""What the last records of others' topics become, by the kernel that maps them; nothing is written."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from deploy.connect.mapped_schemas import MappedSchemas
from deploy.errors import UsageError
from deploy.state import catalog
from deploy.state.messages import records
from deploy.state.packages import model_record
from deploy.state.topics import partition_counts
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Feedback, KeyedFeedback, MetricFeedback, Model, Query
from streams.mapping.kernel import TopicMapper
from streams.operators.contract import LOOKED_UP, DeadLetter, Emit, FetchFeatures, Record, Skip
from streams.runtime.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Application
    from streams.mapping.spec import TopicMapping
    from streams.operators.contract import Effect

Made: TypeAlias = Query | Feedback | KeyedFeedback | MetricFeedback


class MappedRecord(NamedTuple):
    """A record, what it becomes, and the key by which that finds its partition."""

    record: Record
    made: Made
    key: bytes


class MappedTopic(NamedTuple):
    """What became of a topic's last records."""

    topic: str
    mapped: list[MappedRecord]
    skipped: Counter[str]
    faults: list[tuple[Record, str]]


def check_topics(mapping: TopicMapping, there: Iterable[str]) -> None:
    """Refuse a mapping that names topics which are not there.

    Raises:
        UsageError: one of them is not.
    """
    written = set() if mapping.outgoing is None else {mapping.outgoing.form.topic}
    if missing := sorted((mapping.reads | written) - {*there}):
        known = ", ".join(sorted(name for name in there if not name.startswith("__"))) or "none"
        raise UsageError(
            f"there is no topic {', '.join(missing)}; there are: {known}. Skysail creates none of yours: correct the"
            " name, or create it"
        )


def last_mapped(settings: Settings, codec: Codec, application: Application, topic: str, count: int) -> MappedTopic:
    """Give the role's own kernel the last records of a topic, in the order of their timestamps."""
    mapper = TopicMapper(codec, settings.partitions, {})
    mapper.on_records([Record(topics.APPLICATIONS, 0, 0, 0, application.name.encode(), codec.encode(application))], 0)
    for model in _models(settings, codec):
        mapper.on_records([Record(topics.MODELS, 0, 0, 0, model.name.encode(), codec.encode(model))], 0)
    seen, schemas = MappedTopic(topic, [], Counter(), []), MappedSchemas(settings)
    for record in _last(settings, topics.outside(topic), count, outside=True):
        for effect in _effects(mapper, [record], record.timestamp_us, schemas):
            _note(effect, record, codec, seen)
    return seen


def last_asked(settings: Settings, codec: Codec, application: Application, count: int) -> list[MappedRecord]:
    """Return the last queries of an application that clients ask; none where nobody has asked yet."""
    if topics.QUERIES not in partition_counts(settings):
        return []
    found = [
        MappedRecord(record, codec.decode(Query, record.value), record.key or b"")
        for record in _last(settings, topics.QUERIES, count)
    ]
    return [each for each in found if isinstance(each.made, Query) and each.made.application == application.name]


def _models(settings: Settings, codec: Codec) -> list[Model]:
    """Return the models that are deployed, and those of the settings whose packages are here."""
    there = partition_counts(settings)
    known = [*catalog.read(settings, codec, Model).values()] if topics.MODELS in there else []
    return [*known, *(model_record(folder, settings) for folder in settings.models.values() if folder.is_dir())]


def _last(settings: Settings, topic: str, count: int, *, outside: bool = False) -> list[Record]:
    several = count * partition_counts(settings, outside=outside)[topic]
    return sorted(records(settings, topic, most=several), key=lambda record: record.timestamp_us)[-count:]


def _effects(mapper: TopicMapper, given: list[Record], now_us: int, schemas: MappedSchemas) -> Iterator[Effect]:
    """Yield what comes of a record; the schemas that it waits for are looked up."""
    for effect in mapper.on_records(given, now_us):
        if not isinstance(effect, FetchFeatures):
            yield effect
            continue
        try:
            values = schemas.look_up(effect.keys)
        except StoreUnavailableError as error:
            raise UsageError(str(error)) from None
        told = [
            Record(topics.FEATURES, LOOKED_UP, LOOKED_UP, 0, key.encode(), value)
            for key, value in zip(effect.keys, values, strict=True)
        ]
        yield from _effects(mapper, told, now_us, schemas)


def _note(effect: Effect, record: Record, codec: Codec, seen: MappedTopic) -> None:
    if isinstance(effect, Emit):
        seen.mapped.append(MappedRecord(record, made_of(effect, codec), effect.key or b""))
    elif isinstance(effect, Skip):
        seen.skipped[effect.reason] += 1
    elif isinstance(effect, DeadLetter):
        seen.faults.append((record, effect.message))


def made_of(effect: Emit, codec: Codec) -> Made:
    """Return the record that is to be written."""
    if effect.topic == topics.QUERIES:
        return codec.decode(Query, effect.value)
    with suppress(DecodeError):
        return codec.decode(MetricFeedback, effect.value)
    with suppress(DecodeError):
        return codec.decode(KeyedFeedback, effect.value)
    return codec.decode(Feedback, effect.value)
