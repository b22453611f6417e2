"""`pretzel`: 250 pipelines of two families in one process that shares equal steps, beside the ways that share nothing.

processes   one process each, under scikit-learn, as models run today: 10, 25 and 50 of them are started
staged      one process each, in stages: without scikit-learn, and nothing to share with
sklearn     all in one process under scikit-learn, nothing shared
alone       all in one process in stages, nothing shared: what the stages do without the store
shared      all in one process in stages with the store, when 100, 50 or 0 per cent have their family's operators

Measured are memory by PSS, the first query of a pipeline that is not loaded, a hot query beside scikit-learn's own
`Pipeline.predict`, rows a second by the number of pipelines, and batches that several pipelines are asked about. Kafka
is not used: a host's child process loads and asks its models the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from load.figures import (
    FAULTS,
    GAIN,
    IN_FULL,
    MIB,
    NONE,
    PER_S,
    RATIO_RATE,
    RIGHT,
    SHOWN,
    SHOWN_MS,
    SHOWN_US,
    Better,
    Figures,
    Kind,
    at_least,
    at_most,
)
from load.models.pipelines import FAMILIES
from load.research.pretzel.pipeline_packages import SHARINGS, Packages, processes
from load.research.pretzel.pipeline_process import family_of
from load.results.results import Result
from load.results.tables import Table, number
from load.scenario import Scenario
from streams.evaluation.drawing import COLOURS, panels, png

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.system import Stage

NAME: Final = "pretzel"
COUNTS, SHORT_COUNTS = (10, 25, 50, 100, 250), (10, 25)
PROCESSES, SHORT_PROCESSES = (10, 25, 50), (4, 10)
_SECONDS, _SHORT_SECONDS = 3.0, 1.0  # of a stretch of work
_TOGETHER, _TOGETHER_ROWS = 8, 32  # pipelines that are asked about the same batch, and its rows

FIGURES: Final = Figures(
    FAULTS("different_answers", must=NONE),
    RIGHT("compared_answers"),
    MIB("shared_*_pss_mib", "alone_*_pss_mib", "sklearn_*_pss_mib", "processes_*_pss_mib", "staged_*_pss_mib"),
    GAIN("memory_gain_over_processes", must=at_least(20.0, IN_FULL)),
    GAIN("memory_gain_over_staged", "memory_gain_over_sklearn", "memory_gain_over_alone"),
    Kind("ms", Better.LOWER, 1.0, 3.0)("cold_100_p99_ms", "cold_50_p99_ms", "cold_0_p99_ms", must=at_most(10.0)),
    SHOWN_MS("cold_*_p50_ms", "sklearn_cold_p50_ms", "sklearn_cold_p99_ms", "*cold*_p99_cpu_ms"),
    SHOWN_US("*_hot_us", "*_hot_sklearn_us"),
    GAIN(*(f"{family}_hot_gain" for family in FAMILIES), must=at_least(3.0)),
    PER_S("*_work_per_s"),
    RATIO_RATE("shared_work_kept", must=at_least(0.8, IN_FULL)),
    SHOWN("processes_work_kept", "sklearn_work_kept"),
    GAIN("together_gain"),
)


async def run(stage: Stage) -> Result:
    """Measure all ways."""
    counts, started = (SHORT_COUNTS, SHORT_PROCESSES) if stage.short else (COUNTS, PROCESSES)
    seconds = _SHORT_SECONDS if stage.short else _SECONDS
    packages = Packages(stage.folder, stage.seed)
    rows = packages.rows()
    memory: list[dict[str, Any]] = []
    work: list[dict[str, Any]] = []
    figures = _one_process_each(packages, rows, "processes", started, seconds, memory, work)
    figures |= _one_process_each(packages, rows, "staged", started, seconds, memory, work)
    for sharing in SHARINGS:
        figures |= _in_one(packages, rows, f"shared_{sharing}", counts, seconds, memory, work)
    figures |= _in_one(packages, rows, "alone_0", counts, seconds, memory, work)
    figures |= _in_one(packages, rows, "sklearn", counts, seconds, memory, work)
    figures |= _answers(packages, rows, min(counts[-1], 20))
    figures |= _gains(figures, counts[-1], started)
    return Result(
        NAME,
        figures,
        {"form": stage.form, "seed": stage.seed, "pipelines": counts[-1], "families": len(FAMILIES)},
        {"memory": memory, "work": work},
        notes=("Texts are made of words from seeds. Packages of scikit-learn are pickles here, as those load faster.",),
    )


def _one_process_each(
    packages: Packages,
    rows: dict[str, str],
    name: str,
    counts: Sequence[int],
    seconds: float,
    memory: list[dict[str, Any]],
    work: list[dict[str, Any]],
) -> dict[str, float]:
    """Start one process a pipeline, more and more of them; all work at once."""
    figures: dict[str, float] = {}
    is_whole = name == "processes"
    folders = packages.of(counts[-1], 100, whole=is_whole)
    with processes("sklearn" if is_whole else "shared", rows, counts[-1]) as all_of_them:
        for count in counts:
            using = all_of_them[:count]
            for process, folder in [*zip(using, folders, strict=False)][_before(counts, count) :]:
                process.ask("load", [folder])
            pss_mib = sum(process.pss_mib() for process in using)
            for number, process in enumerate(using):
                process.tell("work", seconds, number)
            per_s = sum(process.hear() for process in using)
            figures |= {f"{name}_{count}_pss_mib": pss_mib, f"{name}_{count}_work_per_s": per_s}
            memory.append({"way": name, "pipelines": count, "pss_mib": pss_mib})
            work.append({"way": name, "pipelines": count, "per_s": per_s})
    return figures


def _before(counts: Sequence[int], count: int) -> int:
    """Return how many were loaded before."""
    return max((each for each in counts if each < count), default=0)


def _in_one(
    packages: Packages,
    rows: dict[str, str],
    name: str,
    counts: Sequence[int],
    seconds: float,
    memory: list[dict[str, Any]],
    work: list[dict[str, Any]],
) -> dict[str, float]:
    """Load more and more pipelines into one process, and measure them."""
    way, _, sharing = name.partition("_")
    folders = packages.of(counts[-1], int(sharing or 100), whole=way == "sklearn")
    figures: dict[str, float] = {}
    cold_ms: list[float] = []
    with processes(way, rows) as (process,):
        process.ask("warm_up", folders[: len(FAMILIES)])
        for count in counts:
            cold_ms += process.ask("load", folders[_before(counts, count) : count])
            pss_mib = process.pss_mib()
            per_s = process.ask("work", seconds, count)
            figures |= {f"{name}_{count}_pss_mib": pss_mib, f"{name}_{count}_work_per_s": per_s}
            memory.append({"way": name, "pipelines": count, "pss_mib": pss_mib})
            work.append({"way": name, "pipelines": count, "per_s": per_s})
        cold = f"cold_{sharing}" if way == "shared" else f"{name}_cold"
        if way != "alone":
            for point in (50, 99):
                figures[f"{cold}_p{point}_ms"] = float(np.percentile(cold_ms, point))
            figures[f"{cold}_p99_cpu_ms"] = float(np.percentile(process.ask("computed"), 99))
        if name in {"shared_100", "sklearn"}:
            hot_us = process.ask("hot", folders)
            for family in FAMILIES:
                of_family = [us for us, folder in zip(hot_us, folders, strict=True) if family_of(folder) == family]
                figures[f"{family}_hot{'_sklearn' * (way == 'sklearn')}_us"] = float(np.median(of_family))
        if name == "shared_100":
            together = process.ask("together", folders[::2][:_TOGETHER], _TOGETHER_ROWS)
            figures["together_gain"] = together[0] / float(np.median(together[1:]))
    return figures


def _answers(packages: Packages, rows: dict[str, str], count: int) -> dict[str, float]:
    """Compare the answers to all rows with scikit-learn's, to the bit."""
    found = {}
    for way in ("sklearn", "shared"):
        folders = packages.of(count, 100, whole=way == "sklearn")
        with processes(way, rows) as (process,):
            process.ask("load", folders)
            found[way] = [answer for folder in folders for answer in process.ask("answers", folder)]
    different = sum(one != other for one, other in zip(found["sklearn"], found["shared"], strict=True))
    return {"different_answers": different, "compared_answers": len(found["shared"])}


