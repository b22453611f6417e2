"""`soak`: an hour and a half of steady load with a fault a minute: nothing is lost, and nothing that roles hold grows.

The deployment, the faults and the validator are those of `matrix`. What has been gathered is written every minute, so a
run can be stopped and read. Half of the roles are ended in the first half of the time, the others in the second: each
lives for one half, and what it holds then tells whether it grows. All other faults strike everywhere, all the time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from load.figures import FAULTS, IN_FULL, NONE, SHOWN, Better, Figures, Kind, at_most, quantiles_ms
from load.harness.progress import say
from load.matrix.leaks import Leaks
from load.matrix.mixes import MIXED
from load.matrix.network import NETWORK_ROWS
from load.matrix.roles import ROLE_ROWS
from load.matrix.runner import SERVED_S, judged, placed, run_row
from load.matrix.services import BROKER_ROWS, REDIS_ROWS
from load.matrix.setting import INSTANCES
from load.results import results
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.system import Stage
    from load.matrix.broken import Place
    from load.matrix.runner import Judged, Row
    from load.matrix.traffic import Traffic

NAME: Final = "soak"
SECONDS, SHORT_S = 5_400.0, 240.0
_MINUTE_S: Final = 60.0
_LOOK_S: Final = 10.0
_STRETCH: Final = 10  # minutes
_WARM_S: Final = 600.0  # of a process: its memory grows until its caches are full
# A fail-over happens once in the life of a store.
_FAULTS: Final = (*ROLE_ROWS, *BROKER_ROWS, *NETWORK_ROWS, *(row for row in REDIS_ROWS if row.times > 1))
_ENDED: Final = {role: number % 2 for number, role in enumerate(INSTANCES)}
_IN_HALF: Final = tuple([row for row in _FAULTS if all(_ENDED[role] == half for role in row.ends)] for half in (0, 1))
_MIX: Final = replace(MIXED, rate=MIXED.rate / 2)  # keeps two cores three quarters busy, brokers included
_GROWTH: Final = Kind("", Better.LOWER, 0.5, 1.0)

FIGURES = Figures(
    FAULTS("faults", "roles_ended", "records_behind", must=NONE),
    SHOWN("minutes", "blows", "queries", "feedback", "unacknowledged", "*_doubled", "complete"),
    quantiles_ms("", "p50", "p99"),
    _GROWTH("most_mib_per_hour", must=at_most(1.0, IN_FULL)),
    _GROWTH("most_handles_per_hour", must=at_most(1.0, IN_FULL)),
    _GROWTH("*_mib_per_hour", "*_handles_per_hour"),
)


async def run(stage: Stage) -> Result:
    """Break something every minute until the time is over, and judge what is left."""
    random, leaks = Random(stage.seed), Leaks()  # noqa: S311
    rows: list[Row] = []
    seconds = SHORT_S if stage.short else SECONDS
    async with placed(stage, NAME, mix=_MIX) as (place, groups):
        began_s = time.monotonic()
        looking = asyncio.create_task(_look(leaks, place))
        try:
            while (minute_s := time.monotonic()) < began_s + seconds:
                half = int(minute_s >= began_s + seconds / 2)
                rows.append(await run_row(place, groups, random.choice(_IN_HALF[half])))
                say(
                    NAME, f"{len(rows)}, {(time.monotonic() - began_s) / 60:.0f} min: {rows[-1].name} {rows[-1].faults}"
                )
                _written(stage, _result(stage, rows, leaks, place.traffic, began_s))
                await asyncio.sleep(max(0.0, minute_s + _MINUTE_S - time.monotonic()))
        finally:
            looking.cancel()
        its = await judged(place, groups, rows, is_lossy=False)
        return _result(stage, rows, leaks, place.traffic, began_s, its)


async def _look(leaks: Leaks, place: Place) -> None:
    while True:
        leaks.look(place.system.pids, time.monotonic())
        await asyncio.sleep(_LOOK_S)


def _written(stage: Stage, result: Result) -> None:
    if stage.out is not None:
        results.write(result, stage.out)


def _result(
    stage: Stage, rows: Sequence[Row], leaks: Leaks, traffic: Traffic, began_s: float, its: Judged | None = None
) -> Result:
    """Return what has been gathered so far; the validator's word comes last."""
    grown = leaks.grown(0.0 if stage.short else _WARM_S)
    latencies = traffic.latencies_ms or [0.0]
    p50, p99 = np.percentile(latencies, (50, 99)).tolist()
    said = its.faults if its is not None else ()
    counts = its.counts if its is not None else {}
    return Result(
        NAME,
        figures={
            "faults": len(said) + sum(len(row.faults) for row in rows),
            "roles_ended": sum(sum(row.ended.values()) for row in rows),
            "records_behind": counts.get("records_behind", 0),
            "minutes": (time.monotonic() - began_s) / 60,
            "blows": len(rows),
            "queries": len(traffic.acknowledged.asked),
            "feedback": len(traffic.acknowledged.told),
            "unacknowledged": len(traffic.acknowledged.perhaps),
            "complete": traffic.share_complete(0, traffic.sent),
            "p50_ms": p50,
            "p99_ms": p99,
            "most_mib_per_hour": max((mib for mib, _ in grown.values()), default=0.0),
            "most_handles_per_hour": max((handles for _, handles in grown.values()), default=0.0),
            **{f"{kind}_doubled": count for kind, count in (its.doubled if its is not None else {}).items()},
            **{f"{name}_mib_per_hour": mib for name, (mib, _) in grown.items()},
            **{f"{name}_handles_per_hour": handles for name, (_, handles) in grown.items()},
        },
        parameters={"form": stage.form, "rate": _MIX.rate, "seed": stage.seed, "is_over": str(its is not None)},
        series={"rows": [row.plain() for row in rows], "held": leaks.minutes(began_s)},
        notes=tuple(said),
    )


