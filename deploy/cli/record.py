"""`skysail record`: topics into a folder, any span of them."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.cli.trace import print_contents, summary
from deploy.config.addresses import connection
from deploy.config.recorded import about
from deploy.connect.clients import answering
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.state.topics import partition_counts
from streams.recorder.recorder import FETCHING, Recorder
from streams.recorder.span import Offset, RecordedSpan, Time
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.log_reader import KafkaLogs
from streams.topology import RECORDED
from streams.trace.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.config.settings import Settings
    from streams.recorder.span import Place
    from streams.trace.manifest import TraceManifest

EXAMPLES = """\
skysail record yesterday --since 24h
skysail record monday --from 2026-11-23T00:00 --until 2026-11-24T00:00
skysail record all                           from the oldest record to the present end
skysail record live --from now --follow      from now on, until Ctrl-C
skysail record asked --topics queries,feedback
"""
SHOW_S = 0.5
UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
SINCE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def place_of(text: str, now_us: int) -> Place:
    """Return the place that a text names: an offset, `now`, or an ISO time, UTC unless it says otherwise.

    Raises:
        UsageError: it names none.
    """
    if text.isdecimal():
        return Offset(int(text))
    if text == "now":
        return Time(now_us)
    try:
        moment = datetime.fromisoformat(text)
        return Time(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6))
    except ValueError:
        message = f"{text!r} is no place: write an offset, `now`, or a time such as 2026-11-23T14:00"
        raise UsageError(message) from None


def since(text: str, now_us: int) -> Time:
    """Return the time so long ago, such as `90s`, `30m`, `1.5h` or `7d`.

    Raises:
        UsageError: it is no such time.
    """
    match = SINCE.fullmatch(text)
    if match is None:
        message = f"{text!r} is no span of time: write a number and s, m, h or d, such as 90s or 1.5h"
        raise UsageError(message)
    return Time(now_us - int(float(match[1]) * UNITS_S[match[2]] * 1e6))


def span_of(begin: str | None, ago: str | None, end: str | None, *, follow: bool, now_us: int) -> RecordedSpan:
    """Return the span that the options name.

    Raises:
        UsageError: they contradict each other.
    """
    if begin and ago:
        raise UsageError("--since and --from both say where to begin: give one of them")
    first = since(ago, now_us) if ago else place_of(begin, now_us) if begin else None
    last = place_of(end, now_us) if end else None
    if follow and isinstance(last, Offset):
        raise UsageError("--follow goes with --until TIME, not with an offset")
    return RecordedSpan(first, last, follow)


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--topics", "names", help="Names without the prefix, by commas [default: what replay needs].")
@click.option("--since", "ago", help="Begin so long ago: 90s, 30m, 1.5h, 7d [default: the oldest record].")
@click.option("--from", "begin", help="Begin at this time (ISO, UTC), `now`, or this offset of each partition.")
@click.option("--until", "end", help="End before this time (ISO, UTC) or offset [default: the present end].")
@click.option("--follow", is_flag=True, help="Go on with what comes, until --until or Ctrl-C.")
@json_option
@with_settings
def record(
    settings: Settings,
    folder: Path,
    *,
    names: str | None,
    ago: str | None,
    begin: str | None,
    end: str | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Record topics into FOLDER: Avro files that any Avro tool reads, and a manifest.

    A recording that was interrupted goes on where it was. What is there already is not recorded again. `applications`,
    `models`, `candidates` and `promotions` are recorded from their beginning.
    """
    span = span_of(begin, ago, end, follow=follow, now_us=time.time_ns() // 1000)
    topics = _present(settings, names)
    with answering(settings):
        manifest = asyncio.run(_recorded(settings, folder, topics, span))
    if as_json:
        print_json(summary(folder, manifest))
    else:
        print_contents(folder, manifest)


def _present(settings: Settings, names: str | None) -> Sequence[str]:
    """Return the topics to record: those that are named, or those of the default that there are."""
    there = partition_counts(settings)
    wanted = [name.strip() for name in names.split(",")] if names else [name for name in RECORDED if name in there]
    missing = [name for name in wanted if name not in there]
    if missing or not wanted:
        what = ", ".join(f"{settings.prefix}.{name}" for name in missing) or f"with the prefix {settings.prefix}"
        message = f"there is no topic {what}; there are: {', '.join(sorted(there)) or 'none'}"
        raise UsageError(message)
    return wanted


async def _recorded(settings: Settings, folder: Path, topics: Sequence[str], span: RecordedSpan) -> TraceManifest:
    """Record until the span ends or a signal comes; return what the trace holds then."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    logs = KafkaLogs(connection(settings, "skysail-record"), topics, FETCHING)
    with TraceWriter(folder, about(settings), codec_for(settings)) as writer:
        recorder = Recorder(logs, writer, span, SystemClock().now_us)
        showing = asyncio.create_task(_show(recorder))
        try:
            await recorder.run(stop)
        finally:
            showing.cancel()
            await asyncio.wait([showing])
    return writer.manifest


async def _show(recorder: Recorder) -> None:
    """Show how far it is, on a terminal."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("recording", total=None)
        while True:
            done, left = recorder.recorded, recorder.left()
            total = None if left is None else done + left
            bar.update(task, completed=done, total=total, description=f"recording: {done:,} records")
            await asyncio.sleep(SHOW_S)