def _gains(figures: dict[str, float], count: int, started: Sequence[int]) -> dict[str, float]:
    """Return what sharing is worth: of the most processes that were started, and of all pipelines in one."""
    most, least = started[-1], started[0]
    small = figures[f"shared_100_{10}_work_per_s"]
    gains = {
        "memory_gain_over_processes": figures[f"processes_{most}_pss_mib"] / figures[f"shared_100_{most}_pss_mib"],
        "memory_gain_over_staged": figures[f"staged_{most}_pss_mib"] / figures[f"shared_100_{most}_pss_mib"],
        "memory_gain_over_sklearn": figures[f"sklearn_{count}_pss_mib"] / figures[f"shared_100_{count}_pss_mib"],
        "memory_gain_over_alone": figures[f"alone_0_{count}_pss_mib"] / figures[f"shared_100_{count}_pss_mib"],
        "shared_work_kept": figures[f"shared_100_{count}_work_per_s"] / small,
        "sklearn_work_kept": figures[f"sklearn_{count}_work_per_s"] / figures["sklearn_10_work_per_s"],
        "processes_work_kept": figures[f"processes_{most}_work_per_s"] / figures[f"processes_{least}_work_per_s"],
    }
    return gains | {
        f"{family}_hot_gain": figures[f"{family}_hot_sklearn_us"] / figures[f"{family}_hot_us"] for family in FAMILIES
    }


