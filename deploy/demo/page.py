"""The report as one HTML page that needs nothing beside it."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from deploy.demo import plots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deploy.demo.plots import Series

TEMPLATE = Path(__file__).with_name("page.html")


def page(report: Mapping[str, Any], series: Series) -> str:
    """Return the page for a report as `report.json` holds it, and its series."""
    drawn = {
        draw.__name__: draw(series)
        for draw in (plots.traffic, plots.error, plots.total_error, plots.latency, plots.batch_cap)
    }
    words = {name: escape(_shown(report[name])) for name in ("stamp", "seconds", "rate", "policy", "broker", "redis")}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        **words,
        **drawn,
        story=escape(story(report)),
        tiles=_tiles(report),
        models=_models(report),
        figures=_table(
            ("", ""), [(name, _shown(value)) for name, value in report.items() if not isinstance(value, dict)]
        ),
    )


def story(report: Mapping[str, Any]) -> str:
    """Say in two sentences what happened."""
    name = report["broken_model"]
    shares = report["models"][name]
    return (
        f"{name} was asked {shares['share_before']:.0%} of the time until it broke, {shares['share_during']:.0%} while"
        f" it was broken, {shares['share_after']:.0%} after it was mended. The answers were wrong"
        f" {report['error']:.1%} of the time; always asking {name} would have meant"
        f" {report['error_by_model'][name]:.1%}, the best single model in hindsight ({report['best_model']})"
        f" {report['error_best_single']:.1%}."
    )


def _tiles(report: Mapping[str, Any]) -> str:
    latency = report["latency_ms"]
    tiles = [
        ("error of the answers", f"{report['error']:.2%}"),
        ("best single model, in hindsight", f"{report['error_best_single']:.2%}"),
        ("within the objective", f"{report['within_slo']:.2%}"),
        ("latency p50 / p99", f"{latency['p50']:.0f} / {latency['p99']:.0f} ms"),
        ("answered", f"{report['predictions_distinct']} of {report['queries_sent']}"),
        ("feedback learnt", f"{report['observations_applied']} of {report['feedback_sent']}"),
    ]
    return "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles
    )


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
    )
    return _table(heads, [_model_row(name, report) for name in report["models"]])


def _model_row(name: str, report: Mapping[str, Any]) -> Sequence[str]:
    model = report["models"][name]
    return (
        name,
        f"{report['error_by_model'][name]:.2%}",
        *(f"{model[f'share_{phase}']:.1%}" for phase in ("before", "during", "after")),
        f"{model['batch_cap_max']:g}",
        f"{model['batches']}",
        f"{model['rows']}",
        f"{model['rows'] / max(1, model['batches']):.2f}",
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
