"""The report's plots as inline SVG. Every function takes plain numbers, one a second, and returns a string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, PercentFormatter

from load.results.drawing import COLOURS, STYLE, panels, svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from deploy.demo.trial import Trial

SIZE_INCHES = (8.6, 2.7)
PLACE = (0.075, 0.17, 0.75, 0.73)  # left, bottom, width, height: the same in every plot, so that their times align
SMOOTHED_S = 5
LATENCY_TICKS_MS = [step * 10**power for power in range(-1, 6) for step in (1, 2, 5)]


@dataclass(frozen=True, slots=True)
class Series:
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
    trial: Trial
    answered_by_version: Mapping[str, NDArray[np.float64]]  # by the versions of the model of which one is tried


def smooth(counts: NDArray[np.float64], seconds: int = SMOOTHED_S) -> NDArray[np.float64]:
    """Return the sum over each second and the ones before it, `seconds` in all; shape as `counts`."""
    sums: NDArray[np.float64] = np.cumsum(np.concatenate([[0.0], counts]))
    first = np.maximum(np.arange(1, len(sums)) - seconds, 0)
    return sums[1:] - sums[first]


def traffic(series: Series) -> str:
    """Stack each model's share of the model queries."""
    figure, axes = _axes(series, "share of traffic")
    counts = np.stack([smooth(counts, 2) for counts in series.asked_by_model.values()])
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    axes.stackplot(_seconds(series), shares, labels=list(series.asked_by_model), colors=COLOURS, alpha=0.85)
    for moment in series.broken_s:  # the shade is behind the stack
        axes.axvline(moment, color="black", linewidth=1, linestyle="--")
    axes.set_ylim(0, 1)
    return _svg(figure, axes)


def versions(series: Series) -> str:
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


def pens(shares: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> str:
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


def error(series: Series) -> str:
    """Draw the error over the last seconds: the answers, and each model had it been alone."""
    figure, axes = _axes(series, f"error, last {SMOOTHED_S} s")
    asked = np.maximum(smooth(series.asked), 1)
    _lines(axes, series, {name: smooth(wrong) / asked for name, wrong in series.wrong_by_model.items()})
    axes.plot(_seconds(series), smooth(series.wrong) / asked, color="black", linewidth=2.2, label="answers")
    axes.set_ylim(0, 1.02)
    return _svg(figure, axes)


def total_error(series: Series) -> str:
    """Draw the error since the start, with the best single model in hindsight dashed."""
    figure, axes = _axes(series, "error since the start")
    asked = np.maximum(np.cumsum(series.asked), 1)
    _lines(axes, series, {name: np.cumsum(wrong) / asked for name, wrong in series.wrong_by_model.items()})
    best = np.cumsum(series.wrong_by_model[series.best_model]) / asked
    axes.plot(_seconds(series), best, color="black", linewidth=1.4, linestyle="--", label="best in hindsight")
    axes.plot(_seconds(series), np.cumsum(series.wrong) / asked, color="black", linewidth=2.2, label="answers")
    axes.set_ylim(bottom=0)
    return _svg(figure, axes)


def latency(series: Series) -> str:
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


def batch_cap(series: Series) -> str:
    """Draw each worker's batch cap."""
    figure, axes = _axes(series, "batch cap (rows)")
    _lines(axes, series, series.cap_by_model)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_ylim(bottom=0)
    return _svg(figure, axes)


def _axes(series: Series, label: str) -> tuple[Figure, Axes]:
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


def _lines(axes: Axes, series: Series, values: Mapping[str, Sequence[float] | NDArray[np.float64]]) -> None:
    for (name, line), colour in zip(values.items(), COLOURS, strict=False):
        axes.plot(_seconds(series), line, color=colour, linewidth=1.3, label=name)


def _seconds(series: Series) -> NDArray[np.float64]:
    """Return the ends of the seconds: what is shown at 8 was counted until then."""
    return np.arange(1, len(series.asked) + 1, dtype=np.float64)


def _svg(figure: Figure, axes: Axes) -> str:
    with mpl.rc_context(STYLE):
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return svg(figure)
