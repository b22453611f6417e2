"""What the hosts of pools hold in memory, from their reports: which models, how much of the budget, and what had to go.

The page and `skysail model list` show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from streams.control.figures import parse
from streams.operators.statistics import from_label
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


class Heard(NamedTuple):
    """The last report of a process."""

    instance: str
    role: str
    counters: Mapping[str, float]
    gauges: Mapping[str, float]


def heard(entry: Figures) -> Heard:
    """Return a process's last report."""
    return Heard(entry["instance"], entry["role"], entry["counters"], entry["gauges"])


def host_rows(processes: Iterable[Heard]) -> list[HostRow]:
    """Return the hosts among the processes that report, by name."""
    return [_row(each) for each in sorted(processes, key=lambda each: each.instance) if each.role.startswith(_HOST)]


def _row(heard: Heard) -> HostRow:
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
    )


def _evicted(labels: Mapping[str, str], idle_s: float) -> str:
    """Say which model made room last, for which other one, and how long it had not been used."""
    model, other = labels.get("model", ""), labels.get("needed_by", "")
    why = "as others took more than was reckoned" if other == "memory" else f"to make room for {other}"
    return f"{model}, which had not been used for {idle_s:,.0f} s, {why}"
