"""`skysail trace`: what a recorded trace holds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.common import VerbGroup, json_option, print_json, print_table
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from streams.trace.manifest import Manifest

EXAMPLES = """\
skysail trace show yesterday
skysail trace show yesterday --json
"""
MIB = 1 << 20


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def trace() -> None:
    """Recorded traces."""


@trace.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
def show(folder: Path, *, as_json: bool) -> None:
    """Print what the trace in FOLDER holds, once every file has been verified."""
    manifest = Trace.open(folder).manifest
    if as_json:
        print_json(summary(folder, manifest))
    else:
        print_contents(folder, manifest)


def summary(folder: Path, manifest: Manifest) -> dict[str, object]:
    """Return what a trace holds, as JSON values; times are microseconds since the epoch."""
    return {
        "folder": str(folder),
        "prefix": manifest.prefix,
        "source": manifest.source,
        "version": manifest.version,
        "records": manifest.count,
        "bytes": manifest.bytes,
        "from_us": manifest.from_us,
        "until_us": manifest.until_us,
        "topics": {
            topic.name: {
                "records": topic.count,
                "bytes": topic.bytes,
                "partitions": topic.partitions,
                "first": dict(topic.first),
                "next": dict(topic.next),
                "schemas": topic.schemas,
                "dropped": topic.dropped,
                "missed": topic.missed,
            }
            for topic in manifest.topics.values()
        },
    }


def print_contents(folder: Path, manifest: Manifest) -> None:
    """Print what a trace holds as a table."""
    rows = [
        (topic.name, topic.partitions, f"{topic.count:,}", f"{topic.bytes / MIB:.1f}", topic.dropped, topic.missed)
        for topic in manifest.topics.values()
    ]
    print_table(("topic", "partitions", "records", "MiB", "dropped", "missed"), rows)
    span = "nothing yet"
    if manifest.from_us is not None and manifest.until_us is not None:
        seconds = (manifest.until_us - manifest.from_us) / 1e6
        span = f"{_time(manifest.from_us)} to {_time(manifest.until_us)} ({seconds:,.0f} s)"
    click.echo(f"{folder}: {manifest.prefix}, {manifest.count:,} records, {manifest.bytes / MIB:.1f} MiB, {span}")


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