def tables(result: Result) -> Sequence[Table]:
    """Return a line a kind of fault, and a line a process."""
    rows, lives = result.series["rows"], _longest(result.series["held"])
    named = [[row for row in rows if row["name"] == name] for name in sorted({row["name"] for row in rows})]
    memory, handles = ("MiB then", "at its end", "an hour", "without steps"), ("handles then", "at its end", "an hour")
    steady = steady_per_hour(result.series["held"])
    held = tuple((name, *_from_to(life, name, result.figures, steady[name])) for name, life in lives.items())
    return (
        Table("By fault", ("broken", "times", "served again s", "at most", "complete %"), tuple(map(_line, named))),
        Table("By process", ("process", "minutes", *memory, *handles), held),
    )


def _line(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return how rows of one name went; one that was not served again counts as long as was waited."""
    served = [SERVED_S if row["served_s"] is None else row["served_s"] for row in rows]
    complete = min(row["complete"] for row in rows)
    return rows[0]["name"], f"{len(rows)}", f"{np.median(served):.1f}", f"{max(served):.1f}", f"{complete:.1%}"


def _longest(held: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the longest life of each process."""
    lives: dict[str, list[Mapping[str, Any]]] = {}
    for name in sorted({row["process"] for row in held}):
        pids = dict.fromkeys(row["pid"] for row in held if row["process"] == name)
        lives[name] = max(([row for row in held if row["pid"] == pid] for pid in pids), key=len)
    return lives


def steady_per_hour(held: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return by process the median slope (MiB/h) of stretches of ten minutes, without the first of each life.

    What leaks grows in all of them; what an outage leaves once is a step in one. Empty: no process lived so long.
    """
    slopes: dict[str, list[float]] = {row["process"]: [] for row in held}
    for name, pid in dict.fromkeys((row["process"], row["pid"]) for row in held):
        life = [row for row in held if (row["process"], row["pid"]) == (name, pid)]
        for begin in range(_STRETCH, len(life) - _STRETCH + 1, _STRETCH):
            its = life[begin : begin + _STRETCH]
            slope = np.polyfit([row["minute"] for row in its], [row["mib"] for row in its], 1)[0]
            slopes[name].append(60 * float(slope))
    return {name: f"{np.median(its) + 0.0:.1f}" if its else "" for name, its in slopes.items()}


def _from_to(
    life: Sequence[Mapping[str, Any]], name: str, figures: Mapping[str, float], steady: str
) -> tuple[str, ...]:
    """Return memory and handles from the tenth minute of a life, or its beginning, to its end; and their slopes."""
    since = min(life[0]["minute"] + _WARM_S // _MINUTE_S, life[-1]["minute"])
    first, last = next(row for row in life if row["minute"] >= since), life[-1]
    memory = f"{first['mib']:.1f}", f"{last['mib']:.1f}", f"{figures[f'{name}_mib_per_hour']:.1f}", steady
    handles = f"{first['handles']}", f"{last['handles']}", f"{figures[f'{name}_handles_per_hour']:.1f}"
    return f"{last['minute'] - life[0]['minute']:.0f}", *memory, *handles


def words(result: Result) -> Mapping[str, Any]:
    """Return what the validator says, and whether it was asked."""
    rows = [f"{row['name']}: {fault}" for row in result.series["rows"] for fault in row["faults"]]
    return {"is_over": result.parameters["is_over"] == "True", "wrong": [*result.notes, *rows]}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a fault a minute for an hour and a half: what is lost, what roles hold, how late answers are",
    tables=tables,
    page="scenarios/operation/soak.md.j2",
    words=words,
    short=True,
    offline=True,
)
