"""Shows the demo while it runs: a screen that changes in place on a terminal, otherwise lines each second."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.demo.tally import recent, tried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.console import Console, RenderableType

    from deploy.demo.tally import DemoTrial, Tally, TrialOutcome
    from load.harness.recorder import Recorder

WINDOW_S = 5
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


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model over the last seconds; None where it answered nothing in them."""

    name: str
    share: float
    error: float | None
    batch_cap: int | None  # of its last batch
    batch_rows: float | None  # mean
    queue_rows: int  # most that a batch left waiting
    is_broken: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The application over the last seconds, totals since the start, and every model."""

    application: str
    second: float
    seconds: float
    broken: str | None  # the model that answers wrongly now
    rate: float
    error: float | None
    latency_ms: Mapping[str, float]
    in_time: int
    defaults: int
    late: int
    waiting: int
    feedback_sent: int
    joined: int
    applied: int
    dead_letters: int
    cached: float | None  # share of the models' outputs that they were not asked for
    trial: DemoTrial  # of a new version of a model
    tried: TrialOutcome  # so far
    models: tuple[ModelLine, ...]


def take(tally: Tally, recorder: Recorder, seconds: float, feedback_sent: int, now_us: int, breaking: str) -> Snapshot:
    """Return what has been counted by `now_us`.

    Args:
        tally: of models.
        recorder: of answers.
        seconds: the planned length of the load.
        feedback_sent: by the client.
        now_us: the time.
        breaking: the model that breaks.
    """
    second = min(max(0.0, (now_us - tally.start_us) / 1e6), seconds)
    until = int(second)
    answered = recent(tally.judged_by_second, until, WINDOW_S)
    total = recorder.total
    broken = breaking if tally.phase(second) == "during" else None
    return Snapshot(
        application=tally.application,
        second=second,
        seconds=seconds,
        broken=broken,
        rate=answered / max(1, min(until, WINDOW_S)),
        error=recent(tally.wrong_by_second, until, WINDOW_S) / answered if answered else None,
        latency_ms=recorder.recent_ms(until - WINDOW_S, until),
        in_time=total.in_time,
        defaults=total.defaults,
        late=total.late,
        waiting=recorder.open,
        feedback_sent=feedback_sent,
        joined=tally.joined,
        applied=tally.applied,
        dead_letters=tally.dead_letters,
        cached=_cached(tally, until),
        trial=tally.trial,
        tried=tried(tally.models[tally.trial.model].versions, tally.trial),
        models=tuple(_model_line(tally, name, until, is_broken=name == broken) for name in tally.models),
    )


def _cached(tally: Tally, until: int) -> float | None:
    models = tally.models.values()
    judged = sum(recent(model.judged_by_second, until, WINDOW_S) for model in models)
    cached = sum(recent(model.cached_by_second, until, WINDOW_S) for model in models)
    return cached / judged if judged else None


def _model_line(tally: Tally, name: str, until: int, *, is_broken: bool) -> ModelLine:
    asked = sum(recent(model.asked_by_second, until, WINDOW_S) for model in tally.models.values())
    model = tally.models[name]
    judged = recent(model.judged_by_second, until, WINDOW_S)
    batches = recent(model.batches_by_second, until, WINDOW_S)
    queues = (model.queue_by_second.get(second, 0) for second in range(max(0, until - WINDOW_S), until))
    return ModelLine(
        name=name,
        share=recent(model.asked_by_second, until, WINDOW_S) / max(1, asked),
        error=recent(model.wrong_by_second, until, WINDOW_S) / judged if judged else None,
        batch_cap=model.cap_by_second[max(model.cap_by_second)] if model.cap_by_second else None,
        batch_rows=recent(model.rows_by_second, until, WINDOW_S) / batches if batches else None,
        queue_rows=max(queues, default=0),
        is_broken=is_broken,
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
    trial = f"{now.trial.name} {now.trial.state(now.second)} {now.tried.answered + now.tried.since}"
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
    tables = (_application(now), _counts(now), _model_table(now), _trial_table(now))
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
    heads = ("in time", "default", "late", "waiting", "joined of sent", "learnt", "dead\nletters")
    table = _table("so far", *heads)
    joined = f"{now.joined} of {now.feedback_sent}"
    queries = (str(now.in_time), _count(now.defaults), _count(now.late), str(now.waiting))
    table.add_row("", *queries, joined, str(now.applied), _count(now.dead_letters))
    return table


def _model_table(now: Snapshot) -> Table:
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


def _trial_table(now: Snapshot) -> Table:
    trial, done = now.trial, now.tried
    table = _table("new version", "", "as canary", "error", f"version {trial.before}'s", "serving")
    errors = (_number(error, ".1%") for error in (done.error, done.error_beside))
    table.columns[1].min_width = len("canary 20%")  # its widest state: the columns behind it must not move
    table.add_row(trial.name, trial.state(now.second), str(done.answered), *errors, str(done.since))
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")  # whole in 80 columns
    for place, head in enumerate(heads):
        # A figure that grows a digit must not move its neighbours.
        table.add_column(head, justify="left" if place == 0 else "right", no_wrap=True, min_width=6 if place else 12)
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


@contextmanager
def display(console: Console) -> Iterator[Callable[[Snapshot], None]]:
    """Give a function that shows a snapshot; without a terminal each second is shown once."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda now: live.update(screen(now), refresh=True)
        return
    last = 0

    def show(now: Snapshot) -> None:
        nonlocal last
        if int(now.second) > last:
            last = int(now.second)
            print(line(now), flush=True)

    print(KEY, flush=True)
    yield show
