"""`skysail score`: many rows at once, through packages and policies, without a topic between."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.cli.record import since
from deploy.errors import UsageError
from deploy.scoring import opening
from deploy.scoring.job import CHUNK_ROWS
from deploy.scoring.opening import ScoreOptions
from deploy.terminal import echo
from streams.mapping.fields import source
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deploy.config.settings import Settings
    from deploy.scoring.job import ScoringReport
    from streams.mapping.fields import FieldSource

EXAMPLES = """\
skysail score rows.parquet --package models/forest-1 --out scored.parquet       a package alone: no service is asked
skysail score rows.parquet --model forest@2 --out scored.parquet                a version that is deployed
skysail score orders/ --application fraud --out scored.parquet                  as its policy has learnt
skysail score orders.csv --application fraud --input amount,items --id order_id --out scored.csv
skysail score orders.jsonl --application fraud --input '{"columns": {"age": "user.age"}}' --out scored.jsonl
skysail score topic:orders --application fraud --out scored.parquet             to where the topic ends now
skysail score orders.jsonl --application fraud --out topic:orders.scored
skysail score rows.parquet --model forest --keep none --field id --field score=answer --out scored.parquet
"""


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("rows", metavar="FILE|DIR|topic:NAME")
@click.option("--application", metavar="NAME", help="Ask it, as its policy has learnt.")
@click.option("--model", metavar="NAME[@VERSION]", help="Ask this model, of a version or label [the one that serves].")
@click.option(
    "--package",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Ask the model in this folder; neither Kafka nor Redis is needed.",
)
@click.option("--out", required=True, metavar="FILE|topic:NAME", help="A file is written whole, or not at all.")
@click.option("--input", "given", help="What models are asked about: columns a,b,c, a path, or JSON as in a mapping.")
@click.option("--id", "id_", metavar="FIELD", help="A row's id, which draws its model [default: its file and place].")
@click.option("--key", metavar="FIELD", help="A row's context, of an application with a state for each.")
@click.option("--features", metavar="FIELDS", help="A row's features, of an application whose policy goes by them.")
@click.option("--keep", default="all", show_default=True, help="Columns of the input that are kept: all, none, a,b.")
@click.option("--field", "fields", multiple=True, metavar="[NAME=]FIELD", help="A field of the output [default: all].")
@click.option("--chunk-rows", type=click.IntRange(1, 10_000_000), default=CHUNK_ROWS, show_default=True)
@click.option("--since", "ago", help="Begin so long ago in a topic: 90s, 30m, 1.5h, 7d [default: its oldest record].")
@click.option("--restart", is_flag=True, help="Begin anew, whatever an earlier start has done.")
@click.option("--overwrite", is_flag=True, help="Replace an output that is there.")
@json_option
@with_settings
def score(
    settings: Settings, rows: str, *, given: str | None, id_: str | None, ago: str | None, as_json: bool, **options: Any
) -> None:
    """Answer every row of FILE, of the files of DIR (Parquet, CSV, JSON lines, Avro, by their endings), or of a topic.

    The output has one row for each, in order, with the id, answer, confidence, status, reason, model, version and
    probability. A row that cannot be asked has the default answer and the reason. A killed run goes on when the same
    command is given again.
    """
    named = {"input": given, "id": id_, "key": options.pop("key"), "features": options.pop("features")}
    options |= {key: None if text is None else _source(key, text) for key, text in named.items()}
    since_us = 0 if ago is None else since(ago, SystemClock().now_us()).us
    told = ScoreOptions(rows=rows, since=ago or "", since_us=since_us, **options)
    with showing("scoring rows") as tell:
        report = opening.scored(settings, told, tell)
    if as_json:
        print_json(as_plain(report, told.out))
    else:
        _print(report, told.out)


def _source(key: str, text: str) -> FieldSource:
    """Return where a value comes from, by the language of mappings; a text is a column, or several with commas."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return source(key, json.loads(text))
        except ValueError as error:
            raise UsageError(f"--{key}: {error}") from error
    names = [name.strip() for name in text.split(",") if name.strip()]
    return source(key, names[0] if len(names) == 1 else names)


@contextmanager
def showing(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield what is told how much is done, of how much; a terminal shows it."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def tell(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total, description=f"{what}: {done:,}")

        yield tell


def as_plain(report: ScoringReport, out: str) -> dict[str, Any]:
    """Return what came of a job, for scripts."""
    scored = report.rows - report.resumed
    return {
        "out": out,
        "rows": report.rows,
        "defaults": report.counts,
        "resumed_rows": report.resumed,
        "took_s": round(report.took_s, 3),
        "rows_per_s": round(scored / report.took_s) if report.took_s else 0,
    }


def _print(report: ScoringReport, out: str) -> None:
    fresh = report.rows - report.resumed
    went_on = f", {report.resumed:,} of them by an earlier start" if report.resumed else ""
    echo(f"{report.rows:,} rows in {out}{went_on}; {fresh / max(report.took_s, 1e-9):,.0f} rows/s")
    for reason, count in sorted(report.counts.items(), key=lambda each: -each[1]):
        echo(f"  {count:,} have the default answer: {reason or 'no reason was given'}")
