"""`skysail dataset`: the log of an application as files, for retraining elsewhere."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.cli.record import since
from deploy.cli.score import showing
from deploy.connect.clients import answering
from deploy.connect.schema_registry import codec_for
from deploy.dataset.building import READ, build
from deploy.errors import UsageError
from deploy.state.messages import records
from deploy.terminal import echo
from streams.runtime.clock import SystemClock
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.config.settings import Settings
    from deploy.dataset.building import DatasetReport
    from streams.operators.contract import Record

EXAMPLES = """\
skysail dataset --application fraud --since 30d --out fraud-june
skysail dataset --application fraud --since 7d --labelled --out fraud-labels --json
skysail dataset --application fraud --trace traces/monday --out monday
python -c "import pandas; print(pandas.read_parquet('fraud-june'))"
duckdb -c "select label, avg(loss) from 'fraud-june/*.parquet' group by label"
"""


@click.command(cls=Verb, epilog=EXAMPLES)
@click.option("--application", required=True, metavar="NAME", help="Whose queries.")
@click.option("--since", "ago", default="30d", show_default=True, help="Begin so long ago: 90s, 30m, 1.5h, 7d.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Read this recorded trace, all of it, instead of the topics.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Made; must not be there.")
@click.option("--labelled", is_flag=True, help="Only rows with a label.")
@click.option("--form", type=click.Choice(["parquet", "jsonl"]), default="parquet", show_default=True)
@json_option
@with_settings
def dataset(
    settings: Settings, *, application: str, ago: str, trace: Path | None, out: Path, labelled: bool, form: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Write a row for each query of an application into DIR, as Parquet.

    A row has the input (of a data frame, a column for each name), the answer, the decision with its probabilities, and
    the label and losses as far as feedback has told them. Inputs reach back as far as `queries` are kept: see
    `keep_inputs`.
    """
    codec = codec_for(settings)
    since_us = since(ago, SystemClock().now_us()).us
    there = nullcontext() if trace is not None else answering(settings)
    with there, showing("reading records") as tell:
        found = _of_trace(trace) if trace is not None else _of_topics(settings, since_us)
        report = build(found, codec, application, out, lambda done: tell(done, None), labelled_only=labelled, form=form)
    if as_json:
        print_json(report._asdict() | {"out": str(out)})
    else:
        _print(report, out)


def _of_topics(settings: Settings, since_us: int) -> Iterator[Record]:
    for topic in READ:
        yield from records(settings, topic, since_us)


def _of_trace(folder: Path) -> Iterator[Record]:
    trace = Trace.open(folder)
    missing = [topic for topic in READ if topic not in trace.topics()]
    if missing:
        raise UsageError(f"{folder} holds no {', '.join(missing)}: record them, too (`skysail record --help`)")
    for topic in READ:
        yield from trace.records(topic)


def _print(report: DatasetReport, out: Path) -> None:
    echo(f"{report.rows:,} rows in {out}, {report.labelled:,} with a label, {report.with_loss:,} with a loss")
    if report.oldest_input_us is not None:
        at = datetime.fromtimestamp(report.oldest_input_us / 1e6, UTC)
        echo(f"inputs reach back to {at:%Y-%m-%d %H:%M} UTC")
    if report.without_input:
        echo(f"{report.without_input:,} rows have no input: their queries are no longer kept; see `keep_inputs`")
    if report.unanswered:
        echo(f"{report.unanswered:,} queries have no answer in that time, and are left out")
    if report.unreadable:
        echo(f"{report.unreadable:,} records are none of ours, and are left out")
