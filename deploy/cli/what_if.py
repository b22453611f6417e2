"""`skysail replay --offline --set`: what a change would have done to the queries of a trace."""

from __future__ import annotations

import html
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deploy.cli.common import print_json, print_table
from deploy.cli.offline import deployment
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.terminal import echo
from streams.replay.what_if.comparison import AtHand, WhatIf
from streams.replay.what_if.outcomes import ALPHA
from streams.trace.contents import BARS
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deploy.config.settings import Settings
    from schemas.records import Input
    from streams.operators.contract import Predicted
    from streams.replay.what_if.comparison import ChangeComparison

COLUMNS: Final = ("recorded", "unchanged", "changed")
COLOURS: Final = {"recorded": "#888", "unchanged": "#36c", "changed": "#c33"}
NOTE: Final = (
    "recorded: as it was, live. unchanged and changed: both in virtual time, on recorded outputs and service times;"
    " instead of ways through Kafka there are polls, every twentieth part of the objective, 10 ms at most. So compare"
    " those two. Queries are left out of all columns if a model was asked whose answer to them is not recorded. Where"
    " one model was asked alone, what is left favours what was chosen live: `skysail evaluate` weighs that by the"
    " recorded propensities."
)
WIDTH, HEIGHT = 720, 220  # of a plot, in pixels


class WhatIfQuestion(NamedTuple):
    """What the command line asks."""

    changes: tuple[str, ...]
    application: str | None
    page: Path | None
    packages: tuple[Path, ...]
    as_json: bool


def what_if(settings: Settings, folder: Path, asked: WhatIfQuestion) -> None:
    """Play a trace with a change and without, and print what the change does."""
    trace = Trace.open(folder)
    begun_s = time.monotonic()
    at_hand = [_at_hand(settings, folder) for folder in asked.packages]
    player = WhatIf(trace, asked.application, deployment(trace.manifest), codec_for(settings), at_hand)
    found = player.compare(_changes(asked.changes))
    given = summary(found, player.application.name, asked.changes, time.monotonic() - begun_s)
    if asked.page is not None:
        asked.page.write_text(page(given), encoding="utf-8")
    if asked.as_json:
        print_json(given)
    else:
        _print(given)


def summary(found: ChangeComparison, application: str, changes: Sequence[str], took_s: float) -> dict[str, Any]:
    """Return what a change does, for scripts and for the page."""
    outcomes = found.columns
    last = found.difference[-1] if found.difference else None
    return {
        "application": application,
        "changes": list(changes),
        "difference": None if last is None else last._asdict() | {"confidence": 1.0 - ALPHA},
        "queries": found.queries,
        "counted": len(found.order),
        "left_out": found.left_out,
        "took_s": took_s,
        "queries_per_s": found.queries / took_s,
        **{name: outcome.figures(found.order) for name, outcome in outcomes.items()},
        "difference_over_time": [moment._asdict() for moment in found.difference],
        "error_over_time": {name: outcome.curve(found.order) for name, outcome in outcomes.items()},
    }


