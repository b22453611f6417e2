"""A simulation on the terminal: two tables, how latencies are spread, and how it went over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.simulation.plan import SimulationPlan
    from workers.simulation.run import Run

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH, _LINES = 48, 12
_WINDOWS = 60
_POINTS = ("p50", "p90", "p95", "p99", "p999", "max")


def describe(run: Run) -> str:
    """Return a simulation's figures and plots."""
    return "\n".join(
        [*left_out(run.plan), *_application(run), "", *_models(run), "", *_spread(run), "", *_over_time(run)]
    )


def left_out(plan: SimulationPlan) -> list[str]:
    """Say how much of a trace is played, if it is not all."""
    if not plan.left_out:
        return []
    played = len(plan.arrivals_us)
    return [f"{played:,} of {played + plan.left_out:,} queries of the trace (seconds: {plan.seconds:g})"]


def _application(run: Run) -> list[str]:
    figures, application = run.figures(), run.plan.application
    latencies = "  ".join(f"{point.replace('p999', 'p99.9')} {figures[f'{point}_ms']:.1f}" for point in _POINTS)
    goal = f"within {application.slo_us / 1e3:g} ms; wanted {application.wanted:.4g}"
    verdict = "reached" if run.reaches else "missed"
    return [
        f"queries      {figures['queries']:,} in {run.counted_s:g} s, {figures['queries'] / run.counted_s:,.0f}/s",
        f"in time      {figures['share_in_time']:.2%} {goal}: {verdict}",
        f"latency ms   {latencies}",
        f"throughput   {figures['in_time_per_s']:,.0f}/s in time, {figures['answered_per_s']:,.0f}/s by models",
        f"otherwise    {figures['defaults']:,} defaults, {figures['partial']:,} partial, {figures['late']:,} late",
        f"overheads    {run.plan.legs.source}",
    ]


def _models(run: Run) -> list[str]:
    heads = ("model", "workers", "busy", "batches", "rows/batch", "cap p50", "batch ms", "queue rows", "wait p99 ms")
    rows = []
    for index, model in enumerate(run.plan.models):
        its = run.model_figures(index)
        rows.append(
            (
                model.name,
                f"{its['workers']:.0f}",
                f"{its['utilisation']:.0%}",
                f"{its['batches']:,.0f}",
                f"{its['rows_a_batch']:.1f}",
                f"{its['cap_p50']:.0f}",
                f"{its['batch_p50_ms']:.1f}",
                f"{its['queue_rows']:.1f}",
                f"{its['wait_p99_ms']:.1f}",
            )
        )
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)
    ]


def _spread(run: Run) -> list[str]:
    """Draw how many queries took how long; what the slowest 0.1 % took is in the last line. The objective is marked."""
    latency_us = run.latency_us[run.counted]
    if not len(latency_us):
        return ["no query counts"]
    slo_us = run.plan.application.slo_us
    most_us = max(float(np.quantile(latency_us, 0.999)), 1.0)
    edges = np.linspace(0.0, most_us, _LINES + 1)
    counts = np.histogram(np.minimum(latency_us, most_us), edges)[0]
    lines = ["latency ms, share of the queries"]
    for low_us, high_us, count in zip(edges[:-1], edges[1:], counts, strict=True):
        mark = " ◀ objective" if low_us < slo_us <= high_us else ""
        share = count / len(latency_us)
        bar = "█" * round(_WIDTH * count / max(1, counts.max()))
        end = f"to {high_us / 1e3:<6.1f}" if high_us < most_us else "and above"
        lines.append(f"{low_us / 1e3:6.1f} {end} {bar} {share:.1%}{mark}")
    return lines


def _over_time(run: Run) -> list[str]:
    windows = run.windows(_WINDOWS)
    step_s = run.plan.seconds / _WINDOWS
    names = {"sent_per_s": "sent/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "share_in_time": "in time"}
    lines = [f"over time, {step_s:.3g} s a column"]
    for name, shown in names.items():
        values = [window[name] for window in windows]
        lines.append(f"{shown:<8} {_spark(values)}  {min(values):,.4g} to {max(values):,.4g}")
    return lines


def _spark(values: Sequence[float]) -> str:
    """Draw values as a line of bars, the lowest at 0."""
    most = max(values) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / most * len(_BARS)))] for value in values)
