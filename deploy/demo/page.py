"""The report as one HTML page that needs nothing beside it."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from deploy.demo import plots
from deploy.demo.hindsight import ENSEMBLE
from deploy.demo.pen_figures import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deploy.demo.plots import Series

OWN_PLACE = ("models", "notes")
TEMPLATE = Path(__file__).with_name("page.html")


def page(report: Mapping[str, Any], series: Series, pens: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> str:
    """Return the page for a report as `report.json` holds it, and its series.

    Args:
        report: what is told.
        series: of the first act.
        pens: by pen and model, the share that it was asked, over the second act; none = there was none.
    """
    drawn = {
        draw.__name__: draw(series)
        for draw in (plots.traffic, plots.error, plots.total_error, plots.versions, plots.latency, plots.batch_cap)
    }
    words = {name: escape(_shown(report[name])) for name in ("stamp", "seconds", "rate", "policy", "broker", "redis")}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        **words,
        **drawn,
        story=escape(story(report)),
        trial=escape(trial(report)),
        contexts=escape(sentence(report["contexts"])),
        pens=plots.pens(pens) if pens else "",
        tiles=_tiles(report),
        models=_models(report),
        figures=_figures(report),
    )


_MANY_DEFAULTS = 0.2  # from this share on the defaults are the story


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
        return f"{name} has not answered anything as a canary."
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
