"""The report as one HTML page that needs nothing beside it, with its plots as inline SVG."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, PercentFormatter

from deploy.demo.contexts import sentence
from deploy.demo.models import ENSEMBLE
from streams.evaluation.drawing import COLOURS, STYLE, panels, svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from deploy.demo.tally import DemoTrial

SIZE_INCHES = (8.6, 2.7)
PLACE = (0.075, 0.17, 0.75, 0.73)  # left, bottom, width, height: the same in every plot, so that their times align
SMOOTHED_S = 5
LATENCY_TICKS_MS = [step * 10**power for power in range(-1, 6) for step in (1, 2, 5)]
OWN_PLACE = ("models", "notes", "what_if")
TEMPLATE = Path(__file__).with_name("page.html")
_MANY_DEFAULTS = 0.2  # from this share on the defaults are the story


@dataclass(frozen=True, slots=True)
class PlottedSeries:
    """What is plotted, by second from the start; arrays of shape (seconds,), NaN where nothing is known."""

    broken_s: tuple[float, float]
    broken_model: str
    best_model: str
    asked: NDArray[np.float64]  # queries answered
    wrong: NDArray[np.float64]  # of them wrong
    asked_by_model: Mapping[str, NDArray[np.float64]]  # model queries answered
    wrong_by_model: Mapping[str, NDArray[np.float64]]  # had the model answered every query alone
    cap_by_model: Mapping[str, NDArray[np.float64]]
    latency_ms: Mapping[str, NDArray[np.float64]]  # by quantile, from the intended send time
    slo_ms: float
    trial: DemoTrial
    answered_by_version: Mapping[str, NDArray[np.float64]]  # by the versions of the model of which one is tried


def smooth(counts: NDArray[np.float64], seconds: int = SMOOTHED_S) -> NDArray[np.float64]:
    """Return the sum over each second and the ones before it, `seconds` in all; shape as `counts`."""
    sums: NDArray[np.float64] = np.cumsum(np.concatenate([[0.0], counts]))
    first = np.maximum(np.arange(1, len(sums)) - seconds, 0)
    return sums[1:] - sums[first]


def traffic(series: PlottedSeries) -> str:
    """Stack each model's share of the model queries."""
    figure, axes = _axes(series, "share of traffic")
    counts = np.stack([smooth(counts, 2) for counts in series.asked_by_model.values()])
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    axes.stackplot(_seconds(series), shares, labels=list(series.asked_by_model), colors=COLOURS, alpha=0.85)
    for moment in series.broken_s:  # the shade is behind the stack
        axes.axvline(moment, color="black", linewidth=1, linestyle="--")
    axes.set_ylim(0, 1)
    return _svg(figure, axes)


def versions(series: PlottedSeries) -> str:
    """Stack each version's share of what one model answered."""
    figure, axes = _axes(series, f"answers of {series.trial.model}")
    counts = np.stack([smooth(counts, 2) for counts in series.answered_by_version.values()])
    labels = [f"version {name}" for name in series.answered_by_version]
    axes.stackplot(
        _seconds(series), counts / np.maximum(counts.sum(axis=0), 1), labels=labels, colors=COLOURS, alpha=0.85
    )
    for moment in (series.trial.begin_s, series.trial.end_s):
        axes.axvline(moment, color="black", linewidth=1, linestyle="--")
    axes.set_ylim(0, 1)
    return _svg(figure, axes)


