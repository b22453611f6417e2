"""What the hosts of pools hold in memory, from their reports: which models, how much of the budget, and what had to go.

Also what their batches take, by the last ten of each size, and how well that was predicted.

The page and `skysail model list` show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from streams.control.figures import parse
from streams.operators.statistics import from_label, render
from streams.topology import host_role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streams.control.figures import Figures

_HOST: Final = host_role("")


class OutRow(TypedDict):
    """A version that is taken out of a host."""

    name: str
    version: str
    times: int  # in a row
    reason: str


class TimesRow(TypedDict):
    """What batches of one model take, as predicted and as they were."""

    name: str
    sizes: dict[int, float]  # p99 of the last ten of so many rows (ms)
    load_ms: float | None
    batches: int  # that were predicted
    predicted_ms: float | None  # the mean of what they were predicted to take
    actual_ms: float | None  # the mean of what they took
    longer: float | None  # share of them that took longer than predicted
    shorter: float | None


class HostRow(TypedDict):
    """One host; counts are since its start."""

    instance: str
    pool: str
    known: int  # models
    resident: int  # of them in memory
    bytes: float
    budget_bytes: float
    loads: int
    evictions: int
    refused: int  # rows that could not be in time
    ends: int  # of the process with the models
    evicted: str  # last, and why; empty = nothing was
    models: list[str]  # versions in memory
    out: list[OutRow]
    predicted: int  # batches
    longer: float | None  # share of them that took longer than predicted
    shorter: float | None
    times: list[TimesRow]  # of the models that are told, those with the most batches first


class HeardProcess(NamedTuple):
    """The last report of a process."""

    instance: str
    role: str
    counters: Mapping[str, float]
    gauges: Mapping[str, float]


def heard(entry: Figures) -> HeardProcess:
    """Return a process's last report."""
    return HeardProcess(entry["instance"], entry["role"], entry["counters"], entry["gauges"])


def host_rows(processes: Iterable[HeardProcess]) -> list[HostRow]:
    """Return the hosts among the processes that report, by name."""
    return [_row(each) for each in sorted(processes, key=lambda each: each.instance) if each.role.startswith(_HOST)]


def _row(heard: HeardProcess) -> HostRow:
    counters, gauges = heard.counters, heard.gauges
    named = [(*parse(full), value) for full, value in gauges.items()]
    return HostRow(
        instance=heard.instance,
        pool=heard.role.removeprefix(_HOST),
        known=int(gauges.get("host_known_models", 0)),
        resident=int(gauges.get("host_resident_models", 0)),
        bytes=gauges.get("host_resident_bytes", 0.0),
        budget_bytes=gauges.get("host_budget_bytes", 0.0),
        loads=int(counters.get("host_loads_total", 0)),
        evictions=int(counters.get("host_evictions_total", 0)),
        refused=int(counters.get("host_refused_total", 0)),
        ends=int(counters.get("host_process_ends_total", 0)),
        evicted=next(
            (_evicted(labels, idle_s) for name, labels, idle_s in named if name == "host_last_eviction_idle_s"), ""
        ),
        models=sorted(f"{at.get('model', '')} {at.get('version', '')}" for name, at, _ in named if name == "resident"),
        out=[
            OutRow(
                name=at.get("model", ""),
                version=at.get("version", ""),
                times=int(times),
                reason=from_label(at.get("reason", "")),
            )
            for name, at, times in named
            if name == "taken_out"
        ],
        predicted=int(batches := counters.get("host_predicted_batches_total", 0.0)),
        longer=_share(counters.get("host_predicted_too_short_total", 0.0), batches),
        shorter=_share(counters.get("host_predicted_too_long_total", 0.0), batches),
        times=_times(counters, named),
    )


def _times(counters: Mapping[str, float], gauges: Iterable[tuple[str, Mapping[str, str], float]]) -> list[TimesRow]:
    """Return what batches of each model take, and how well that was predicted."""
    sizes: dict[str, dict[int, float]] = {}
    loads: dict[str, float] = {}
    for name, labels, value in gauges:
        model, rows = labels.get("model", ""), labels.get("rows", "")
        if name == "host_batch_p99_us" and rows.isdecimal():
            sizes.setdefault(model, {})[int(rows)] = _ms(value)
        elif name == "host_load_p99_us":
            loads[model] = _ms(value)
    found = [_timed(model, dict(sorted(sizes.get(model, {}).items())), loads, counters) for model in {**sizes, **loads}]
    return sorted(found, key=lambda row: (-row["batches"], row["name"]))


def _timed(model: str, sizes: dict[int, float], loads: Mapping[str, float], counters: Mapping[str, float]) -> TimesRow:
    batches, short, long, predicted_us, actual_us = (
        counters.get(render((name, "model", model)), 0.0)
        for name in (
            "host_model_predicted_batches_total",
            "host_model_predicted_too_short_total",
            "host_model_predicted_too_long_total",
            "host_model_predicted_us_total",
            "host_model_predicted_actual_us_total",
        )
    )
    return TimesRow(
        name=model,
        sizes=sizes,
        load_ms=loads.get(model),
        batches=int(batches),
        predicted_ms=_ms(predicted_us / batches) if batches else None,
        actual_ms=_ms(actual_us / batches) if batches else None,
        longer=_share(short, batches),
        shorter=_share(long, batches),
    )


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _ms(us: float) -> float:
    return round(us / 1e3, 3)


def _evicted(labels: Mapping[str, str], idle_s: float) -> str:
    """Say which model made room last, for which other one, and how long it had not been used."""
    model, other = labels.get("model", ""), labels.get("needed_by", "")
    why = "as others took more than was reckoned" if other == "memory" else f"to make room for {other}"
    return f"{model}, which had not been used for {idle_s:,.0f} s, {why}"
