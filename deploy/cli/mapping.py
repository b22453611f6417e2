"""`skysail map`: what an application makes of the topics of others, before anything runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import click

from deploy.cli.common import VerbGroup, json_option, print_json, print_table, with_settings
from deploy.connect.clients import answering
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.state import catalog, desired
from deploy.state.messages import records
from deploy.state.topics import partition_counts
from deploy.terminal import echo
from schemas import topics
from schemas.jsonable import to_json
from schemas.records import Application, Feedback, Query, Tensor
from streams.mapping.kernel import TopicMapper
from streams.mapping.spec import TopicMapping
from streams.operators.contract import DeadLetter, Emit, Record, Skip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.operators.contract import Effect

EXAMPLES = """\
skysail map check fraud                 the last hundred records of each topic that it reads
skysail map check fraud --count 5 --json
"""
_SHOWN = 5  # mapped records of a topic
_FAULTS = 5  # different faults
_WIDE = 60  # characters of a cell


class _MappedTopic(NamedTuple):
    """What became of a topic's last records."""

    topic: str
    mapped: list[tuple[Record, Query | Feedback]]
    skipped: Counter[str]
    faults: list[tuple[Record, str]]


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def map() -> None:  # noqa: A001 - the verb
    """See what an application makes of topics that are not Skysail's own."""


@map.command()
@click.argument("name", metavar="APPLICATION")
@click.option("--count", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Records of each topic.")
@json_option
@with_settings
def check(settings: Settings, name: str, count: int, *, as_json: bool) -> None:
    """Map the last records of each topic that APPLICATION reads, and print what comes of them; nothing is written.

    The application is taken as the settings say it, else as it is deployed. Exits with 1 if a record cannot be mapped.
    """
    codec = codec_for(settings)
    application = _application(settings, codec, name)
    mapping = TopicMapping.parse(application.mapping)
    with answering(settings):
        there = partition_counts(settings, outside=True)
        _check_topics(mapping, {name.removeprefix(topics.OUTSIDE) for name in there})
        seen = [_seen(settings, codec, application, topic, count) for topic in sorted(mapping.reads)]
    if as_json:
        print_json([_plain(each) for each in seen])
    else:
        for each in seen:
            _print(each)
    if any(each.faults for each in seen):
        raise SystemExit(1)


def _application(settings: Settings, codec: Codec, name: str) -> Application:
    """Return an application that maps something."""
    if name in settings.applications:
        found = next(each for each in desired.applications(settings) if each.name == name)
    else:
        known = catalog.read(settings, codec, Application)
        if name not in known:
            there = sorted({*known, *settings.applications})
            raise UsageError(f"there is no application {name}; there are: {', '.join(there) or 'none'}")
        found = known[name]
    if not found.mapping:
        raise UsageError(f"application {name} reads and writes no topics of others: give it `from`, `to` or `feedback`")
    return found


def _check_topics(mapping: TopicMapping, there: set[str]) -> None:
    """Refuse what names topics that are not there.

    Raises:
        UsageError: one of them is not.
    """
    written = set() if mapping.outgoing is None else {mapping.outgoing.form.topic}
    if missing := sorted((mapping.reads | written) - there):
        known = ", ".join(sorted(name for name in there if not name.startswith("__"))) or "none"
        raise UsageError(
            f"there is no topic {', '.join(missing)}; there are: {known}. Skysail creates none of yours: correct the"
            " name, or create it"
        )


def _seen(settings: Settings, codec: Codec, application: Application, topic: str, count: int) -> _MappedTopic:
    """Give the role's own kernel the records of a topic."""
    mapper = TopicMapper(codec, settings.partitions, {})
    mapper.on_records([Record(topics.APPLICATIONS, 0, 0, 0, application.name.encode(), codec.encode(application))], 0)
    seen = _MappedTopic(topic, [], Counter(), [])
    several = count * partition_counts(settings, outside=True)[topics.outside(topic)]
    last = sorted(records(settings, topics.outside(topic), most=several), key=lambda record: record.timestamp_us)[
        -count:
    ]
    for record in last:
        for effect in mapper.on_records([record], record.timestamp_us):
            _note(effect, record, codec, seen)
    return seen


def _note(effect: Effect, record: Record, codec: Codec, seen: _MappedTopic) -> None:
    if isinstance(effect, Emit):
        kind: type[Query | Feedback] = Query if effect.topic == topics.QUERIES else Feedback
        seen.mapped.append((record, codec.decode(kind, effect.value)))
    elif isinstance(effect, Skip):
        seen.skipped[effect.reason] += 1
    elif isinstance(effect, DeadLetter):
        seen.faults.append((record, effect.message))


def _print(seen: _MappedTopic) -> None:
    skipped = "".join(f", {count} {reason}" for reason, count in sorted(seen.skipped.items()))
    echo(f"{seen.topic}: {len(seen.mapped)} mapped{skipped}, {len(seen.faults)} cannot be mapped")
    if seen.mapped:
        rows = [_row(record, made) for record, made in seen.mapped[-_SHOWN:]]
        print_table(("", "place", *rows[0]), (("", _place(record), *row.values()) for (record, _), row in
                    zip(seen.mapped[-_SHOWN:], rows, strict=True)))  # fmt: skip
    faults = _by_fault(seen.faults)
    for message, places in faults[:_FAULTS]:
        echo(f"  {message}", f"    {len(places)} times, such as {places[0]}")
    if len(faults) > _FAULTS:
        echo(f"  and {len(faults) - _FAULTS} other kinds: see --json")


def _row(record: Record, made: Query | Feedback) -> dict[str, str]:
    """Return what is shown of a record."""
    if isinstance(made, Query):
        later = (made.sent_us - record.timestamp_us) / 1e3
        asked = str(made.input.numpy().tolist() if isinstance(made.input, Tensor) else made.input)[:_WIDE]
        return {"query_id": made.query_id, "context": made.context or "", "input": asked, "sent": f"{later:+,.0f} ms"}
    told = made.loss if made.label is None else made.label
    return {"query_id": made.query_id, "told": str(told)[:_WIDE]}


def _by_fault(faults: Iterable[tuple[Record, str]]) -> list[tuple[str, list[str]]]:
    """Return faults, the most frequent first, with the places where each was."""
    found: dict[str, list[str]] = {}
    for record, message in faults:
        found.setdefault(message.partition("; value ")[0], []).append(f"{_place(record)}: {message.partition('; ')[2]}")
    return sorted(found.items(), key=lambda item: -len(item[1]))


def _place(record: Record) -> str:
    return f"{record.partition}@{record.offset}"


def _plain(seen: _MappedTopic) -> dict[str, object]:
    return {
        "topic": seen.topic,
        "mapped": [{"place": _place(record), "record": to_json(made)} for record, made in seen.mapped],
        "skipped": dict(seen.skipped),
        "faults": [{"place": _place(record), "message": message} for record, message in seen.faults],
    }