def pen_shares(shares: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> str:
    """Stack each model's share of what was asked with each pen, over the second act; shares of shape (parts,)."""
    figure, panes = panels(len(shares), (SIZE_INCHES[0], 2.5))
    for axes, (pen, by_model) in zip(panes, shares.items(), strict=True):
        values = np.stack([*by_model.values()])
        done = np.linspace(0, 1, values.shape[1])
        axes.stackplot(done, values, labels=[*by_model], colors=COLOURS, alpha=0.85)
        axes.set(title=pen, xlim=(0, 1), ylim=(0, 1), xlabel="of the second act")
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    panes[0].set_ylabel("share of traffic")
    return _svg(figure, panes[-1])


def error(series: PlottedSeries) -> str:
    """Draw the error over the last seconds: the answers, and each model had it been alone."""
    figure, axes = _axes(series, f"error, last {SMOOTHED_S} s")
    asked = np.maximum(smooth(series.asked), 1)
    _lines(axes, series, {name: smooth(wrong) / asked for name, wrong in series.wrong_by_model.items()})
    axes.plot(_seconds(series), smooth(series.wrong) / asked, color="black", linewidth=2.2, label="answers")
    axes.set_ylim(0, 1.02)
    return _svg(figure, axes)


def total_error(series: PlottedSeries) -> str:
    """Draw the error since the start, with the best single model in hindsight dashed."""
    figure, axes = _axes(series, "error since the start")
    asked = np.maximum(np.cumsum(series.asked), 1)
    _lines(axes, series, {name: np.cumsum(wrong) / asked for name, wrong in series.wrong_by_model.items()})
    best = np.cumsum(series.wrong_by_model[series.best_model]) / asked
    axes.plot(_seconds(series), best, color="black", linewidth=1.4, linestyle="--", label="best in hindsight")
    axes.plot(_seconds(series), np.cumsum(series.wrong) / asked, color="black", linewidth=2.2, label="answers")
    axes.set_ylim(bottom=0)
    return _svg(figure, axes)


def latency(series: PlottedSeries) -> str:
    """Draw latency quantiles against the objective."""
    figure, axes = _axes(series, "latency (ms)")
    for (name, values), colour in zip(series.latency_ms.items(), COLOURS, strict=False):
        axes.plot(_seconds(series), values, color=colour, label=name)
    axes.axhline(series.slo_ms, color="black", linewidth=1, linestyle=":", label=f"objective {series.slo_ms:g} ms")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(LATENCY_TICKS_MS))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    return _svg(figure, axes)


def batch_cap(series: PlottedSeries) -> str:
    """Draw each worker's batch cap."""
    figure, axes = _axes(series, "batch cap (rows)")
    _lines(axes, series, series.cap_by_model)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_ylim(bottom=0)
    return _svg(figure, axes)


def _axes(series: PlottedSeries, label: str) -> tuple[Figure, Axes]:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES)
        axes = figure.add_axes(PLACE)
    last = len(series.asked)
    axes.set(xlabel="seconds", ylabel=label, xlim=(1, max(2, last)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    begin, end = (min(moment, last) for moment in series.broken_s)
    if begin < end:
        axes.axvspan(begin, end, color="#D55E00", alpha=0.09, linewidth=0)
        words = f"{series.broken_model} is broken"
        top = axes.get_xaxis_transform()
        axes.text((begin + end) / 2, 1.02, words, transform=top, ha="center", va="bottom", fontsize=8, color="#A03000")
    return figure, axes


def _lines(axes: Axes, series: PlottedSeries, values: Mapping[str, Sequence[float] | NDArray[np.float64]]) -> None:
    for (name, line), colour in zip(values.items(), COLOURS, strict=False):
        axes.plot(_seconds(series), line, color=colour, linewidth=1.3, label=name)


def _seconds(series: PlottedSeries) -> NDArray[np.float64]:
    """Return the ends of the seconds: what is shown at 8 was counted until then."""
    return np.arange(1, len(series.asked) + 1, dtype=np.float64)


def _svg(figure: Figure, axes: Axes) -> str:
    with mpl.rc_context(STYLE):
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return svg(figure)


def page(
    report: Mapping[str, Any], series: PlottedSeries, pens: Mapping[str, Mapping[str, NDArray[np.float64]]]
) -> str:
    """Return the page for a report as `report.json` holds it, and its series.

    Args:
        report: its content.
        series: of the first act.
        pens: by pen and model, the share that it was asked, over the second act; none = there was none.
    """
    drawn = {draw.__name__: draw(series) for draw in (traffic, error, total_error, versions, latency, batch_cap)}
    words = {name: escape(_shown(report[name])) for name in ("stamp", "seconds", "rate", "policy", "broker", "redis")}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        **words,
        **drawn,
        story=escape(story(report)),
        trial=escape(trial(report)),
        contexts=escape(sentence(report["contexts"])),
        pens=pen_shares(pens) if pens else "",
        what_if=escape(report["what_if"]["sentence"]),
        tiles=_tiles(report),
        models=_models(report),
        figures=_figures(report),
    )


def story(report: Mapping[str, Any]) -> str:
    """Say in a few sentences what happened."""
    name = report["broken_model"]
    shares = report["models"][name]
    phases = {"before": "until it broke", "during": "while it was broken", "after": "after it was mended"}
    asked = [
        f"{shares[f'share_{phase}']:.0%} of the time {words}"
        for phase, words in phases.items()
        if shares[f"share_{phase}"] is not None
    ]
    early = f"Ended early, after {report['seconds_run']:g} s. " if report["interrupted"] else ""
    return (
        f"{_overloaded(report)}{early}{name} was asked {', '.join(asked)}. The answers were wrong {report['error']:.1%}"
        f" of the time; always asking {name} would have meant {report['error_by_model'][name]:.1%}, the best single"
        f" model in hindsight ({report['best_model']}) {report['error_best_single']:.1%}, and asking all"
        f" {len(report['models'])} to vote (policy {ENSEMBLE}), for {len(report['models'])} times the work,"
        f" {report['error_voting']:.1%}."
    )


def trial(report: Mapping[str, Any]) -> str:
    """Say what came of the new version."""
    done = report["canary"]
    name, before, model = f"{done['model']} {done['version']}", f"{done['model']} {done['before']}", done["model"]
    if not done["answered"]:
        return f"{name} has not answered anything as a canary: on this machine it was not loaded in time."
    errors = f"{done['error']:.1%} wrong"
    if done["error_beside"] is not None:
        errors += f" ({before} meanwhile {done['error_beside']:.1%})"
    served = f"; since it serves, it answered {done['answered_since']}" if done["answered_since"] else ""
    return (
        f"{name}, a canary for {done['share']:.0%} of the queries to {model}, answered {done['answered']} of them,"
        f" {errors}{served}."
    )


def _overloaded(report: Mapping[str, Any]) -> str:
    """Say so if the machine was too slow for the rate: what follows is no verdict on models and policy then."""
    share = report["defaults"] / max(1, report["queries_sent"])
    if share < _MANY_DEFAULTS:
        return ""
    return (
        f"{share:.0%} of the answers were the default output: this machine could not keep up with {report['rate']:g}"
        " queries a second, so what follows says little about models and policy. Try again with less beside it, or with"
        " DEMO_RATE=30. "
    )


def _tiles(report: Mapping[str, Any]) -> str:
    latency = report["latency_ms"]
    tiles = [
        ("error of the answers", f"{report['error']:.2%}"),
        ("best single model, in hindsight", f"{report['error_best_single']:.2%}"),
        ("within the objective", f"{report['within_slo']:.2%}"),
        ("answered from the cache", f"{report['cache_hit_ratio']:.1%}"),
        _by_new_version(report["canary"]),
        ("default outputs", f"{report['defaults']}"),
        ("latency p50 / p99", f"{latency['p50']:.0f} / {latency['p99']:.0f} ms"),
        ("answered", f"{report['predictions_distinct']} of {report['queries_sent']}"),
        ("feedback learnt", f"{report['observations_applied']} of {report['feedback_sent']}"),
    ]
    return "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles
    )


