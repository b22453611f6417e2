"""Results of `site` as tables and as the page docs/100k.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from load.research.operation import site
from load.research.operation.site import FIGURES, LANES, RATE, ROLES, SITE_PER_S
from load.results.pages import missed
from load.results.tables import Table, number
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.harness.environment import Environment
    from load.results.results import Result

_CPU: Final = (*ROLES, "broker")
_DAY_S = 86_400
_INTRODUCTION: Final = """\
What a site of this rate takes, and what breaks first. Written by `skysail load run site --docs docs/100k.md`; every
number is from its results.

- **Measured** are the two tables of lanes below, on the machine named here. All processes share its cores. So rates say
  nothing about a site; costs a query do. A cost at a modest rate is mostly requests, and falls as they fill. Three
  brokers and the roles take all of two cores even at the modest rate: that lane's latency is the one of a queue.
- **Computed** is what follows from these costs in proportion (`workers/simulation/sizing.py`), with the assumptions
  that are listed. They are the costs of full batches, so a site that wants latency needs more. Bytes are those that
  brokers hold; observations reach them uncompressed.
- **Simulated** is the latency, with the legs that the lane `several` had at the modest rate. Legs do not grow with the
  load there, and no network lies between the machines.
- **Not measured** are the CPU of Redis, more than one machine, a real network, disks that are slower than this one's
  cache, the loss of a broker, more than two processes of a role, and TLS between brokers or to clients: only roles use
  it.
"""


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    return [*_measured(result), *_computed(result)]


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    machine = (
        f"{environment['cores_usable']} cores of {environment['processor']}; {environment['broker']}; {result.given}."
    )
    shown = [f"### {table.title}\n\n{table.markdown()}" for table in _measured(result)]
    parts = [f"# {SITE_PER_S:,.0f} queries a second\n", _INTRODUCTION, "## Measured\n", f"{machine}\n", *shown]
    if computed := _computed(result):
        parts += ["## Computed\n", _sentence(result), *(f"### {t.title}\n\n{t.markdown()}" for t in computed)]
    if "simulated_p50_ms" in result.figures:
        parts += ["## Simulated\n", _simulated(result.figures)]
    return "\n".join([*parts, *(f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))), ""])


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


def _sentence(result: Result) -> str:
    first = result.series["breaks"][0]
    return f"**First to break: {first['what']}, at {first['rate']:,.0f} queries/s.** What helps: {first['helps']}.\n"


def _simulated(figures: Mapping[str, float]) -> str:
    return (
        f"With {figures['simulated_selections']:,.0f} selections and {figures['simulated_workers']:,.0f} workers,"
        f" {figures['simulated_queries']:,.0f} queries at {SITE_PER_S:,.0f}/s:"
        f" p50 {figures['simulated_p50_ms']:.1f} ms, p99 {figures['simulated_p99_ms']:.1f} ms,"
        f" {figures['simulated_share_in_time']:.2%} within 100 ms.\n"
    )


SCENARIO = Scenario(
    site.NAME,
    site.FIGURES,
    site.run,
    "several processes of each role, three brokers, TLS: cost of a query; what 100,000/s take, and what breaks",
    tables=tables,
    page=page,
    parts=site.LANES,
    short=True,
)