def rows(given: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table: a figure, its value in each column, and what the change adds."""
    is_priced = any(given[column]["cost"] is not None for column in COLUMNS)
    figures = [
        ("error", "{:.4f}"),
        *([("cost", "{:,.2f}")] if is_priced else []),
        ("defaults", "{:.2%}"),
        ("p50_ms", "{:.1f}"),
        ("p99_ms", "{:.1f}"),
    ]
    found = [_row(name, form, [given[column][name] for column in COLUMNS]) for name, form in figures]
    models = sorted({model for column in COLUMNS for model in given[column]["shares"]})
    return found + [
        _row(f"share of {model}", "{:.1%}", [given[column]["shares"].get(model, 0.0) for column in COLUMNS])
        for model in models
    ]


def page(given: Mapping[str, Any]) -> str:
    """Return a page with the table and plots, whole in itself."""
    title = html.escape(f"What if {', '.join(given['changes'])}: {given['application']}")
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in (("", *COLUMNS, "difference"), *rows(given))
    )
    legend = " ".join(f'<b style="color:{colour}">{name}</b>' for name, colour in COLOURS.items())
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>body{{font:15px sans-serif;"
        "max-width:760px;margin:2em auto}td{padding:2px 14px 2px 0}td+td{text-align:right}</style>"
        f"<h1>{title}</h1><p><b>{html.escape(_difference(given))}</b></p><p>{_said(given)}</p><table>{cells}</table>"
        f"<h2>Difference of errors, by the queries so far</h2>{_band(given['difference_over_time'])}"
        f"<h2>Error over time</h2><p>{legend}</p>"
        f"{_curves(given['error_over_time'])}<h2>Share of models</h2>{_shares(given)}<p>{html.escape(NOTE)}</p>\n"
    )


def _at_hand(settings: Settings, package: Path) -> AtHand:
    """Load a model's package, to be asked what is not recorded.

    Raises:
        PackageError: it cannot be loaded.
    """
    from deploy.state.packages import loaded
    from workers.executors.predictor import predictor

    record, model = loaded(settings, package)
    answer = predictor(model)

    def predict(rows: Sequence[Input]) -> tuple[Predicted, int]:
        begun_ns = time.perf_counter_ns()
        predicted = answer(rows)
        return predicted, max(1, (time.perf_counter_ns() - begun_ns) // 1_000)

    return AtHand(record, predict)


def _changes(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, is_set, value = text.partition("=")
        if not (name.strip() and is_set and value.strip()):
            raise UsageError(f"--set {text}: write NAME=VALUE, such as policy=thompson")
        found[name.strip()] = value.strip()
    return found


def _row(name: str, form: str, values: Sequence[float | None]) -> tuple[str, ...]:
    shown = ["-" if value is None else form.format(value) for value in values]
    before, after = values[1], values[2]
    sign = form.replace("{:", "{:+z")  # z: no -0.00%
    return name, *shown, "-" if before is None or after is None else sign.format(after - before)


def _said(given: Mapping[str, Any]) -> str:
    counted, queries, left = given["counted"], given["queries"], given["left_out"]
    return f"{counted:,} of {queries:,} queries count; {left:,} are left out, as some answer is not recorded"


def _difference(given: Mapping[str, Any]) -> str:
    """Say what the change adds to the error, and whether that may be chance."""
    last = given["difference"]
    if last is None:
        return "error, changed - unchanged: not known, as feedback tells no query in both"
    low, high = last["low"], last["high"]
    word = "lower" if high < 0 else "higher" if low > 0 else "not known to be lower or higher"
    interval = f"{last['confidence']:.0%} interval {low:+.4f} to {high:+.4f}"
    return f"error, changed - unchanged: {last['mean']:+.4f}, {interval}, {last['queries']:,} queries: {word}"


def _print(given: Mapping[str, Any]) -> None:
    echo(_said(given))
    print_table(("", *(name.upper() for name in COLUMNS), "DIFFERENCE"), rows(given))
    echo(_difference(given))
    top = _top(given["error_over_time"])
    echo(f"error over time, at most {top:.1%}")
    for name in COLUMNS:
        curve = given["error_over_time"][name]
        echo(f"{name:<10}{_bars(curve, top)}")
    echo(f"{given['queries']:,} queries in {given['took_s']:.1f} s: {given['queries_per_s']:,.0f} queries/s")
    echo(NOTE)


def _top(curves: Mapping[str, Sequence[float | None]]) -> float:
    """Return the largest loss, for the scale of all curves; 1 if there is none."""
    return max((loss for curve in curves.values() for loss in curve if loss is not None), default=0.0) or 1.0


def _bars(curve: Sequence[float | None], top: float) -> str:
    """Return losses of 0 to `top` as a line of bars."""
    return "".join(" " if loss is None else BARS[round(loss / top * (len(BARS) - 1))] for loss in curve)


def _curves(curves: Mapping[str, Sequence[float | None]]) -> str:
    top = _top(curves)
    lines = "".join(
        f'<polyline fill="none" stroke-width="2" stroke="{COLOURS[name]}" points="{_points(curve, top)}"/>'
        for name, curve in curves.items()
    )
    axis = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/><text x="4" y="14">{top:.1%}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%">{axis}{lines}</svg>'


def _band(course: Sequence[Mapping[str, float]]) -> str:
    """Draw the mean difference and its interval after each part of the queries, around a line at 0."""
    top = max([abs(moment[end]) for moment in course for end in ("mean", "low", "high")], default=0.0) or 1.0
    step, middle = WIDTH / max(1, len(course) - 1), HEIGHT / 2

    def points(end: str) -> list[str]:
        return [f"{at * step:.1f},{middle * (1 - moment[end] / top):.1f}" for at, moment in enumerate(course)]

    area = " ".join(points("low") + points("high")[::-1])
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%"><polygon fill="{COLOURS["changed"]}" fill-opacity="0.2"'
        f' points="{area}"/><polyline fill="none" stroke-width="2" stroke="{COLOURS["changed"]}"'
        f' points="{" ".join(points("mean"))}"/><path d="M0 {middle}H{WIDTH}" stroke="#888"/>'
        f'<text x="4" y="14">{top:+.3f}</text><text x="4" y="{middle - 4}">0</text>'
        f'<text x="4" y="{HEIGHT - 4}">{-top:+.3f}</text></svg>'
    )


def _points(curve: Sequence[float | None], top: float) -> str:
    step = WIDTH / max(1, len(curve) - 1)
    known = [(at, loss) for at, loss in enumerate(curve) if loss is not None]
    return " ".join(f"{at * step:.1f},{HEIGHT * (1 - loss / top):.1f}" for at, loss in known)


def _shares(given: Mapping[str, Any]) -> str:
    models = sorted({model for column in COLUMNS for model in given[column]["shares"]})
    parts, top = [], 0
    for model in models:
        parts.append(f'<text x="0" y="{top + 14}">{html.escape(model)}</text>')
        for column in COLUMNS:
            share = given[column]["shares"].get(model, 0.0)
            width = share * (WIDTH - 200)
            parts.append(f'<rect x="140" y="{top}" width="{width:.1f}" height="10" fill="{COLOURS[column]}"/>')
            parts.append(f'<text x="{146 + width:.1f}" y="{top + 10}" font-size="11">{share:.1%}</text>')
            top += 12
        top += 8
    return f'<svg viewBox="0 0 {WIDTH} {max(top, 1)}" width="100%">{"".join(parts)}</svg>'
