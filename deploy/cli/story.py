"""`skysail story`: one query from the question to what it taught; or what is known of a context."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.state.story import StoryWish, read_story
from deploy.terminal import echo
from streams.story.words import document, lines, moment

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from streams.story.values import Story

EXAMPLES = """\
skysail story 019aa3f0c1e27d3b...                           an id that Skysail drew: it says when
skysail story order-17 --at 2026-11-27T12:30                one of yours: quicker with its time
skysail story order-17 --context user-17 --json
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
@click.argument("query_id")
@click.option("--context", help="The query's context, if it had one: fewer partitions are searched.")
@click.option("--at", "at_us", type=TimeOption(), help="When it was asked, about; for ids that Skysail did not draw.")
@click.option("--fold", "folds_all", is_flag=True, help="Show the state before and after, however long its log is.")
@json_option
@with_settings
def story(
    settings: Settings, query_id: str, *, context: str | None, at_us: int | None, folds_all: bool, as_json: bool
) -> None:
    """Tell what became of the query QUERY_ID: who asked, what was decided, each model's time, what it taught.

    All of it is read from the topics, as long as they are kept: questions to models for an hour, queries for a day,
    answers and feedback for a week.
    """
    asked = StoryWish(query_id, context, at_us, folds_all)
    found = asyncio.run(read_story(settings, codec_for(settings), asked, _told))
    if found.is_empty:
        raise UsageError(_not_found(asked, found))
    if as_json:
        print_json(document(found))
    else:
        echo(*lines(found))


def _told(text: str) -> None:
    echo(f"searching {text}", err=True)


def _not_found(asked: StoryWish, found: Story) -> str:
    notes = "; ".join(found.notes)
    if asked.time_us is None:
        return f"nothing names query {asked.query_id}: all of predictions and queries was searched; {notes}"
    when = moment(asked.time_us)
    return f"nothing names query {asked.query_id} around {when}; {notes}"
