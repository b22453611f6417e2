"""How a snapshot is shown: a screen for a terminal, a line for anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.demo.snapshot import WINDOW_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from deploy.demo.snapshot import ModelLine, Snapshot

BAR_CELLS = 16
# Above this a share of errors is shown as bad: an honest digits model errs on less than a third.
BAD_ERROR = 0.4
QUANTILES = ("p50", "p95", "p99")
NOTHING = "–"  # noqa: RUF001 - a dash of a digit's width
WIDTH = 160  # of what is printed without a terminal; continued lines begin under the words of the first
INDENT = " " * 9
KEY = (
    f"every second; rate, error, latency, cached and models: last {WINDOW_S} s; the rest: since the start;"
    "\neach model: share of traffic, error, batch cap, rows a batch, queue; a new version: state, queries answered"
)


def line(now: Snapshot) -> str:
    """Return one second in plain text, in lines of `WIDTH`; `KEY` says what its figures are."""
    latency = "/".join(_number(now.latency_ms.get(name), ".0f") for name in QUANTILES)
    application = (
        f"{now.second:5.0f} s  {now.application} {now.rate:.0f}/s error {_number(now.error, '.1%')}"
        f" p50/p95/p99 {latency} ms cached {_number(now.cached, '.0%')}"
        f"  in time {now.in_time} default {now.defaults} late {now.late} waiting {now.waiting}"
        f" joined {now.joined} learnt {now.applied} dead letters {now.dead_letters}"
    )
    trial = f"{now.trial.name} {now.trial.state} {now.trial.answered + now.trial.since}"
    return _folded([application, *map(_plain, now.models), trial])


def _folded(parts: Iterable[str]) -> str:
    """Join the parts, each as a whole in a line that has room for it."""
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} | {part}" if lines[-1] else part
        if len(joined) > WIDTH and lines[-1]:
            lines.append(f"{INDENT}{part}")
        else:
            lines[-1] = joined
    return "\n".join(lines)


def _plain(model: ModelLine) -> str:
    name = f"{model.name} (broken)" if model.is_broken else model.name
    error, rows = _number(model.error, ".1%"), _number(model.batch_rows, ".1f")
    return f"{name} {model.share:.0%} {error} {_number(model.batch_cap, 'd')} {rows} {model.queue_rows}"


def screen(now: Snapshot) -> RenderableType:
    """Return the live screen."""
    blank = Text()
    tables = (_application(now), _counts(now), _models(now), _trial(now))
    return Group(blank, _head(now), *(part for table in tables for part in (blank, table)), blank, _legend())


def _head(now: Snapshot) -> RenderableType:
    row = Table.grid(padding=(0, 2), expand=False)
    sound = Text("all models are sound", "green")
    state = Text(f"{now.broken} answers wrongly", "bold red") if now.broken else sound
    bar = ProgressBar(total=now.seconds, completed=now.second, width=BAR_CELLS + 14)
    row.add_row(Text("Skysail", "bold"), bar, Text(f"{now.second:.0f} of {now.seconds:.0f} s"), state)
    return row


def _application(now: Snapshot) -> Table:
    table = _table("application", "rate /s", "error", "p50 ms", "p95", "p99", "cached")
    latency = (_number(now.latency_ms.get(name), ".1f") for name in QUANTILES)
    table.add_row(now.application, f"{now.rate:.0f}", _error(now.error), *latency, _number(now.cached, ".0%"))
    return table


def _counts(now: Snapshot) -> Table:
    table = _table(
        "since the start", "in time", "default", "late", "waiting", "joined of sent", "learnt", "dead letters"
    )
    joined = f"{now.joined} of {now.feedback_sent}"
    queries = (str(now.in_time), _count(now.defaults), _count(now.late), str(now.waiting))
    table.add_row("", *queries, joined, str(now.applied), _count(now.dead_letters))
    return table


def _models(now: Snapshot) -> Table:
    table = _table("model", "", "share", "error", "batch cap", "rows a batch", "queue")
    table.columns[1].justify = "left"
    for model in now.models:
        name = Text(f"{model.name}  BROKEN", "bold red") if model.is_broken else Text(model.name)
        table.add_row(
            name,
            _bar(model),
            f"{model.share:.1%}",
            _error(model.error),
            _number(model.batch_cap, "d"),
            _number(model.batch_rows, ".1f"),
            str(model.queue_rows),
        )
    return table


def _trial(now: Snapshot) -> Table:
    trial = now.trial
    table = _table("a new version", "", "as canary", "error", f"version {trial.before}'s", "serving")
    errors = (_number(error, ".1%") for error in (trial.error, trial.error_before))
    table.columns[1].min_width = len("canary 20%")  # its widest state: the columns behind it must not move
    table.add_row(trial.name, trial.state, str(trial.answered), *errors, str(trial.since))
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for place, head in enumerate(heads):
        # A figure that grows a digit must not move its neighbours.
        table.add_column(head, justify="left" if place == 0 else "right", no_wrap=True, min_width=7 if place else 18)
    return table


def _bar(model: ModelLine) -> Text:
    cells = round(model.share * BAR_CELLS)
    bar = Text().append("█" * cells, "red" if model.is_broken else "cyan")
    return bar.append("░" * (BAR_CELLS - cells), "dim")


def _error(error: float | None) -> Text:
    style = "bold red" if error is not None and error > BAD_ERROR else ""
    return Text(_number(error, ".1%"), style)


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _count(count: int) -> Text:
    return Text(str(count), "yellow" if count else "")


def _legend() -> Text:
    text = f"rate, error, latency, cached, share, rows, queue: last {WINDOW_S} s; latency: from the intended send time"
    return Text(text, "dim")
