"""What an application reads and writes of topics that are not Skysail's own: `from`, `to`, `feedback`.

from:     {topic: orders, format: json, id: order_id, key: user, input: [amount, country], sent: created_at,
           where: "status = 'new'"}
to:       {topic: orders.scored, format: json, fields: {order_id: id, score: answer, sure: confidence}, keep: all}
feedback: [{topic: chargebacks, format: json, id: order.id, label: is_fraud}]

Each key says where its value comes from, in the language of `fields`: a text alone is a path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from streams.mapping.errors import MappingError
from streams.mapping.expressions import Expression, parse
from streams.mapping.fields import FieldSource, duration_us, source, unknown
from streams.mapping.formats import FORMATS, REGISTRY, TopicForm, reader, writer
from streams.mapping.schemas import RegisteredSchemas

if TYPE_CHECKING:
    from collections.abc import Sequence

Keep: TypeAlias = "Literal['all', 'none'] | tuple[str, ...]"
# What the record that asked is called among the fields of its answer, and the header in which it travels.
ROW: Final = "row"
# What is known of an answer; `outgoing.row_of` says what stands in `models` and `decision`.
ANSWER: Final = (
    "id", "application", "context", "answer", "confidence", "status", "reason", "message", "sent_us", "answered_us",
    "took_ms", "models", "decision", "labels", "interval",
)  # fmt: skip
_FORM: Final = ("topic", "format", "columns", "delimiter", "schema", "message")
_FROM: Final = (*_FORM, "id", "key", "input", "features", "sent", "slo_ms", "priority", "version", "where", "begin")
_TO: Final = (*_FORM, "fields", "keep", "where")
# What a record of feedback may tell of an answer: one of these, and of a metric its value.
TOLD: Final = ("label", "loss", "places", "metric")
_FEEDBACK: Final = (*_FORM, "id", "key", "within", "replaces", *TOLD, "value", "weight", "sent", "where", "begin")


# Of an `input` that is left out.
NO_SOURCE: Final = FieldSource()


@dataclass(frozen=True, slots=True)
class Incoming:
    """Records that become queries; without an `input` the whole record is the row, by the names of its fields."""

    form: TopicForm
    input: FieldSource = NO_SOURCE
    id: FieldSource | None = None
    key: FieldSource | None = None
    features: FieldSource | None = None
    sent: FieldSource | None = None
    slo_ms: FieldSource | None = None
    priority: FieldSource | None = None
    version: FieldSource | None = None
    where: Expression | None = None
    is_whole: bool = False  # also what was in the topic before it was first read


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records that predictions become.

    Attributes:
        form: the topic.
        fields: where each of its fields comes from: see `answers.row_of`.
        keep: which fields of the record that asked stand in it, too.
        where: which predictions; None = all.
    """

    form: TopicForm
    fields: Mapping[str, FieldSource]
    keep: Keep = "none"
    where: Expression | None = None

    @property
    def reads_row(self) -> bool:
        """Whether it needs the record that asked."""
        paths = [path for source in self.fields.values() for path in source.paths]
        paths += [] if self.where is None else self.where.paths
        return self.keep != "none" or any(path == ROW or path.startswith(f"{ROW}.") for path in paths)


