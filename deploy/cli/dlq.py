"""`skysail dlq`: dead letters are counted, read, sent again and removed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from deploy.cli.common import VerbGroup, json_option, print_json, print_table, with_settings
from deploy.cli.letters_shown import LetterGroup, age, group_as_json, letter_as_json, letter_lines
from deploy.cli.record import place_of
from deploy.cli.record import since as ago
from deploy.connect.clients import answering
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.state import letters as state
from deploy.state.letters import NO_TIME, LettersWanted
from deploy.terminal import echo
from schemas.topics import dead_letters
from streams.dead_letters.redriving import ATTEMPTS_AT_MOST, RedriveRefusal, application_of_letter
from streams.recorder.span import Time

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.dead_letters.letter import Letter
    from streams.dead_letters.redriving import Redriving

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXAMPLES = """\
skysail dlq list                                     what lies there, by topic, cause and application
skysail dlq list --since 1h --json
skysail dlq show feedback@17                         one letter: its cause, where it came from, what is in it
skysail dlq show --topic feedback --cause unmatched --most 5
skysail dlq redrive --topic mapping --dry-run        what would be sent again, and why the others would not
skysail dlq redrive --topic mapping --anew           orders that could not be read, asked as of now
skysail dlq redrive feedback@17 feedback@20
skysail dlq purge --topic feedback --older-than 7d   remove the oldest; asks first
skysail dlq purge --topic feedback --dry-run         how many that would be
"""


def _wanted(function: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options that say which letters are meant, as one value."""

    @click.argument("places", nargs=-1, metavar="[TOPIC@OFFSET]...")
    @click.option("--topic", help="Whose records they are: feedback, queries, mapping, ...")
    @click.option("--cause", help="Such as unmatched; `skysail dlq list` shows which there are.")
    @click.option("--application", help="That they are about, as far as their bytes tell; empty: they tell none.")
    @click.option("--since", help="Written so long ago at most: 90s, 30m, 1.5h, 7d.")
    @click.option("--older-than", help="Written so long ago at least.")
    @wraps(function)
    def wrapped(
        settings: Settings,
        places: tuple[str, ...],
        topic: str | None,
        cause: str | None,
        application: str | None,
        since: str | None,
        older_than: str | None,
        **others: Any,
    ) -> None:
        now_us = time.time_ns() // 1000
        for place in places:
            if not place.rpartition("@")[0] or not place.rpartition("@")[2].isdecimal():
                raise UsageError(f"{place!r} names no letter: write TOPIC@OFFSET, such as feedback@17")
        named = None if topic is None else topic.removesuffix(dead_letters(""))
        begin = ago(since, now_us).us if since else 0
        end = ago(older_than, now_us).us if older_than else NO_TIME
        function(settings, LettersWanted(named, cause, application, begin, end, places), **others)

    return wrapped


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def dlq() -> None:
    """See what could not be used, mend its cause, and send it again."""


@dlq.command("list")
@with_settings
@_wanted
@json_option
def list_(settings: Settings, wanted: LettersWanted, *, as_json: bool) -> None:
    """Count dead letters by topic, cause and application, the most first."""
    codec = codec_for(settings)
    groups: dict[tuple[str, str, str], LetterGroup] = {}
    with answering(settings):
        known = state.known_receipts(settings, wanted)
        for letter in state.letters(settings, wanted, codec):
            name = letter.topic.removesuffix(dead_letters("")), letter.cause, application_of_letter(letter, codec)
            group = groups.setdefault(name, LetterGroup())
            group.add(letter, is_redriven=any(letter.offset in receipt for receipt in known[letter.topic]))
    ordered = sorted(groups.items(), key=lambda item: -item[1].count)
    if as_json:
        print_json([group_as_json(*name, group) for name, group in ordered])
        return
    if not ordered:
        echo("there are no such dead letters")
        return
    now_us = time.time_ns() // 1000
    rows = [
        (topic, cause, application or "-", group.count, group.redriven, f"{group.size:,}",
         age(now_us - group.oldest_us), age(now_us - group.newest_us), group.place)
        for (topic, cause, application), group in ordered
    ]  # fmt: skip
    print_table(
        ("topic", "cause", "application", "letters", "sent again", "bytes", "oldest", "newest", "such as"), rows
    )
    echo("", f"Read one: skysail dlq show {ordered[0][1].place}", "Send again: skysail dlq redrive --dry-run")


@dlq.command()
@with_settings
@_wanted
@click.option("--most", type=click.IntRange(1), default=10, show_default=True, help="Show so many, the newest.")
@json_option
def show(settings: Settings, wanted: LettersWanted, *, most: int, as_json: bool) -> None:
    """Show letters whole: cause, origin, key, headers, and the value as its record or its bytes."""
    codec = codec_for(settings)
    with answering(settings):
        found = list(state.letters(settings, wanted, codec))[-most:]
    shown = [letter_as_json(letter, codec) for letter in found]
    if as_json:
        print_json(shown)
        return
    if not shown:
        echo("there are no such dead letters")
    for number, one in enumerate(shown):
        echo(*([""] if number else []), *letter_lines(one))


