"""Declared panels as a dashboard of Grafana, declared rules as a file of Prometheus, processes as its targets."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import yaml

from deploy.figures.declared import DASHBOARD, RULES
from streams.runtime.process.prometheus import NAMESPACE, family_of, meaning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deploy.figures.declared import AlertRule, Panel

_WIDE, _HIGH, _ACROSS = 8, 7, 24  # of Grafana's 24 columns
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_QUANTILES: Final = {0.5: "p50", 0.99: "p99"}
PAGE: Final = "docs/figures.md"


def rules() -> str:
    """Return the alert rules as Prometheus reads them."""
    head = f"# Made by `skysail metrics rules`; what each says is in {PAGE}.\n"
    groups = {"groups": [{"name": "skysail", "rules": [_rule(rule) for rule in RULES]}]}
    written: str = yaml.safe_dump(groups, sort_keys=False, width=10_000)
    return head + written


def _rule(rule: AlertRule) -> dict[str, Any]:
    means = "; ".join(f"{NAMESPACE}{name}: {meaning(family_of(name))}" for name in rule.figures)
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.hold,
        "labels": {"severity": rule.severity},
        "annotations": {"summary": rule.says, "command": rule.command, **({"figures": means} if means else {})},
    }


def dashboard() -> str:
    """Return a dashboard as Grafana imports it; its data source is chosen there."""
    return json.dumps(
        {
            "uid": "skysail",
            "title": "Skysail",
            "tags": ["skysail"],
            "schemaVersion": 39,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {
                "list": [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
            },
            "panels": [*_panels()],
        },
        indent=1,
    )


def _panels() -> Iterator[dict[str, Any]]:
    ids, top = count(1), 0
    for title, its in DASHBOARD.items():
        yield {"id": next(ids), "type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": _ACROSS, "h": 1}}
        top += 1
        for place, panel in enumerate(its):
            row, column = divmod(place, _ACROSS // _WIDE)
            where = {"x": column * _WIDE, "y": top + row * _HIGH, "w": _WIDE, "h": _HIGH}
            yield _panel(panel, next(ids), where)
        top += -(-len(its) // (_ACROSS // _WIDE)) * _HIGH


def _panel(panel: Panel, number: int, where: dict[str, int]) -> dict[str, Any]:
    names = dict.fromkeys(panel.figures)
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": "; ".join(f"{NAMESPACE}{name}: {meaning(family_of(name))}" for name in names),
        "datasource": _SOURCE,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(queries(panel))
        ],
    }


def queries(panel: Panel) -> list[tuple[str, str]]:
    """Return the lines of a panel: PromQL, and how they are called."""
    lines = " ".join(f"{{{{{label}}}}}" for label in panel.by)
    by = f" by ({', '.join(panel.by)})" if panel.by else ""

    def rate(name: str, where: str = "") -> str:
        return f"sum{by} (rate({NAMESPACE}{name}{f'{{{where}}}' if where else ''}[$__rate_interval]))"

    first, *others = panel.figures
    if panel.read == "share":
        (whole,) = others
        return [(f"{rate(first, panel.where)} / ({rate(whole)} > 0)", lines)]
    if panel.read == "rate":
        suffix = [f" {name.removesuffix('_total').replace('_', ' ')}" if others else "" for name in panel.figures]
        return [
            (rate(name, panel.where), f"{lines}{end}".strip()) for name, end in zip(panel.figures, suffix, strict=True)
        ]
    if panel.read == "quantiles":
        rises = f"sum by (le, {', '.join(panel.by)}) (rate({NAMESPACE}{first}_bucket[$__rate_interval]))"
        return [(f"histogram_quantile({share}, {rises})", f"{lines} {said}") for share, said in _QUANTILES.items()]
    return [(f"max{by} ({NAMESPACE}{name})", lines) for name in panel.figures]


def targets(host: str, ports: Mapping[str, int]) -> str:
    """Return processes as Prometheus discovers them by a file (`file_sd_configs`)."""
    shown = f"[{host}]" if ":" in host else host
    return json.dumps(
        [
            {"targets": [f"{shown}:{port}"], "labels": {"job": "skysail", "process": name}}
            for name, port in ports.items()
        ],
        indent=1,
    )