def _by_new_version(canary: Mapping[str, Any]) -> tuple[str, str]:
    name = f"{canary['model']} {canary['version']}"
    return f"answers of {name}, as canary + since it serves", f"{canary['answered']} + {canary['answered_since']}"


def _models(report: Mapping[str, Any]) -> str:
    heads = (
        "model",
        "error alone",
        "share before",
        "during",
        "after",
        "batch cap, most",
        "batches",
        "rows",
        "rows a batch",
        "from the cache",
    )
    return _table(heads, [_model_row(name, report) for name in report["models"]])


def _model_row(name: str, report: Mapping[str, Any]) -> Sequence[str]:
    model = report["models"][name]
    shares = (model[f"share_{phase}"] for phase in ("before", "during", "after"))
    return (
        name,
        f"{report['error_by_model'][name]:.2%}",
        *("" if share is None else f"{share:.1%}" for share in shares),
        f"{model['batch_cap_max']:g}",
        f"{model['batches']}",
        f"{model['rows']}",
        f"{model['rows'] / max(1, model['batches']):.2f}",
        f"{model['cached']}",
    )


def _figures(report: Mapping[str, Any]) -> str:
    """Return every figure with where it comes from; those of models have a table of their own."""
    notes = report["notes"]
    rows = [(name, _shown(value), notes.get(name, "")) for name, value in report.items() if name not in OWN_PLACE]
    of_models = ("share_*", "rows", "batches", "batch_cap_max", "cached")
    return _table(
        ("", "", "where it comes from"), [*rows, *((f"models.*.{name}", "", notes[name]) for name in of_models)]
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{_marked(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _marked(text: str) -> str:
    """Escape a text and set what stands between backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "none" if not value else ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    return f"{value:.5g}" if isinstance(value, float) else str(value)
