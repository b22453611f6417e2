"""`matrix`: every role, Redis and every broker is broken in every way on three brokers, and one validator judges.

Nothing that was acknowledged may be lost or counted twice, no role may end that was not ended, and nobody may be behind
a minute later. A blow comes only when what was asked since the last one is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from load.figures import FAULTS, NONE, SHOWN, SHOWN_S, Better, Figures, Kind
from load.matrix.clocks import CLOCK_ROWS
from load.matrix.mixes import RATE, STORMY
from load.matrix.network import DISK_ROWS, NETWORK_ROWS
from load.matrix.roles import ROLE_ROWS
from load.matrix.runner import SERVED_S, struck
from load.matrix.services import BROKER_ROWS, BROKERS, REDIS_ROWS
from load.matrix.storm import ON, QUERIES, STORM, STORM_ROWS
from load.matrix.unclean import UNCLEAN_ROWS
from load.matrix.vanished import TOPIC_ROWS
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from load.harness.system import Stage
    from load.matrix.broken import Broken
    from load.matrix.runner import Judged

NAME: Final = "matrix"
ROWS: Final = (
    *ROLE_ROWS,
    *REDIS_ROWS,
    *BROKER_ROWS,
    *NETWORK_ROWS,
    *DISK_ROWS,
    *STORM_ROWS,
    *CLOCK_ROWS,
    *TOPIC_ROWS,
    *UNCLEAN_ROWS,
)
PARTS: Final = tuple(dict.fromkeys(row.part for row in ROWS))
COST, COUNTS, SEEN = "What each fault cost", "What was counted", "What was seen besides"
_SHORT: Final = ("selection SIGKILL", "learner SIGSTOP", "leader killed")

_COUNTED: Final = ("rows", "queries", "feedback", "unacknowledged", "predictions_doubled", "observations_doubled")
FIGURES = Figures(
    FAULTS("faults", "roles_ended", "records_behind", must=NONE),
    FAULTS("*_faults", "*_ended", "*_behind"),
    SHOWN(*(f"*_{name}" for name in _COUNTED)),
    Kind("", Better.HIGHER, 0.0, 0.2)("*_complete"),
    SHOWN_S("*_served_s", "*_caught_up_s"),
)


async def run(stage: Stage) -> Result:
    """Run the chosen parts, each on a deployment of its own; the short form, a row of each kind on one."""
    groups = chosen(stage.only, is_short=stage.short)
    judged = {name: await struck(stage, name, rows) for name, rows in groups.items()}
    figures = {f"{name}_{what}": value for name, its in judged.items() for what, value in _figures(its).items()}
    totals = {"faults": "faults", "roles_ended": "ended", "records_behind": "behind"}
    return Result(
        NAME,
        figures={total: sum(figures[f"{name}_{what}"] for name in judged) for total, what in totals.items()} | figures,
        parameters={"brokers": BROKERS, "rate": RATE},
        series={name: its.series() for name, its in judged.items()},
        notes=tuple(f"{name}: {fault}" for name, its in judged.items() for fault in its.faults),
    )


def chosen(only: Sequence[str], *, is_short: bool) -> dict[str, list[Broken]]:
    """Return the rows by deployment."""
    if is_short and not only:
        return {"short": [row for row in ROWS if row.name in _SHORT]}
    return {part: _repeated(row for row in ROWS if row.part == part) for part in only or PARTS}


def _repeated(rows: Iterable[Broken]) -> list[Broken]:
    """Return each row as often as it is to be run, in rounds; what is run once comes in the last one."""
    rows = [*rows]
    return [row for left in range(max(row.times for row in rows), 0, -1) for row in rows if left <= row.times]


def _figures(its: Judged) -> dict[str, float]:
    """Return what became of one deployment."""
    rows = its.rows
    return {
        "rows": len(rows),
        "faults": len(its.faults) + sum(len(row.faults) for row in rows),
        "ended": sum(sum(row.ended.values()) for row in rows),
        "behind": its.counts["records_behind"],
        **{name: its.counts[name] for name in ("queries", "feedback", "unacknowledged")},
        **{f"{kind}_doubled": count for kind, count in its.doubled.items()},
        "complete": min(row.complete for row in rows),
        "served_s": max(SERVED_S if row.served_s is None else row.served_s for row in rows),  # so long was waited
        "caught_up_s": max(row.caught_up_s for row in rows),
    }


def tables(result: Result) -> Sequence[Table]:
    """Return a line a row, and a line a deployment."""
    heads = ("broken", "for s", "served again s", "caught up s", "complete %", "ended", "wrong")
    rows = tuple(_line(row) for each in result.series.values() for row in each)
    what = (*_COUNTED, "faults", "ended", "behind")
    parts = tuple((part, *(f"{result.figures[f'{part}_{name}']:,.0f}" for name in what)) for part in result.series)
    seen = tuple(
        (row["name"], what, f"{value:,.6g}")
        for each in result.series.values()
        for row in each
        for what, value in row.get("seen", {}).items()
    )
    counts = Table(COUNTS, ("deployment", *(name.replace("_", " ") for name in what)), parts)
    return Table(COST, heads, rows), counts, *((Table(SEEN, ("broken", "what", "count"), seen),) if seen else ())


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["name"],
        f"{row['blow_s']:.1f}",
        "never" if row["served_s"] is None else f"{row['served_s']:.1f}",
        f"{row['caught_up_s']:.1f}",
        f"{row['complete']:.1%}",
        ", ".join(f"{count} {name}" for name, count in row["ended"].items()) or "0",
        "; ".join(row["faults"]) or "0",
    )


def words(result: Result) -> Mapping[str, Any]:
    """Return what all parts together say; parts that were run one by one have each their own totals."""
    rows = [row for each in result.series.values() for row in each]
    wrong = [*result.notes, *(f"{row['name']}: {fault}" for row in rows for fault in row["faults"])]
    stormed = next((row["seen"] for row in rows if row["part"] == STORM and row["seen"]), None)
    return {
        "storm": {"workers": sum(STORMY.workers.values()), "there": ON, "queries": QUERIES},
        "stormed": stormed,
        "rows": len(rows),
        "wrong": wrong,
        "ended": sum(sum(row["ended"].values()) for row in rows),
        "queries": sum(result.figures[f"{part}_queries"] for part in result.series),
        "missing": [part for part in PARTS if part not in result.series],
    }


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "every role, Redis and broker broken in every way on three brokers: what is lost, counted twice or left behind",
    tables=tables,
    page="scenarios/operation/matrix.md.j2",
    words=words,
    parts=PARTS,
    short=True,
    offline=True,
)