@dataclass(frozen=True, slots=True)
class IncomingFeedback:
    """Records that become feedback: on the query with an id, or on the last answer of a key within a time."""

    form: TopicForm
    id: FieldSource | None = None
    key: FieldSource | None = None
    within_us: int = 0
    replaces: bool = False  # the last record about a query counts, until its window is nearly over
    label: FieldSource | None = None
    loss: FieldSource | None = None
    places: FieldSource | None = None  # of a ranking: a list, each with position or item, and label or loss
    metric: str = ""  # the application's; "" = none
    value: FieldSource | None = None  # of the metric
    weight: FieldSource | None = None
    sent: FieldSource | None = None
    where: Expression | None = None
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class TopicMapping:
    """All that an application has of other topics."""

    incoming: Incoming | None = None
    outgoing: Outgoing | None = None
    feedback: tuple[IncomingFeedback, ...] = field(default=())

    @property
    def reads(self) -> frozenset[str]:
        """The topics that are read."""
        its = [] if self.incoming is None else [self.incoming.form.topic]
        return frozenset([*its, *[each.form.topic for each in self.feedback]])

    @property
    def has_registry(self) -> bool:
        """Whether schemas of a registry are needed."""
        forms = [one.form for one in (self.incoming, self.outgoing, *self.feedback) if one is not None]
        return any(form.schema == REGISTRY for form in forms)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> TopicMapping:
        """Return what `from`, `to` and `feedback` say.

        Raises:
            MappingError: a key is unknown, missing, or says nothing that is known.
        """
        incoming = None if given.get("from") is None else _incoming(_section("from", given["from"]))
        outgoing = None if given.get("to") is None else _outgoing(_section("to", given["to"]))
        told: Any = given.get("feedback") or ()
        told = (told,) if isinstance(told, Mapping) else tuple(told)
        feedback = tuple(
            [_feedback(f"feedback[{place}]", _section("feedback", each)) for place, each in enumerate(told)]
        )
        found = cls(incoming, outgoing, feedback)
        found.check()
        return found

    @classmethod
    def parse(cls, text: str) -> TopicMapping:
        """Return what an application's record says.

        Raises:
            MappingError: it is not what `of` takes.
        """
        try:
            given = json.loads(text) if text else {}
        except ValueError as error:
            raise MappingError("mapping", f"is no JSON: {error}") from error
        return cls.of(_section("mapping", given))

    def check(self) -> None:
        """Check that the parts go together.

        Raises:
            MappingError: they do not.
        """
        none = RegisteredSchemas()
        for one in (self.incoming, *self.feedback):
            if one is not None:
                reader(one.form, none)
        outgoing = self.outgoing
        if outgoing is not None:
            writer(outgoing.form, none)
        if outgoing is not None and outgoing.keep != "none" and self.incoming is None:
            raise MappingError("to.keep", "there is no `from` whose fields could be kept")
        if outgoing is not None and outgoing.form.topic in self.reads:
            raise MappingError("to.topic", f"{outgoing.form.topic} is read, too: that would go round for ever")
        keyed = self.incoming is not None and self.incoming.key is not None
        for place, each in enumerate(self.feedback):
            if each.within_us and self.incoming is not None and not keyed:
                raise MappingError(f"feedback[{place}].within", "`from` has no key by which an answer could be found")
            if keyed and each.key is None:
                raise MappingError(
                    f"feedback[{place}].key", "is needed, as `from` has a key: it says where the query is"
                )