_PICTURE: Final = f"{NAME}.png"
_WAYS: Final = {
    "processes": "one process each, scikit-learn",
    "staged": "one process each, stages",
    "sklearn": "one process, scikit-learn",
    "alone_0": "one process, stages, nothing shared",
    "shared_0": "store, 0 % have common operators",
    "shared_50": "store, 50 %",
    "shared_100": "store, 100 %",
}


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    return [
        _by_count(result, "memory", "pss_mib", "Memory by pipelines (MiB of PSS)"),
        _by_count(result, "work", "per_s", "Rows a second by pipelines"),
        _latency(result),
        _hot(result),
    ]


def _by_count(result: Result, series: str, value: str, title: str) -> Table:
    rows: Sequence[Mapping[str, Any]] = result.series[series]
    counts = sorted({int(row["pipelines"]) for row in rows})
    found = {(row["way"], row["pipelines"]): row[value] for row in rows}
    return Table(
        title,
        ("way", *map(str, counts)),
        tuple((name, *(number(found.get((way, count))) for count in counts)) for way, name in _WAYS.items()),
    )


def _latency(result: Result) -> Table:
    figures = result.figures
    points = ("p50_ms", "p99_ms", "p99_cpu_ms")
    ways = {f"cold, {sharing} % common, ms": f"cold_{sharing}" for sharing in (100, 50, 0)}
    rows = [
        (name, *(number(figures[f"{way}_{point}"]) for point in points))
        for name, way in (ways | {"cold, scikit-learn, ms": "sklearn_cold"}).items()
    ]
    return Table("First query of a pipeline that is not loaded", ("", "p50", "p99", "p99, CPU alone"), tuple(rows))


def _hot(result: Result) -> Table:
    figures = result.figures
    rows = [
        (
            f"{family}, hot, us",
            number(figures[f"{family}_hot_us"]),
            number(figures[f"{family}_hot_sklearn_us"]),
            number(figures[f"{family}_hot_gain"]),
        )
        for family in FAMILIES
    ]
    return Table("One row of a pipeline that is loaded", ("", "stages", "scikit-learn", "times"), tuple(rows))


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: memory and rows a second by the number of pipelines."""
    figure, (left, right) = panels(2, (8.6, 3.4))
    for axes, series, value in ((left, "memory", "pss_mib"), (right, "work", "per_s")):
        for (way, name), colour in zip(_WAYS.items(), (*COLOURS[:6], "black"), strict=True):
            points = [(row["pipelines"], row[value]) for row in result.series[series] if row["way"] == way]
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name, color=colour)
        axes.set_xlabel("pipelines")
        axes.set_yscale("log")
    left.set_ylabel("MiB of PSS")
    right.set_ylabel("rows a second")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: png(figure)}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "250 pipelines in one process that shares equal steps: memory, cold and hot latency, beside scikit-learn",
    tables=tables,
    page="research/pretzel/pretzel.md.j2",
    plots=plots,
    short=True,
    offline=True,
)
