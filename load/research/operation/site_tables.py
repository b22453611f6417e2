"""The scenario `site`: its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from load.research.operation import site
from load.research.operation.site import LANES, RATE, ROLES, SITE_PER_S
from load.results.tables import Table, number
from load.scenario import Scenario

if TYPE_CHECKING:
    from load.results.results import Result


_CPU: Final = (*ROLES, "broker")

_DAY_S = 86_400


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    return [*_measured(result), *_computed(result)]


def _measured(result: Result) -> list[Table]:
    lanes = [lane for lane in LANES if f"{lane}_processes" in result.figures]
    found = []
    for point, title in ((f"at_{RATE}", f"CPU time of a query at {RATE}/s (us)"), ("backlog", "of a backlog (us)")):
        rows = [(lane, *(number(result.figures[f"{lane}_{point}_{part}_cpu_us"]) for part in _CPU)) for lane in lanes]
        found.append(Table(title, ("lane", *ROLES, "brokers"), tuple(rows)))
    keys = {
        "processes": "processes",
        "in_bytes": "bytes in",
        "out_bytes": "bytes out",
        "stored_bytes": "bytes stored",
        f"at_{RATE}_p50_ms": f"p50 ms at {RATE}/s",
        f"at_{RATE}_p99_ms": "p99 ms",
        f"at_{RATE}_defaults": "defaults",
        "learnt_per_s": "backlog learnt/s",
        "lost": "lost",
        "duplicates": "doubled",
    }
    rows = [(lane, *(number(result.figures[f"{lane}_{key}"]) for key in keys)) for lane in lanes]
    return [*found, Table("Bytes a query, latency, rate, faults", ("lane", *keys.values()), tuple(rows))]


def _computed(result: Result) -> list[Table]:
    series = result.series
    if "needs" not in series:
        return []
    rows = tuple((each["what"], f"{each['rate']:,.0f}", each["helps"]) for each in series["breaks"])
    stored = tuple(
        (each["topic"], number(each["bytes"]), number(each["kept_s"] / _DAY_S), f"{each['tb']:,.2f}")
        for each in series["stored"]
    )
    assumed = tuple((name, f"{value:,}") for name, value in series["assumed"][0].items())
    return [
        _needs(series["needs"]),
        Table("What breaks first, with three brokers", ("what is full", "at queries/s", "what helps"), rows),
        Table("Disk by topic", ("topic", "bytes a query, one copy", "kept, days", "TB, all copies"), stored),
        Table("Assumed", ("what", "value"), assumed),
    ]


def _needs(needs: Any) -> Table:
    """Return what the site takes, a column for each set of costs."""
    lines: list[tuple[str, ...]] = []
    for role in (*ROLES, "brokers"):
        lines.append((f"{role}: cores busy", *(number(each["cores"][role]) for each in needs)))
        if role in ROLES:
            lines.append((f"{role}: processes", *(number(each["processes"][role]) for each in needs)))
    named = {
        "partitions": "partitions",
        "brokers_by_cpu": "brokers by CPU",
        "brokers_by_bytes": "brokers by bytes on the network",
        "brokers_by_disk": "brokers by disk",
        "brokers": "brokers, one of them to lose",
        "waiting_mib": "joiners: predictions that wait a window, MiB",
        "ids_mib": "ids remembered by joiners and learners, MiB",
        "in_mb_s": "MB/s to the brokers",
        "out_mb_s": "MB/s from the brokers",
        "copied_mb_s": "MB/s between the brokers",
    }
    lines += [(text, *(number(each[key]) for each in needs)) for key, text in named.items()]
    return Table("What it takes, by costs of", ("what", *(each["costs"] for each in needs)), tuple(lines))


def words(result: Result) -> dict[str, Any]:
    """Return what the page says besides: which tables were measured, and which follow from them."""
    return {"site_per_s": SITE_PER_S, "measured": _measured(result), "computed": _computed(result)}


SCENARIO = Scenario(
    site.NAME,
    site.FIGURES,
    site.run,
    "several processes of each role, three brokers, TLS: cost of a query; what 100,000/s take, and what breaks",
    tables=tables,
    page="research/operation/site.md.j2",
    words=words,
    parts=site.LANES,
    short=True,
)