def _section(name: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise MappingError(name, f"is an object with keys and values, not {given!r:.80}")
    return given


def _known(name: str, given: Mapping[str, Any], known: Sequence[str], needed: Sequence[str]) -> TopicForm:
    """Check a section's keys, and return its form."""
    for key in given:
        if key not in known:
            raise unknown(f"{name}.{key}", [f"{name}.{each}" for each in known])
    missing = [key for key in ("topic", *needed) if given.get(key) is None]
    if missing:
        raise MappingError(name, f"lacks {', '.join(missing)}")
    form = TopicForm(
        str(given["topic"]),
        str(given.get("format", "json")),
        tuple(map(str, given.get("columns") or ())),
        str(given.get("delimiter", ",")),
        _schema(given.get("schema")),
        str(given.get("message", "")),
    )
    if form.format not in FORMATS:
        raise MappingError(f"{name}.format", f"is {form.format!r}; there are: {', '.join(FORMATS)}")
    if form.format == "csv" and not form.columns:
        raise MappingError(f"{name}.columns", "is needed for csv: the names of a line's fields, in order")
    if form.format in ("avro", "protobuf") and not form.schema:
        raise MappingError(f"{name}.schema", f"is needed for {form.format}: {REGISTRY}, or a file with the schema")
    if len(form.delimiter) != 1:
        raise MappingError(f"{name}.delimiter", "is one character")
    return form


def _schema(given: object) -> str:
    """Return a schema as a form has it: a text is `registry`, or what has been read from a file."""
    return "" if given is None else given if isinstance(given, str) else json.dumps(given)


def _sources(name: str, given: Mapping[str, Any], keys: Sequence[str]) -> dict[str, FieldSource]:
    return {key: source(f"{name}.{key}", given[key]) for key in keys if given.get(key) is not None}


def _where(given: Mapping[str, Any]) -> Expression | None:
    return None if given.get("where") is None else parse(str(given["where"]))


def _is_whole(name: str, given: Mapping[str, Any]) -> bool:
    begin = given.get("begin", "latest")
    if begin not in ("earliest", "latest"):
        raise MappingError(f"{name}.begin", f"is {begin!r}; there are: earliest, latest")
    return bool(begin == "earliest")


def _incoming(given: Mapping[str, Any]) -> Incoming:
    form = _known("from", given, _FROM, ())
    keys = ("input", "id", "key", "features", "sent", "slo_ms", "priority", "version")
    return Incoming(form, **_sources("from", given, keys), where=_where(given), is_whole=_is_whole("from", given))


def _outgoing(given: Mapping[str, Any]) -> Outgoing:
    form = _known("to", given, _TO, ("fields",))
    fields = _section("to.fields", given["fields"])
    keep = given.get("keep", "none")
    if isinstance(keep, list):
        keep = tuple(map(str, keep))
    elif keep not in ("all", "none"):
        raise MappingError("to.keep", f"is {keep!r}; there are: all, none, a list of fields")
    if form.format == "csv" and (unset := {*form.columns} - {*fields} and keep == "none"):
        raise MappingError("to.columns", f"nothing says what stands in {unset}")
    made = {str(name): source(f"to.fields.{name}", given) for name, given in fields.items()}
    where = _where(given)
    for name, one in made.items():
        _check_paths(f"to.fields.{name}", one.paths)
    if where is not None:
        _check_paths("to.where", where.paths)
    return Outgoing(form, made, keep, where)


def _check_paths(key: str, paths: Sequence[str]) -> None:
    """Check that an answer has what is named."""
    for path in paths:
        if (first := path.partition(".")[0]) not in (*ANSWER, ROW):
            raise MappingError(key, str(unknown(first, (*ANSWER, ROW))))


def _feedback(name: str, given: Mapping[str, Any]) -> IncomingFeedback:
    form = _known(name, given, _FEEDBACK, ())
    is_keyed = given.get("within") is not None
    if is_keyed is (given.get("id") is not None):
        raise MappingError(name, "either id names the query, or key and within: the last answer of that key")
    if is_keyed and given.get("key") is None:
        raise MappingError(f"{name}.key", "is needed for within: whose last answer is meant")
    _check_told(name, given)
    found = _sources(name, given, ("id", "key", "label", "places", "sent"))
    for key in ("loss", "value", "weight"):
        number = given.get(key)
        if isinstance(number, str):
            found[key] = FieldSource(expression=parse(number))
        elif number is not None:
            found[key] = source(f"{name}.{key}", number)
    replaces = given.get("replaces", False)
    if not isinstance(replaces, bool) or (replaces and is_keyed):
        raise MappingError(f"{name}.replaces", "is true or false, and true only where id names the query")
    within_us = duration_us(f"{name}.within", given["within"]) if is_keyed else 0
    where, is_whole, metric = _where(given), _is_whole(name, given), str(given.get("metric") or "")
    return IncomingFeedback(
        form, **found, within_us=within_us, replaces=replaces, metric=metric, where=where, is_whole=is_whole
    )


def _check_told(name: str, given: Mapping[str, Any]) -> None:
    """Check that one thing is told, and of whom it can be."""
    told = [key for key in TOLD if given.get(key) is not None]
    if len(told) != 1:
        raise MappingError(
            name, "either label or loss says what was right, or places or a metric are told: one of them"
        )
    if (given.get("value") is not None) is not (told == ["metric"]):
        raise MappingError(f"{name}.value", "is what a metric came to: metric and value go together")
    if told == ["metric"] and given.get("replaces"):
        raise MappingError(f"{name}.metric", "counts as it is first told: without replaces")
    if told == ["metric"] and given.get("weight") is not None:
        raise MappingError(f"{name}.weight", "is for what is learnt; nobody learns from a metric")
