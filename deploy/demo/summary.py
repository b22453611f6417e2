"""What is said at the end: what happened, the figures over the whole run, where the report is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from deploy.demo.page import story, trial
from deploy.demo.pen_figures import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import Console


def say(report: Mapping[str, Any], folder: Path, console: Console) -> None:
    """Print the summary of a report as `report.json` holds it."""
    console.print()
    console.print(story(report), highlight=False, soft_wrap=not console.is_terminal)
    console.print()
    console.print(_models(report))
    console.print()
    for name, words in _lines(report):
        console.print(f"{name:<12}{words}", highlight=False, soft_wrap=True)
    console.print()
    for name in ("report.json", "report.html"):
        console.print(f"{name:<12}{folder / name}", highlight=False, soft_wrap=True)
    if report["roles_restarted"]:
        roles = ", ".join(f"{name} {times} times" for name, times in report["roles_restarted"].items())
        words = f"restarted   {roles}; why is in {folder / 'logs'}"
        console.print(words, style="yellow", highlight=False, soft_wrap=True)


def _lines(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    latency = report["latency_ms"]
    yield (
        "answers",
        (
            f"{report['predictions_distinct']} of {report['queries_sent']} queries; lost {report['lost']}, twice"
            f" {report['duplicates']}, default {report['defaults']}, late {report['late']}"
        ),
    )
    yield (
        "latency",
        (
            f"p50 {latency['p50']:.1f} ms, p95 {latency['p95']:.1f}, p99 {latency['p99']:.1f};"
            f" {report['within_slo']:.2%} within {report['slo_ms']:g} ms"
        ),
    )
    yield (
        "feedback",
        (
            f"{report['feedback_sent']} sent, {report['observations_joined']} joined, {report['observations_applied']}"
            f" learnt; dead letters {report['dead_letters']}"
        ),
    )
    yield (
        "cache",
        f"{report['cache_hit_ratio']:.1%} of the models' outputs were remembered from the same image a moment before",
    )
    yield "new version", trial(report)
    yield "two pens", sentence(report["contexts"])
    first_s = report["first_prediction_s"]
    if first_s is not None:
        steps = ", ".join(f"{name} {report['steps_s'][name]:.1f}" for name in ("broker", "models", "roles"))
        yield "start", f"first prediction after {first_s:.1f} s ({steps})"


def _models(report: Mapping[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for place, head in enumerate(("model", "error alone", "share before", "during", "after", "batches", "rows", "cap")):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    for name, model in report["models"].items():
        shares = (model[f"share_{phase}"] for phase in ("before", "during", "after"))
        table.add_row(
            name,
            f"{report['error_by_model'][name]:.1%}",
            *("" if share is None else f"{share:.0%}" for share in shares),
            *(f"{model[figure]}" for figure in ("batches", "rows", "batch_cap_max")),
        )
    table.add_row("the answers", f"{report['error']:.1%}", style="bold")
    return table
