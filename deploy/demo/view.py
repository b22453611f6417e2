"""How a snapshot is shown: a screen for a terminal, a line for anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.demo.snapshot import WINDOW_S

if TYPE_CHECKING:
    from rich.console import RenderableType

    from deploy.demo.snapshot import ModelLine, Snapshot

BAR_CELLS = 16
# Above this a share of errors is shown as bad: an honest digits model errs on less than a third.
BAD_ERROR = 0.4


def line(now: Snapshot) -> str:
    """Return one line of plain text."""
    shares = " ".join(f"{model.name}{' (broken)' if model.is_broken else ''} {model.share:.0%}" for model in now.models)
    latency = "/".join(f"{now.latency_ms[name]:.0f}" for name in ("p50", "p95", "p99"))
    return (
        f"{now.second:5.0f} s  {now.rate:5.0f}/s  error {_share(now.error)}  p50/p95/p99 {latency} ms"
        f"  in time {now.in_time} default {now.defaults} late {now.late}"
        f"  joined {now.joined} learnt {now.applied} dead {now.dead_letters}  share {shares}"
    )


def screen(now: Snapshot) -> RenderableType:
    """Return the live screen."""
    blank = Text()
    return Group(_head(now), blank, _application(now), blank, _counts(now), blank, _models(now), blank, _legend())


def _head(now: Snapshot) -> RenderableType:
    row = Table.grid(padding=(0, 2), expand=False)
    state = Text("a model is broken", "bold red") if now.is_broken else Text("all models are sound", "green")
    bar = ProgressBar(total=now.seconds, completed=now.second, width=BAR_CELLS + 14)
    row.add_row(Text("Skysail", "bold"), bar, Text(f"{now.second:.0f} of {now.seconds:.0f} s"), state)
    return row


def _application(now: Snapshot) -> Table:
    table = _table("application", "rate /s", "error", "p50 ms", "p95", "p99")
    latency = (f"{now.latency_ms[name]:.1f}" for name in ("p50", "p95", "p99"))
    table.add_row(now.application, f"{now.rate:.0f}", _error(now.error), *latency)
    return table


def _counts(now: Snapshot) -> Table:
    table = _table("since the start", "in time", "default", "late", "joined", "learnt", "dead letters")
    joined = f"{now.joined} of {now.feedback_sent}"
    trouble = (_count(now.defaults), _count(now.late))
    table.add_row("", str(now.in_time), *trouble, joined, str(now.applied), _count(now.dead_letters))
    return table


def _models(now: Snapshot) -> Table:
    table = _table("model", "", "share", "error", "batch cap", "rows", "queue")
    table.columns[1].justify = "left"
    for model in now.models:
        name = Text(f"{model.name}  BROKEN", "bold red") if model.is_broken else Text(model.name)
        table.add_row(
            name,
            _bar(model),
            f"{model.share:.1%}",
            _error(model.error),
            f"{model.batch_cap:.0f}",
            f"{model.batch_rows:.1f}",
            f"{model.queue_rows:.0f}",
        )
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place == 0 else "right", no_wrap=True)
    table.columns[0].min_width = 18  # so that a name does not jump when BROKEN is put behind it
    return table


def _bar(model: ModelLine) -> Text:
    cells = round(model.share * BAR_CELLS)
    bar = Text().append("█" * cells, "red" if model.is_broken else "cyan")
    return bar.append("░" * (BAR_CELLS - cells), "dim")


def _error(error: float | None) -> Text:
    style = "bold red" if error is not None and error > BAD_ERROR else ""
    return Text(_share(error), style)


def _share(error: float | None) -> str:
    return "     –" if error is None else f"{error:6.1%}"  # noqa: RUF001 - a dash of a digit's width


def _count(count: int) -> Text:
    return Text(str(count), "yellow" if count else "")


def _legend() -> Text:
    return Text(f"rate, error, share: last {WINDOW_S} s; latency: from the intended send time", "dim")
