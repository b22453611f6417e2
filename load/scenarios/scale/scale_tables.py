"""The scenario `scale`: its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from load.results.tables import Table, number, present
from load.scenario import Scenario
from load.scenarios.scale import scale
from load.scenarios.scale.scaling import RATE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.results.results import Result


_TITLES: Final = {
    "workers": "Workers and partitions",
    "models": "Models of one application",
    "applications": "Applications",
    "contexts": "Contexts, each asked once or more",
}
_HEADS: Final = {
    "start_s": "start s",
    "drained_per_s": "queries/s",
    "cpu_us_per_query": "CPU us/query, roles",
    "broker_cpu_us_per_query": "broker",
    "used_cores": "cores",
    f"at_{RATE}_p50_ms": f"p50 ms at {RATE}/s",
    f"at_{RATE}_p99_ms": "p99 ms",
    f"at_{RATE}_within_slo": "share within 100 ms",
    "selection_mib": "selection MiB",
    "worker_mib": "workers MiB",
    "joiner_mib": "joiner MiB",
    "learner_mib": "learner MiB",
    "states": "states held by selection",
    "lost": "lost",
    "defaults": "defaults",
}


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    sizes = result.series["sizes"]
    shown = [_sizes(part, [row for row in sizes if row["part"] == part]) for part in _TITLES]
    if coming := result.series.get("coming"):
        shown.append(_memory("Memory while contexts come", coming))
    if memory := result.series.get("memory"):
        shown.append(_memory("Memory under the same load again and again", memory))
    return [table for table in shown if table.rows]


def _sizes(part: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    heads = present(_HEADS, rows)
    lines = tuple((f"{row['size']:,}", *(number(row.get(key)) for key in heads)) for row in rows)
    return Table(_TITLES[part], (part, *heads.values()), lines)


def _memory(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    keys = [key for key in rows[0] if key.endswith("_mib")]
    lines = []
    asked = 0
    for row in rows:
        asked += int(row["queries"])
        lines.append((f"{asked:,}", *(number(row[key]) for key in keys)))
    heads = ("queries so far", *(key.replace("_mib", " MiB") for key in keys))
    return Table(title, heads, tuple(lines))


SCENARIO = Scenario(
    scale.NAME,
    scale.FIGURES,
    scale.run,
    "what grows with workers, models, applications, contexts and time: CPU a query, memory, start time",
    tables=tables,
    page="scenarios/scale/scale.md.j2",
    parts=scale.PARTS,
    short=True,
)