@dataclass(slots=True)
class Redriven:
    """What became of the letters that were meant."""

    sent: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    such_as: dict[str, str] = field(default_factory=dict)

    def refuse(self, letter: Letter, reason: str) -> None:
        """Note one that is not sent."""
        self.refused[reason] += 1
        self.such_as.setdefault(reason, letter.place)


@dlq.command()
@with_settings
@_wanted
@click.option("--dry-run", is_flag=True, help="Say what would be sent; send nothing.")
@click.option("--rate", type=click.FloatRange(0.1, 100_000), default=100.0, show_default=True, help="Records a second.")
@click.option("--attempts", type=click.IntRange(1, 100), default=ATTEMPTS_AT_MOST, show_default=True,
              help="What came back so often stays.")  # fmt: skip
@click.option("--anew", is_flag=True, help="Give queries the present time: their own is over.")
@json_option
def redrive(
    settings: Settings, wanted: LettersWanted, *, dry_run: bool, rate: float, attempts: int, anew: bool, as_json: bool
) -> None:
    """Send the records of dead letters again, once, and say why some are not.

    They go to their topic and partition as they were, so ids tell duplicates as always. Records of topics that are not
    Skysail's own are mapped anew, and their own topic is left alone. A receipt in the letters' topic says what was
    sent. Name what is meant: a topic, a cause, an application, places; without any, only --dry-run is answered.
    """
    if wanted == LettersWanted() and not dry_run:
        raise UsageError("say which letters are meant, such as --topic feedback; --dry-run shows what all would become")
    codec = codec_for(settings)
    with answering(settings):
        done = _redrive(settings, codec, wanted, state.redriving(settings, codec, attempts, anew=anew), rate, dry_run)
    if as_json:
        print_json({"sent": done.sent, "refused": done.refused, "dry_run": dry_run})
        return
    would = "would be sent again" if dry_run else "sent again"
    echo(f"{done.sent.total()} {would}{_by(done.sent)}; {done.refused.total()} not")
    for reason, count in done.refused.most_common():
        echo(f"  {count:>6}  {reason}; such as {done.such_as[reason]}")


def _redrive(
    settings: Settings, codec: Codec, wanted: LettersWanted, decides: Redriving, rate: float, dry_run: bool
) -> Redriven:
    known, done = state.known_receipts(settings, wanted), Redriven()
    sender = None if dry_run else state.LetterSender(settings, rate)
    try:
        for letter in state.letters(settings, wanted, codec):
            decided = decides.decide(letter, known, time.time_ns() // 1000)
            if isinstance(decided, RedriveRefusal):
                done.refuse(letter, decided.reason)
                continue
            if sender is not None:
                sender.send(letter, decided)
            done.sent[decided.topic] += 1
    finally:  # who is interrupted has receipts of what was sent
        if sender is not None:
            sender.finish()
    return done


@dlq.command()
@with_settings
@click.option("--topic", required=True, help="Whose letters are removed: feedback, queries, mapping, ...")
@click.option("--older-than", help="Leave what was written since: 90s, 30m, 1.5h, 7d  [default: all are removed]")
@click.option("--before", help="Leave what was written since a time, such as 2026-11-23T14:00 (UTC).")
@click.option("--dry-run", is_flag=True, help="Say how many would be removed; remove none.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def purge(
    settings: Settings, *, topic: str, older_than: str | None, before: str | None, dry_run: bool, yes: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Remove the oldest dead letters of a topic, for good.

    Kafka removes the beginning of a log alone. So there is no choice by cause here: what is to stay is younger. With
    --dry-run --json it says before which moment letters were counted: --before that removes these, and none that come.
    """
    now_us = time.time_ns() // 1000
    end = purged_before(older_than, before, now_us) or (now_us if dry_run else NO_TIME)
    with answering(settings):
        found = state.purged(settings, LettersWanted(topic.removesuffix(dead_letters("")), before_us=end))
        count = sum(its[0] for its in found.values())
        if found and not (yes or dry_run):
            click.confirm(f"remove {count} dead letters for good?", abort=True, err=True)
        if not dry_run:
            state.purge(settings, {name: its[1] for name, its in found.items()})
    if as_json:
        print_json({"removed": count, "dry_run": dry_run, **({"before": time_text(end)} if dry_run else {})})
    else:
        echo(f"{count} would be removed" if dry_run else f"{count} removed")


def purged_before(older_than: str | None, before: str | None, now_us: int) -> int | None:
    """Return the moment (us) from which on letters stay; None = no option says any.

    Raises:
        UsageError: it names no time, or both options are given.
    """
    if older_than and before:
        raise UsageError("--older-than and --before both say what stays: give one of them")
    if not older_than and not before:
        return None
    place = ago(older_than, now_us) if older_than else place_of(before or "", now_us)
    if not isinstance(place, Time):
        raise UsageError(f"{before!r} is no time: write one such as 2026-11-23T14:00")
    return place.us


def time_text(us: int) -> str:
    """Return a time as `--before` takes it, to the microsecond."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat()


def _by(counts: Counter[str]) -> str:
    return f" ({', '.join(f'{count} to {topic}' for topic, count in counts.most_common())})" if counts else ""
