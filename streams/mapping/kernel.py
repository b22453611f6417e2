"""The kernel of role `mapping`: others' records become queries and feedback, predictions become records of theirs.

    orders ─▶ read ─▶ where ─▶ Query ─▶ queries       predictions ─▶ fields, keep ─▶ orders.scored
    chargebacks ─▶ read ─▶ Feedback ─▶ feedback

It holds nothing but what is deployed, and records that wait for a registry's schemas (`waiting`): all others have their
outcome at once. What a prediction's record keeps of the one that asked travels with the query and its answer, in a
header; so any instance can write any answer.

    record                                   outcome
    that `where` does not hold for           skipped, counted as `filtered`
    without a value                          skipped, counted as `tombstone`; or what was told is taken back
    whose feedback is null                   skipped, counted as `nothing_told`
    that cannot be read or mapped            dead letter in `mapping.dlq`, with the path that failed
    of an application without `to`           skipped, counted as `not_mapped`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas import topics
from schemas.errors import DecodeError, SchemaError
from schemas.records import Application, Model, Prediction
from streams.mapping.errors import MappingError, UnknownSchemaError
from streams.mapping.formats import reader, writer
from streams.mapping.incoming import feedback_of, query_of, withdrawal_of
from streams.mapping.outgoing import outgoing_row
from streams.mapping.schemas import RegisteredSchemas
from streams.mapping.spec import NO_SOURCE, ROW, Incoming, TopicMapping
from streams.mapping.waiting import AwaitingSchemas
from streams.operators.contract import NONE_UNREAD, DeadLetter, Emit, GroupNeeds, LogMessage, Needs, Operator, Skip
from streams.operators.statistics import Counters
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from streams.mapping.formats import Reader, Writer
    from streams.mapping.incoming import Made
    from streams.mapping.spec import IncomingFeedback, Outgoing
    from streams.operators.contract import Effects, Record, Unread

KEY = "key"  # the header of a query, and of its answer, with the key of the record that asked


class _From:
    """Who is asked, or told, by the records of one topic.

    Attributes:
        is_answered: whether predictions go to another topic, too, under the record's key.
        is_named: whether all models that are asked take rows by name.
        arrays: one of them that takes arrays; empty: none is known.
        keeps: whether they need the record.
    """

    __slots__ = ("application", "arrays", "is_answered", "is_named", "keeps", "read", "spec")

    def __init__(
        self, application: str, spec: Incoming | IncomingFeedback, outgoing: Outgoing | None, schemas: RegisteredSchemas
    ) -> None:
        self.application = application
        self.spec = spec
        self.is_answered = outgoing is not None
        self.is_named = False
        self.arrays = ""
        self.keeps = outgoing is not None and outgoing.reads_row
        self.read: Reader = reader(spec.form, schemas)


class _To:
    """What the predictions of one application become."""

    __slots__ = ("read_row", "spec", "write")

    def __init__(self, spec: Outgoing, incoming: Incoming | None, schemas: RegisteredSchemas) -> None:
        self.spec = spec
        self.write: Writer = writer(spec.form, schemas)
        self.read_row: Reader | None = None if incoming is None else reader(incoming.form, schemas)


class TopicMapper(Operator):
    """The kernel of role `mapping`.

    Args:
        codec: of the deployment.
        partitions: of the topics on the circle of data.
        counts: partitions of other topics that are written; who runs this knows them before an application is deployed.
    """

    def __init__(self, codec: Codec, partitions: int, counts: Mapping[str, int]) -> None:
        self._codec = codec
        self._partitions = partitions
        self._counts = counts
        self._mappings: dict[str, TopicMapping] = {}
        self._asks: dict[str, frozenset[str]] = {}  # models, by application
        self._takes_rows: dict[str, bool] = {}  # by model: whether by name, as it was fitted on a data frame
        self._from: dict[str, _From] = {}  # by topic
        self._to: dict[str, _To] = {}  # by application
        self._topics: frozenset[str] = frozenset()  # another object where they have changed
        self._has_registry = False
        self._schemas = RegisteredSchemas()
        self._waiting = AwaitingSchemas()
        self._whole: frozenset[str] = frozenset()
        self._counters = Counters()

    def needs(self) -> Needs:
        """Read the topics that are mapped, and predictions where they go elsewhere."""
        waiting = self._waiting
        group = GroupNeeds(topics=self._topics, whole=self._whole)
        return Needs(waiting.next_due(), 0, waiting.paused, group=group)

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Map records, and those that have waited for the schemas among them."""
        effects: Effects = []
        self._schemas.forget_missing(now_us)
        for record in records:
            if record.topic == topics.APPLICATIONS:
                self._follow(record, effects)
                self._take([*self._waiting.end()], now_us, effects)
            elif record.topic == topics.MODELS:
                self._follow_model(record, effects)
            elif record.topic == topics.FEATURES:
                key = self._schemas.take(record, now_us)
                self._take([*self._waiting.end(key)], now_us, effects)
            else:
                self._take([record], now_us, effects)
        return effects + self._waiting.ask(now_us)

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Ask again for schemas that the registry has not told."""
        return [*self._waiting.ask(now_us)]

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Forget what waits: a rebalance gives it anew."""
        self._waiting.clear()

    def statistics(self) -> Mapping[str, float]:
        """Return how many records of each topic were mapped, and could not be, and how many wait for schemas."""
        waiting = {"schema_waiting": float(len(self._waiting)), "schema_waiting_bytes": float(self._waiting.bytes)}
        return self._counters.rendered() | (waiting if self._has_registry else {})

    def _take(self, records: Sequence[Record], now_us: int, effects: Effects) -> None:
        for record in records:
            if self._waiting.follows(record):
                continue
            try:
                effects.append(self._mapped(record, now_us))
            except UnknownSchemaError as unknown:
                self._waiting.begin(record, unknown.key)
            except (MappingError, DecodeError, SchemaError) as error:
                self._counters["unmapped_total", "topic", record.topic.removeprefix(topics.OUTSIDE)] += 1
                cause = error.cause if isinstance(error, DecodeError) else "unmapped"
                effects.append(DeadLetter(record, cause, str(error)))

    def _mapped(self, record: Record, now_us: int) -> Emit | Skip:
        if record.topic == topics.PREDICTIONS:
            return self._answered(record)
        its = self._from.get(record.topic)
        if its is None:
            return Skip((record.position,), "not_mapped")
        if record.value is None:
            return self._without_value(its, record)
        row = its.read(record.value)
        if its.spec.where is not None and not its.spec.where.holds(row):
            return Skip((record.position,), "filtered")
        self._counters["mapped_total", "application", its.application] += 1
        return self._asked(row, its, record, now_us)

    def _asked(self, row: Mapping[str, Any], its: _From, record: Record, now_us: int) -> Emit | Skip:
        made: Made | None
        if isinstance(its.spec, Incoming):
            if its.arrays and its.spec.input == NO_SOURCE:
                raise MappingError("from.input", f"is needed: model {its.arrays} takes no rows by name")
            made, topic = (
                query_of(row, its.application, record, its.spec, now_us, is_named=its.is_named),
                topics.QUERIES,
            )
        else:
            made, topic = feedback_of(row, its.application, its.spec, record), topics.FEEDBACK
        if made is None:
            return Skip((record.position,), "nothing_told")
        headers: tuple[tuple[str, bytes], ...] = ()
        if topic == topics.QUERIES:
            headers = tuple([header for header in record.headers if header[0] not in (ROW, KEY)])
            headers += ((KEY, record.key),) if record.key is not None and its.is_answered else ()
            headers += ((ROW, record.value or b""),) if its.keeps else ()
        place = partition_of(made.key, self._partitions)
        return Emit(topic, place, made.key, self._codec.encode(made.record), (record.position,), headers)

    def _without_value(self, its: _From, record: Record) -> Emit | Skip:
        """Take back the feedback that a tombstone is about, if it can be told."""
        spec = its.spec
        made = None if isinstance(spec, Incoming) else withdrawal_of(its.application, spec, record)
        if made is None:
            return Skip((record.position,), "tombstone")
        place = partition_of(made.key, self._partitions)
        return Emit(topics.FEEDBACK, place, made.key, self._codec.encode(made.record), (record.position,))

    def _answered(self, record: Record) -> Emit | Skip:
        prediction = self._codec.decode(Prediction, record.value)
        its = self._to.get(prediction.application)
        if its is None:
            return Skip((record.position,), "not_mapped")
        own = {name: value for name, value in record.headers if name in (ROW, KEY)}
        kept = own.get(ROW)
        asked = {} if kept is None or its.read_row is None else its.read_row(kept)
        row = outgoing_row(prediction, asked, its.spec)
        if row is None:
            return Skip((record.position,), "filtered")
        self._counters["answered_total", "application", prediction.application] += 1
        headers = tuple([header for header in record.headers if header[0] not in own])
        key, topic = own.get(KEY, record.key), its.spec.form.topic
        count = max(1, self._counts.get(topic, 1))
        place = record.partition % count if key is None else partition_of(key, count)
        return Emit(topics.outside(topic), place, key, its.write(row), (record.position,), headers)

    def _follow(self, record: Record, effects: Effects) -> None:
        """Take an application as it is deployed now; one whose mapping cannot be read maps nothing."""
        name = (record.key or b"").decode(errors="replace")
        self._mappings.pop(name, None)
        try:
            if record.value is not None and (given := self._codec.decode(Application, record.value)).mapping:
                self._mappings[name] = TopicMapping.parse(given.mapping)
                self._asks[name] = frozenset(given.asks)
            self._connect()
        except (MappingError, DecodeError) as error:
            self._mappings.pop(name, None)
            self._connect()
            effects.append(LogMessage(f"application {name} maps nothing: {error}", is_fault=True))

    def _follow_model(self, record: Record, effects: Effects) -> None:
        """Take what a model that serves is asked with; of other versions nothing is needed."""
        name = (record.key or b"").decode(errors="replace")
        if topics.MODEL_VERSION in name:
            return
        try:
            model = None if record.value is None else self._codec.decode(Model, record.value)
        except DecodeError as error:
            effects.append(LogMessage(f"model {name} cannot be read: {error}", is_fault=True))
            return
        self._takes_rows.pop(name, None)
        if model is not None:
            self._takes_rows[name] = not model.dtype
        self._name_rows()

    def _name_rows(self) -> None:
        """Work out whose rows travel by name."""
        for its in self._from.values():
            asked = self._asks.get(its.application, frozenset())
            its.is_named = bool(asked) and all(self._takes_rows.get(model, False) for model in asked)
            its.arrays = next((model for model in sorted(asked) if not self._takes_rows.get(model, True)), "")

    def _connect(self) -> None:
        """Work out who has which topic."""
        self._from, self._to = {}, {}
        for name, mapping in sorted(self._mappings.items()):
            incoming, outgoing = mapping.incoming, mapping.outgoing
            for spec in (incoming, *mapping.feedback):
                if spec is None:
                    continue
                topic = topics.outside(spec.form.topic)
                if topic in self._from:
                    other = self._from[topic].application
                    raise MappingError(spec.form.topic, f"is read for {other} already: one application reads a topic")
                self._from[topic] = _From(name, spec, outgoing, self._schemas)
            if outgoing is not None:
                self._to[name] = _To(outgoing, incoming, self._schemas)
        self._has_registry = any(mapping.has_registry for mapping in self._mappings.values())
        self._whole = frozenset([topic for topic, its in self._from.items() if its.spec.is_whole])
        self._topics = frozenset([*self._from, *([topics.PREDICTIONS] if self._to else [])])
        self._name_rows()
