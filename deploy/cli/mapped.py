"""Shared by `skysail map check` and `skysail feedback check`: which application, and what is printed of its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from deploy.cli.common import print_json, print_table
from deploy.connect.clients import answering
from deploy.connect.schema_registry import codec_for
from deploy.diagnose.mapped_topics import check_topics, last_asked, last_mapped
from deploy.diagnose.matched_feedback import AskedQueries
from deploy.diagnose.suited_rows import unsuited
from deploy.errors import UsageError
from deploy.state import catalog, desired
from deploy.state.topics import partition_counts
from deploy.terminal import echo
from schemas import topics
from schemas.jsonable import to_json
from schemas.records import Application, Feedback, KeyedFeedback, MetricFeedback, Query, Tensor
from streams.mapping.spec import TopicMapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deploy.config.settings import Settings
    from deploy.diagnose.mapped_topics import MappedRecord, MappedTopic
    from deploy.diagnose.matched_feedback import FeedbackMatch
    from schemas.codec import Codec
    from streams.operators.contract import Record

_SHOWN = 5  # mapped records of a topic
_FAULTS = 5  # different faults
_WIDE = 60  # characters of a cell
# Queries among which feedback is looked for: 0.3 s of mapping.
_ASKED = 10_000

count_option = click.option(
    "--count", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Records of each topic."
)


class _CheckedTopic(NamedTuple):
    """A topic, for feedback which queries it is about (None: there is nothing to look in), and rows no model takes."""

    seen: MappedTopic
    matches: list[FeedbackMatch] | None
    unsuited: list[tuple[Record, str]]


def check(settings: Settings, name: str, count: int, *, as_json: bool, feedback_alone: bool) -> None:
    """Print what an application makes of the last records of each topic that it reads, or of its feedback alone.

    Raises:
        UsageError: there is no such application, it has no such topics, or one of them is not there.
        SystemExit: a record cannot be mapped.
    """
    codec = codec_for(settings)
    application = _application(settings, codec, name)
    mapping = TopicMapping.parse(application.mapping)
    told = {each.form.topic for each in mapping.feedback}
    if feedback_alone and not told:
        raise UsageError(f"application {name} reads no feedback from topics of others: give it `feedback`")
    with answering(settings):
        there = partition_counts(settings, outside=True)
        check_topics(mapping, {name.removeprefix(topics.OUTSIDE) for name in there})
        asked = _asked(settings, codec, application, mapping) if told else None
        wanted = sorted(told if feedback_alone else mapping.reads)
        seen = [last_mapped(settings, codec, application, topic, count) for topic in wanted]
    shown = [
        _CheckedTopic(
            each,
            [asked.match(one) for one in each.mapped] if asked is not None and each.topic in told else None,
            unsuited(settings.models, application.asks, each.mapped),
        )
        for each in seen
    ]
    if as_json:
        print_json([_plain(each) for each in shown])
    else:
        for each in shown:
            _print(each)
    if any(each.seen.faults for each in shown):
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


def _asked(settings: Settings, codec: Codec, application: Application, mapping: TopicMapping) -> AskedQueries:
    """Return the last queries: of the topic that asks, else of the clients."""
    if mapping.incoming is None:
        return AskedQueries(last_asked(settings, codec, application, _ASKED))
    return AskedQueries(last_mapped(settings, codec, application, mapping.incoming.form.topic, _ASKED).mapped)


def _print(shown: _CheckedTopic) -> None:
    seen, matches, refused = shown
    skipped = "".join(f", {count} {reason}" for reason, count in sorted(seen.skipped.items()))
    found = "" if not matches else f"; {sum(each.query_id is not None for each in matches)} find their query"
    echo(f"{seen.topic}: {len(seen.mapped)} mapped{skipped}, {len(seen.faults)} cannot be mapped{found}")
    if seen.mapped:
        rows = [_row(each) for each in seen.mapped[-_SHOWN:]]
        if matches is not None:
            rows = [row | {"query": match.words} for row, match in zip(rows, matches[-_SHOWN:], strict=True)]
        places = [_place(each.record) for each in seen.mapped[-_SHOWN:]]
        print_table(
            ("", "place", *rows[0]), (("", place, *row.values()) for place, row in zip(places, rows, strict=True))
        )
    faults = _by_fault(seen.faults)
    for message, seen_at in faults[:_FAULTS]:
        echo(f"  {message}", f"    {len(seen_at)} times, such as {seen_at[0]}")
    if len(faults) > _FAULTS:
        echo(f"  and {len(faults) - _FAULTS} other kinds: see --json")
    if refused:
        echo(f"  {len(refused)} do not suit the models, and would be answered by default:")
        kinds = _by_fault(refused)
        echo(
            *[f"    {message}: {len(at)} times, such as {at[0].removesuffix(': ')}" for message, at in kinds[:_FAULTS]]
        )


def _row(mapped: MappedRecord) -> dict[str, str]:
    """Return what is shown of a record."""
    record, made, _ = mapped
    if isinstance(made, Query):
        later = (made.sent_us - record.timestamp_us) / 1e3
        asked = str(made.input.numpy().tolist() if isinstance(made.input, Tensor) else made.input)[:_WIDE]
        return {"query_id": made.query_id, "context": made.context or "", "input": asked, "sent": f"{later:+,.0f} ms"}
    about = made.context if isinstance(made, KeyedFeedback) else made.query_id
    is_keyed = isinstance(made, KeyedFeedback) and not made.revises
    return {"last_of" if is_keyed else "query_id": about, "told": _told(made)[:_WIDE]}


def _told(made: Feedback | KeyedFeedback | MetricFeedback) -> str:
    """Say what a record tells of an answer."""
    if isinstance(made, MetricFeedback) or (isinstance(made, KeyedFeedback) and made.metric):
        return f"{made.metric} {made.value:g}"
    if made.places:
        return f"places {', '.join([one.item or str(one.position) for one in made.places])}"
    if made.label is not None:
        return f"label {made.label}"
    return "nothing" if made.loss is None else f"loss {made.loss:g}"


def _by_fault(faults: Iterable[tuple[Record, str]]) -> list[tuple[str, Sequence[str]]]:
    """Return faults, the most frequent first, with the places where each was."""
    found: dict[str, list[str]] = {}
    for record, message in faults:
        found.setdefault(message.partition("; value ")[0], []).append(f"{_place(record)}: {message.partition('; ')[2]}")
    return sorted(found.items(), key=lambda item: -len(item[1]))


def _place(record: Record) -> str:
    return f"{record.partition}@{record.offset}"


def _plain(shown: _CheckedTopic) -> dict[str, object]:
    seen, matches, refused = shown
    mapped = [{"place": _place(each.record), "record": to_json(each.made)} for each in seen.mapped]
    for one, match in zip(mapped, matches or (), strict=False):
        one["query"] = {"query_id": match.query_id, "message": match.words}
    return {
        "topic": seen.topic,
        "mapped": mapped,
        "skipped": dict(seen.skipped),
        "faults": [{"place": _place(record), "message": message} for record, message in seen.faults],
        "unsuited": [{"place": _place(record), "message": message} for record, message in refused],
    }
