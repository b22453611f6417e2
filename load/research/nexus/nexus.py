"""`nexus`: how few hosts answer 99 % of a day's rows in time, by the way in which models are placed.

    planned   the planner of `policies.packing`, which knows nothing beforehand; moves and loading count
    spread    models spread evenly over the hosts, once, as Kafka does without a plan: each on two hosts, since the
              busiest is more than one host answers in time
    known     packed once for the busiest five minutes of each model: it knows the whole day beforehand
    workers   a worker for each model, and one more for each that needs it

Ten applications with three models each are asked as ten companies were named in a day (`parts.pool_traffic`). All four
use the same simulated hosts with the worker's own batcher. Nothing is computed: batch times are Clockwork's. Two
processes share the work. `nexus_live` has the part on Kafka: two real hosts.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final, NamedTuple

from load.figures import IN_FULL, RIGHT, SHOWN, SHOWN_S, Better, Figures, Kind, at_least, at_most
from load.harness.progress import say
from load.research.nexus import nexus_live
from load.research.nexus.nexus_live import SLO_MS, SLOWER
from load.research.nexus.pool_traffic import COUNTS, MEMORY_BYTES, day
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from policies.packing.epochs import Planned, PlanPace, planned
from policies.packing.moving import MoveTerms
from policies.packing.squishy import pack
from streams.evaluation.drawing import COLOURS, panels, png
from workers.simulation.pool import TICK_US, Site, play

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from load.harness.system import Stage
    from load.research.nexus.pool_traffic import Day
    from workers.simulation.pool import Homes, PartitionPlanner, Played

NAME = "nexus"
PARTS = ("simulated", "measured")
WANTED: Final = 0.99
SPEED: Final = 20.0  # five minutes in 15 s, half an epoch
BUSY_HOSTS: Final = 1.0  # that full batches of all rows would keep busy, on the average of the day
_SHORT_COUNTS: Final = 24
_PAUSE_US: Final = 200_000  # twice what a rebalance of two members took on a real Kafka (107 ms)
_HEADROOM: Final = 1.3
_LEAST, _MOST = 2, 16  # hosts that are tried: the models take the memory of three

HOSTS = Kind("", Better.LOWER, 0.0, 1.0)
FIGURES = Figures(
    HOSTS("planned_hosts", "spread_hosts", "known_hosts", "workers_hosts"),
    RIGHT("planned_in_time", must=at_least(WANTED)),
    SHOWN("*_in_time"),
    Kind("", Better.HIGHER, 0.1)("workers_ratio", must=at_least(1.8, IN_FULL)),
    Kind("", Better.HIGHER, 0.1)("spread_ratio", must=at_least(1.0, IN_FULL)),
    Kind("s", Better.LOWER, 0.5)("plan_s", must=at_most(0.5)),
    SHOWN("planned_changes", "planned_moves", "planned_loads", "planned_mean_hosts", "rows", "models", "plans"),
    SHOWN_S("simulated_s"),
    nexus_live.FIGURES,
)


class _Fixed(NamedTuple):
    """A placement that stays."""

    placement: Homes

    def homes(self, rates: Mapping[str, float], now_us: int) -> Homes:
        """Return it."""
        return self.placement


class _Planning:
    """The planner, as the control role runs it: every second it is told what was asked lately."""

    def __init__(self, its: Day, hosts: int) -> None:
        self._works = its.traffic.works
        self._hosts = _named(hosts)
        self._pace = PlanPace(terms=MoveTerms(MEMORY_BYTES, pause_us=_PAUSE_US), headroom=_HEADROOM)
        self._homes: Homes = {}
        self.last: Planned | None = None
        self.plans = 0
        self.longest_s = 0.0

    def homes(self, rates: Mapping[str, float], now_us: int) -> Homes:
        """Plan, if it is time; see `workers.simulation.pool.Planner`."""
        started_s, before = time.perf_counter(), self.last
        works = [replace(work, per_s=rates[work.model]) for work in self._works]
        self.last = planned(before, works, self._hosts, now_us, self._pace)
        if before is None or self.last.changed_us != before.changed_us:
            self._homes = self.last.homes
        self.plans += self.last is not before
        self.longest_s = max(self.longest_s, time.perf_counter() - started_s)
        return self._homes


async def run(stage: Stage) -> Result:
    """Play the day with every way of placing models, and its beginning on real hosts."""
    parts = stage.only or PARTS
    given: Mapping[str, float | str] = {
        "form": stage.form,
        "seed": float(stage.seed),
        "speed": SPEED,
        "pause_ms": _PAUSE_US / 1e3,
    }
    found = await asyncio.to_thread(_simulated, stage) if "simulated" in parts else Result(NAME, {}, {})
    measured = await nexus_live.run(stage, SPEED) if "measured" in parts else {}
    return replace(found, figures={**found.figures, **measured}, parameters=given)


def _simulated(stage: Stage) -> Result:
    form = (stage.seed, _SHORT_COUNTS if stage.short else COUNTS)
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        planning = processes.submit(_planned, *form)
        spreading, others = processes.submit(_spread_out, *form), processes.submit(_others, *form)
        planned_hosts, found, planner = planning.result()
        spread_hosts, spread = spreading.result()
        (known_hosts, known), (workers_hosts, workers) = others.result()
    figures = {
        "planned_hosts": planned_hosts,
        "planned_in_time": found.share_in_time,
        "planned_changes": found.changes,
        "planned_moves": found.moves,
        "planned_loads": found.loads,
        "planned_mean_hosts": sum(found.hosts) / len(found.hosts),
        "spread_hosts": spread_hosts,
        "spread_in_time": spread.share_in_time,
        "known_hosts": known_hosts,
        "known_in_time": known.share_in_time,
        "workers_hosts": workers_hosts,
        "workers_in_time": workers.share_in_time,
        "workers_ratio": workers_hosts / planned_hosts,
        "spread_ratio": spread_hosts / planned_hosts,
        "plans": planner.plans,
        "plan_s": planner.longest_s,
        "rows": sum(found.rows.values()),
        "models": len(found.rows),
        "simulated_s": len(found.hosts) * TICK_US / 1e6,
    }
    course = [
        {"second": second, "hosts": hosts, "asked": asked}
        for second, (hosts, asked) in enumerate(zip(found.hosts, found.asked, strict=True))
    ]
    reasons = planner.last.placement.reasons if planner.last is not None and planner.last.placement is not None else ()
    return Result(
        NAME,
        {name: float(value) for name, value in figures.items()},
        {},
        {"course": course},
        tuple(f"The last plan: {reason}." for reason in reasons[:3]),
    )


def _day(seed: int, counts: int) -> Day:
    return day(seed, BUSY_HOSTS, SPEED, counts)


def _planned(seed: int, counts: int) -> tuple[int, Played, _Planning]:
    """Return the fewest hosts by plan, what became of the rows, and the planner."""
    its = _day(seed, counts)
    planners: dict[int, _Planning] = {}
    hosts, played = _fewest(its, lambda hosts: planners.setdefault(hosts, _Planning(its, hosts)))
    return hosts, played, planners[hosts]


def _spread_out(seed: int, counts: int) -> tuple[int, Played]:
    """Return the fewest hosts over which models are spread evenly."""
    its = _day(seed, counts)
    return _fewest(its, lambda hosts: _Fixed(_spread(its, hosts)))


def _others(seed: int, counts: int) -> tuple[tuple[int, Played], tuple[int, Played]]:
    """Return the hosts for peaks that are known beforehand, and the workers."""
    its = _day(seed, counts)
    return _known(its), _workers(its)


def _fewest(its: Day, planner: Callable[[int], PartitionPlanner]) -> tuple[int, Played]:
    """Return the fewest hosts with which 99 % are in time, found by halving, and what became of the rows."""
    low, high, best = _LEAST, _MOST, None
    while low < high:
        hosts = (low + high) // 2
        played = _play(its, planner(hosts), "fixed")
        if played.share_in_time >= WANTED:
            high, best = hosts, played
        else:
            low = hosts + 1
    return high, best or _play(its, planner(high), "fixed")


def _known(its: Day) -> tuple[int, Played]:
    """Return the hosts that the busiest five minutes of each model take, and what becomes of the rows."""
    nodes = pack([replace(work, per_s=its.peaks[work.model]) for work in its.traffic.works], MEMORY_BYTES).nodes
    homes = {
        (share.work.model, number): f"host-{at}"
        for at, node in enumerate(nodes)
        for share in node.shares
        for number in share.partitions
    }
    return len(nodes), _play(its, _Fixed(homes), "fixed")


def _spread(its: Day, hosts: int) -> Homes:
    """Return models on two hosts each, one after the other over all hosts."""
    names = _named(hosts)
    return {
        (work.model, number): names[(2 * at + number % 2) % hosts]
        for at, work in enumerate(its.traffic.works)
        for number in range(work.partitions)
    }


def _workers(its: Day) -> tuple[int, Played]:
    """Return a worker for each model, and more for those that need them; batches are sized by AIMD."""
    counts = {work.model: 1 for work in its.traffic.works}
    while True:
        homes = {
            (work.model, number): f"{work.model}-{number % counts[work.model]}"
            for work in its.traffic.works
            for number in range(work.partitions)
        }
        played = _play(its, _Fixed(homes), "aimd")
        late = {name: played.rows[name] - played.in_time[name] for name in counts}
        able = [work.model for work in its.traffic.works if counts[work.model] < work.partitions]
        if played.share_in_time >= WANTED or not able:
            return sum(counts.values()), played
        counts[max(able, key=lambda name: late[name])] += 1


def _play(its: Day, planner: PartitionPlanner, controller: str) -> Played:
    played = play(its.traffic, planner, its.until_us, controller, Site(MEMORY_BYTES, _PAUSE_US))
    say(NAME, f"{played.share_in_time:.2%} in time, {max(played.hosts)} hosts")
    return played


def _named(hosts: int) -> list[str]:
    return [f"host-{number:02}" for number in range(1, hosts + 1)]


_PICTURE: Final = f"{NAME}.png"
_WAYS: Final = {
    "planned": "planned, knows nothing beforehand",
    "spread": "spread evenly, once, each model on two hosts",
    "known": "packed once for the day's peaks, known beforehand",
    "workers": "a worker a model",
}
_MEASURED: Final = {"planned": "planned, from nothing", "spread": "spread evenly, as many on each host"}


def tables(result: Result) -> list[Table]:
    """Return the ways of placing models, side by side: simulated, and on real hosts."""
    found = result.figures
    parts = []
    if "planned_hosts" in found:
        ways = tuple(
            (name, f"{found[f'{way}_hosts']:.0f}", f"{found[f'{way}_in_time']:.2%}") for way, name in _WAYS.items()
        )
        parts.append(Table("Hosts for 99 % in time, simulated", ("models are", "hosts", "in time"), ways))
    if "measured_queries" in found:
        rows = tuple((name, *_measured_row(found, f"measured_{lane}")) for lane, name in _MEASURED.items())
        heads = ("models are", "in time", "half within, ms", "99 % within, ms")
        parts.append(Table(f"{nexus_live.HOSTS} hosts on this machine, measured", heads, rows))
    return parts


def _measured_row(found: Mapping[str, float], lane: str) -> tuple[str, ...]:
    return f"{found[f'{lane}_goodput']:.2%}", f"{found[f'{lane}_p50_ms']:.1f}", f"{found[f'{lane}_p99_ms']:.1f}"


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: what was asked, and the hosts that the plan used, over the day."""
    if "course" not in result.series:
        return {}
    figure, (left, right) = panels(2, (8.6, 2.9))
    course = result.series["course"]
    hours = [row["second"] / len(course) * 24 for row in course]
    left.plot(hours, [row["asked"] for row in course], color=COLOURS[0], linewidth=0.8)
    left.set_ylabel("rows a second")
    right.step(hours, [row["hosts"] for row in course], color="black", where="post", label="planned")
    for way, colour in (("spread", COLOURS[1]), ("known", COLOURS[2]), ("workers", COLOURS[4])):
        right.axhline(result.figures[f"{way}_hosts"], color=colour, label=_WAYS[way])
    right.set_ylabel("hosts")
    for axes in (left, right):
        axes.set_xlabel("part of the day in 24ths")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7)
    return {_PICTURE: png(figure)}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a day of thirty models, simulated: hosts needed for 99 % in time, planned, spread, and a worker a model",
    tables=tables,
    page="research/nexus/nexus.md.j2",
    words=lambda _: {"slo_ms": f"{SLO_MS:g}", "slower": SLOWER},
    plots=plots,
    parts=PARTS,
    short=True,
)
