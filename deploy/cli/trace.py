"""`skysail trace`: what a recorded trace holds."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click
import yaml

from deploy.cli.common import VerbGroup, json_option, print_json, print_table, with_settings
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.terminal import echo
from schemas import topics
from streams.trace.contents import contents, plot
from streams.trace.dsjson import DsjsonForm
from streams.trace.importing import imported, imported_log
from streams.trace.manifest import TraceManifest
from streams.trace.mapping import TraceMapping
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections import Counter

    from deploy.config.settings import Settings
    from streams.trace.contents import Contents
    from streams.trace.importing import LinesLeftOut

EXAMPLES = """\
skysail trace show yesterday
skysail trace show yesterday --json
skysail trace import requests.csv --mapping requests.yaml requests
skysail trace import log.dsjson --app ads --costs -1 0 ads
skysail trace import log.dsjson --app ads --feature c.user.age --feature c.time=morning ads

A mapping says which columns make queries and feedback:
  application: digits
  time: {column: TIMESTAMP}
  input: {columns: [ContextTokens, GeneratedTokens]}
  label: {column: answer}
  delay: {value: 30}
"""
KIB, MIB = 1 << 10, 1 << 20
MOST = 8  # applications that are shown


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def trace() -> None:
    """Recorded traces."""


@trace.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
@with_settings
def show(settings: Settings, folder: Path, *, as_json: bool) -> None:
    """Print what the trace in FOLDER holds, once every file has been verified.

    The settings say how records are decoded: with `registry.url` set, the registry is asked.
    """
    opened = Trace.open(folder)
    found = contents(opened, codec_for(settings))
    if as_json:
        print_json({**summary(folder, opened.manifest), **found.summary()})
    else:
        print_contents(folder, opened.manifest, found.observations)
        _print_found(found)


def _print_found(found: Contents) -> None:
    """Print rates, applications, models and delays."""
    seconds = found.step_us / 1e6
    for topic, counts in found.counts.items():
        echo(f"{topic:<14}{plot(counts)}  at most {max(counts) / seconds:,.1f}/s")
    _print_counts("queries", found.applications)
    _print_counts("answers", found.statuses)
    for model, outcomes in sorted(found.models.items()):
        _print_counts(model, outcomes)
    shares = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}
    times = ((name, found.delays.quantile_ms(share)) for name, share in shares.items())
    delays = ", ".join(f"{name} {time_ms:,.0f} ms" for name, time_ms in times if time_ms is not None)
    echo(f"feedback comes after: {delays or '-'}; {found.unmatched:,} without a prediction")
    if found.undecodable:
        echo(f"{found.undecodable:,} records are no record of ours")


def _print_counts(what: str, counts: Counter[str]) -> None:
    most = ", ".join(f"{word} {count:,}" for word, count in counts.most_common(MOST))
    echo(f"{what}: {most or '-'}{f', {len(counts) - MOST} more' if len(counts) > MOST else ''}")


@trace.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--mapping", "place", type=click.Path(path_type=Path, exists=True), help="A YAML file.")
@click.option(
    "--format", "kind", type=click.Choice(["rows", "dsjson"]), help="What FILE is [as its ending and --mapping say]."
)
@click.option("--app", "application", help="Of a dsjson log: whose decisions these are to be.")
@click.option(
    "--costs", nargs=2, type=float, default=(-1.0, 0.0), show_default=True, help="Of a dsjson log: lowest and highest."
)
@click.option("--feature", "features", multiple=True, metavar="PATH[=TEXT]", help="Of a dsjson log: a number of it.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@json_option
@with_settings
def import_(
    settings: Settings,
    *,
    file: Path,
    place: Path | None,
    kind: str | None,
    application: str | None,
    costs: tuple[float, float],
    features: tuple[str, ...],
    folder: Path,
    as_json: bool,
) -> None:
    """Make a trace in FOLDER of the rows of FILE: CSV, JSON lines, npz or Parquet, the earliest row first.

    The mapping says which columns make queries and feedback, and what was chosen, how likely and at what cost, for
    `skysail evaluate`; docs/replay.md lists its keys. A log of Vowpal Wabbit or Azure Personalizer (dsjson) needs no
    mapping: lines that are no decision are left out and told with their numbers.
    """
    about = TraceManifest("imported", metadata.version("skysail"), source=file.name)
    is_log = kind == "dsjson" or (kind is None and place is None and file.suffix.lower() == ".dsjson")
    if is_log:
        if application is None or place is not None:
            raise UsageError("a dsjson log takes --app NAME, and no --mapping")
        if not costs[0] < costs[1]:
            raise UsageError(f"--costs {costs[0]:g} {costs[1]:g}: the lowest cost comes first")
        form = DsjsonForm(application, *costs, features)
        manifest, left = imported_log(file, form, folder, about, codec_for(settings))
    else:
        if place is None:
            raise UsageError("name --mapping FILE, or --format dsjson")
        manifest, left = imported(file, _mapping(place), folder, about, codec_for(settings)), None
    if as_json:
        print_json({**summary(folder, manifest), **({} if left is None else _left_out(left))})
        return
    print_contents(folder, manifest)
    if left is not None:
        for reason, count in left.counts.most_common():
            echo(f"left out: {count:,} whose event {reason}; {'; '.join(left.first[reason])}")


def _mapping(place: Path) -> TraceMapping:
    try:
        return TraceMapping.parse(yaml.safe_load(place.read_text("utf-8")))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        message = f"{place} is not a readable YAML file: {error}"
        raise UsageError(message) from error


def _left_out(left: LinesLeftOut) -> dict[str, object]:
    return {
        "left_out": {reason: {"lines": count, "first": left.first[reason]} for reason, count in left.counts.items()}
    }


def summary(folder: Path, manifest: TraceManifest) -> dict[str, object]:
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


def print_contents(folder: Path, manifest: TraceManifest, observations: int = 0) -> None:
    """Print what a trace holds as a table; observations that were counted stand beside their records."""
    inside = {topics.OBSERVATIONS: f" ({observations:,} observations)"} if observations else {}
    rows = [
        (
            topic.name,
            topic.partitions,
            f"{topic.count:,}{inside.get(topic.name, '')}",
            _size(topic.bytes),
            topic.dropped,
            topic.missed,
        )
        for topic in sorted(manifest.topics.values(), key=lambda one: one.name)
    ]
    print_table(("topic", "partitions", "records", "size", "dropped", "missed"), rows)
    span = "nothing yet"
    if manifest.from_us is not None and manifest.until_us is not None:
        seconds = (manifest.until_us - manifest.from_us) / 1e6
        span = f"{_time(manifest.from_us)} to {_time(manifest.until_us)} ({seconds:,.0f} s)"
    echo(f"{folder}: {manifest.prefix}, {manifest.count:,} records, {_size(manifest.bytes)}, {span}")


def _size(count: int) -> str:
    return f"{count / MIB:,.1f} MiB" if count >= MIB else f"{count / KIB:.1f} KiB"


def _time(time_us: int) -> str:
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):  # a client may send any time
        return f"{time_us} us"
