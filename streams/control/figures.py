"""Live figures from reports, as plain JSON values, for the table, the page and the API.

report ──▶ fold(before, report) ──▶ table[instance] ──▶ status(table.values(), now)
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, TypedDict

from schemas.records import STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.records import Report

# Every process reports once a second. After five missed reports it is in trouble, after ten minutes it has left.
SILENT_AFTER_US = 5_000_000
FORGOTTEN_AFTER_US = 600_000_000
# Who is heard again after less has left most of a minute's figures as they are.
AWAY_US = 15_000_000
# One that was stopped has left after a minute.
STOPPED_AFTER_US = 60_000_000
QUANTILE = re.compile(r"_p\d\d_us$")
METRIC = re.compile(r"(?P<name>[^{]+)(?:\{(?P<labels>.*)\})?", re.DOTALL)
CPU, LAG = "cpu_seconds_total", "lag"
# Metrics with one of these labels are also shown by its value, summed over the processes.
SUBJECTS = ("application", "model")


class Figures(TypedDict):
    """One process's last report and the rates between its last two."""

    instance: str
    role: str
    time_us: int
    counters: dict[str, float]
    gauges: dict[str, float]
    rates: dict[str, float]  # of the counters, a second
    restarts: int  # seen since this table began
    back_us: int  # when it was last heard again after a silence; 0 = never
    away_us: int  # how long that was


class PageStatus(TypedDict):
    """Everything the page shows."""

    time_us: int
    processes: list[dict[str, object]]
    applications: dict[str, dict[str, float]]
    models: dict[str, dict[str, float]]


def fold(before: Figures | None, report: Report) -> Figures:
    """Return the process's figures after one more report; one that is older than the last changes nothing."""
    if before is not None and report.time_us <= before["time_us"]:
        return before
    back_us, away_us = _return(before, report) if before is not None else (0, 0)
    return Figures(
        instance=report.instance,
        role=report.role,
        time_us=report.time_us,
        counters=dict(report.counters),
        gauges=dict(report.gauges),
        rates=_rates(before, report) if before is not None else {},
        restarts=_restarts(before, report) if before is not None else 0,
        back_us=back_us,
        away_us=away_us,
    )


def _return(before: Figures, report: Report) -> tuple[int, int]:
    """Return when the process was last heard again after a silence, and how long that was; another one is none."""
    away_us = report.time_us - before["time_us"]
    if _is_other(before, report) or before["gauges"].get(STOPPED):
        return 0, 0
    if away_us > AWAY_US:
        return report.time_us, away_us
    return before.get("back_us", 0), before.get("away_us", 0)


def _is_other(before: Figures, report: Report) -> bool:
    return report.counters.get(CPU, 0.0) < before["counters"].get(CPU, 0.0)


def _restarts(before: Figures, report: Report) -> int:
    """Count a process that has used less CPU time than before: it is another one under the same name.

    A process that stops by a signal says so in its last report, and has not died.
    """
    return before.get("restarts", 0) + (_is_other(before, report) and not before["gauges"].get(STOPPED))


def _rates(before: Figures, report: Report) -> dict[str, float]:
    """A counter that fell belongs to a restarted process: it counts from zero."""
    seconds = (report.time_us - before["time_us"]) / 1e6
    rates = {}
    for name, value in report.counters.items():
        last = before["counters"].get(name, 0.0)
        rates[name] = (value - last if value >= last else value) / seconds
    return rates


def status(entries: Iterable[Figures], now_us: int) -> PageStatus:
    """Return what is shown at `now_us`: every process heard of lately, and sums by application and by model."""
    known = heard_lately(entries, now_us)
    live = [entry for entry in known if not is_silent(entry, now_us)]
    return PageStatus(
        time_us=now_us,
        processes=[{**entry, "age_s": _age_s(entry, now_us), "silent": is_silent(entry, now_us)} for entry in known],
        applications=_by_label(live, "application"),
        models={name: row | _hit_ratio(row) for name, row in _by_label(live, "model").items()},
    )


def heard_lately(entries: Iterable[Figures], now_us: int) -> list[Figures]:
    """Return the processes that have not been forgotten, by role and name."""
    known = [entry for entry in entries if not is_forgotten(entry, now_us)]
    return sorted(known, key=lambda entry: (entry["role"], entry["instance"]))


def _age_s(entry: Figures, now_us: int) -> float:
    return round(max(now_us - entry["time_us"], 0) / 1e6, 1)


def is_silent(entry: Figures, now_us: int) -> bool:
    """Tell whether a process has missed its last reports."""
    return now_us - entry["time_us"] > SILENT_AFTER_US


def is_forgotten(entry: Figures, now_us: int) -> bool:
    """Tell whether a process has been silent for so long that it has left; after a minute if it was stopped."""
    return now_us - entry["time_us"] >= (STOPPED_AFTER_US if is_stopped(entry) else FORGOTTEN_AFTER_US)


def is_stopped(entry: Figures) -> bool:
    """Tell whether a process has said in its last report that it ends in good order."""
    return bool(entry["gauges"].get(STOPPED))


def _by_label(entries: Iterable[Figures], label: str) -> dict[str, dict[str, float]]:
    """Sum gauges, counters and rates (as `<name>_per_s`) over the processes, by the value of one label.

    Of quantiles the largest is shown: their sum says nothing.
    """
    sums: dict[str, dict[str, float]] = {}
    for entry in entries:
        for metric, value in _shown(entry).items():
            name, labels = parse(metric)
            if label in labels:
                row = sums.setdefault(labels.pop(label), {})
                column = _column(name, labels)
                before = row.get(column, 0.0)
                row[column] = round(max(before, value) if QUANTILE.search(name) else before + value, 3)
    return {subject: sums[subject] for subject in sorted(sums)}


def _hit_ratio(row: Mapping[str, float]) -> dict[str, float]:
    """Return the share of a model's queries that the prediction cache answered, if there is one."""
    hit, coalesced, miss = (row.get(f"cache_total {result}", 0.0) for result in ("hit", "coalesced", "miss"))
    total = hit + coalesced + miss
    return {"cache_hit_ratio": round((hit + coalesced) / total, 3)} if total else {}


def _shown(entry: Figures) -> dict[str, float]:
    rates = {re.sub(r"(_total)?(?=\{|$)", "_per_s", name, count=1): value for name, value in entry["rates"].items()}
    return entry["counters"] | entry["gauges"] | rates


def _column(name: str, labels: Mapping[str, str]) -> str:
    return " ".join([name, *(value for key, value in sorted(labels.items()))])


def parse(metric: str) -> tuple[str, dict[str, str]]:
    """Split `name{label=value,...}` into the name and its labels."""
    name, labels = _parsed(metric)
    return name, dict(labels)


@lru_cache(maxsize=65_536)
def _parsed(metric: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    match = METRIC.fullmatch(metric)
    if match is None or match["labels"] is None:
        return metric, ()
    pairs = (pair.partition("=") for pair in match["labels"].split(",") if "=" in pair)
    return match["name"], tuple((label, value) for label, _, value in pairs)
