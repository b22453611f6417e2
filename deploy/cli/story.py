"""`skysail story`: one query from the question to what it taught; or what is known of a context."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.state.context_story import read_context
from deploy.state.story import StoryWish, read_story
from deploy.terminal import echo
from streams.story import contexts, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.config.settings import Settings
    from schemas.avsc import Json
    from streams.story.contexts import ContextStory

EXAMPLES = """\
skysail story 019aa3f0c1e27d3b...                           an id that Skysail drew: it says when
skysail story order-17 --at 2026-11-27T12:30                one of yours: quicker with its time
skysail story order-17 --context user-17 --json
skysail story --application digits --context user-17        its state, and its last answers
"""
_DIGITS_S = 11  # longer numbers are milliseconds


class TimeOption(click.ParamType):
    """A time as ISO 8601 (UTC if it does not say) or seconds or milliseconds since the epoch, in microseconds."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the microseconds since the epoch."""
        text = str(value)
        try:
            if text.isdigit():
                return int(text) * (1_000_000 if len(text) < _DIGITS_S else 1_000)
            found = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is no time; write 2026-11-27T12:30 (UTC), or seconds since the epoch", param, ctx)
        aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return int(aware.timestamp() * 1e6)


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("query_id", required=False)
@click.option("--application", help="Without QUERY_ID: whose context is asked about, or whose own state.")
@click.option("--context", help="The query's context, if it had one: fewer partitions are searched.")
@click.option("--at", "at_us", type=TimeOption(), help="When it was asked, about; for ids that Skysail did not draw.")
@click.option("--fold", "folds_all", is_flag=True, help="Show the state before and after, however long its log is.")
@json_option
@with_settings
def story(
    settings: Settings,
    query_id: str | None,
    *,
    application: str | None,
    context: str | None,
    at_us: int | None,
    folds_all: bool,
    as_json: bool,
) -> None:
    """Tell what became of the query QUERY_ID: who asked, what was decided, each model's time, what it taught.

    With --application instead: the state of that context, and its last answers.

    All of it is read from the topics, as long as they are kept: questions to models for an hour, queries for a day,
    answers and feedback for a week.
    """
    if (query_id is None) == (application is None):
        raise UsageError("give either QUERY_ID or --application (with --context)")
    codec = codec_for(settings)
    if application is not None:
        known = asyncio.run(read_context(settings, codec, application, context, _told))
        if known.is_empty:
            raise UsageError(_unknown(settings, known))
        _print(contexts.document(known), contexts.lines(known), as_json=as_json)
        return
    found = asyncio.run(read_story(settings, codec, StoryWish(query_id or "", context, at_us, folds_all), _told))
    if found.is_empty:
        raise UsageError("; ".join((f"nothing names query {query_id}", *found.notes)))
    _print(words.document(found), words.lines(found), as_json=as_json)


def _print(document: dict[str, Json], lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        echo(*lines)


def _told(text: str) -> None:
    echo(f"searching {text}", err=True)


def _unknown(settings: Settings, known: ContextStory) -> str:
    who = "" if known.context is None else f", context {known.context}"
    return (
        f"nothing is known of application {known.application}{who}: no state in Redis, no answer in"
        f" {settings.prefix}.predictions; {'; '.join(known.notes) or 'all of its partition was read'}."
        " `skysail app list` has the applications"
    )
