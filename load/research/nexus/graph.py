"""`graph`: pictures are looked at by a detector, then each car and each face in them by a model of its own.

    split   the time is split over the stages by dynamic programming, from what batches take (`policies.stage_split`)
    even    each stage has the same part of it
    whole   workers and batches as for `split`, but no stage has a deadline of its own

It is Nexus's traffic example (SOSP'19) on pictures that are made up. A lane's figure is the highest rate at which 99 of
100 pictures are answered whole and in time, found by halving, with the same number of workers, for several objectives.
Every lane gives its stages the workers that its split needs. Batch times are those that Clockwork published for a V100:
nothing is computed, and time is virtual. `graph_live` has the part on Kafka.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from load.figures import IN_FULL, SHOWN, Better, Figures, Kind, at_least
from load.harness.progress import say
from load.research.models.traffic import SLOWER
from load.research.nexus import graph_live
from load.research.nexus.graph_live import Became
from load.research.nexus.graph_virtual import MODELS, Form, highest, lanes, play
from load.research.nexus.pool_traffic import PUBLISHED_MS
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from policies.packing.work import BatchTimes
from streams.evaluation.drawing import COLOURS, panels, png

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from load.harness.system import Stage
    from load.research.nexus.graph_virtual import Lane

NAME: Final = "graph"
PARTS: Final = ("simulated", "live")
LANES: Final = ("split", "even", "whole")
# Below 45 ms an even split leaves the detector less than two of its smallest batches take.
OBJECTIVES_MS: Final = (45, 50, 60, 80, 120, 200)
WORKERS: Final = 20
_QUERIES, _SHORT_QUERIES = 3_000, 800
_HALVINGS, _SHORT_HALVINGS = 7, 4
OVER: Final = 1.5  # of the first lane's rate: more than any lane can answer in time
_FORM: Final = Form(WORKERS, 1_000.0)

_RATE = Kind("1/s", Better.HIGHER, 0.1)
FIGURES = Figures(
    Kind("", Better.HIGHER, 0.1)("tightest_ratio", must=at_least(1.3, IN_FULL)),
    Kind("", Better.HIGHER, 0.1)("at_*_ratio"),
    _RATE(*(f"at_*_{lane}_per_s" for lane in LANES), *(f"at_*_{lane}_over_per_s" for lane in LANES)),
    SHOWN("at_*_share", "at_*_workers", "at_*_rows", "workers"),
    graph_live.FIGURES,
)


async def run(stage: Stage) -> Result:
    """Find each lane's highest rate at each objective, simulated and on Kafka."""
    parts = stage.only or PARTS
    figures = await asyncio.to_thread(_simulated, stage) if "simulated" in parts else {}
    given: dict[str, float | str] = {"form": stage.form, "seed": float(stage.seed)}
    if "live" in parts:
        figures |= await graph_live.run(stage)
        given |= {"live_seconds": graph_live.seconds_of(stage), "live_chances": float(graph_live.CHANCES)}
    return Result(NAME, figures, given)


def _simulated(stage: Stage) -> dict[str, float]:
    times = {model: _times(name) for model, name in MODELS.items()}
    figures: dict[str, float] = {"workers": float(WORKERS)}
    for slo_ms in OBJECTIVES_MS[:1] + OBJECTIVES_MS[-1:] if stage.short else OBJECTIVES_MS:
        for name, (lane, most) in _lanes(times, slo_ms).items():
            how = {"queries": _queries(stage), "halvings": _SHORT_HALVINGS if stage.short else _HALVINGS}
            rate = highest(times, lane, most, slo_ms, **how, seed=stage.seed)
            figures[f"at_{slo_ms}_{name}_per_s"] = rate
            figures |= {f"at_{slo_ms}_{name}_{of}_share": share for of, share in lane.shares.items()}
            figures |= {f"at_{slo_ms}_{name}_{of}_workers": float(count) for of, count in lane.workers.items()}
            figures |= {f"at_{slo_ms}_{name}_{of}_rows": float(count) for of, count in lane.rows.items()}
            over = OVER * figures[f"at_{slo_ms}_split_per_s"]
            share = play(times, lane, slo_ms, over, _queries(stage), stage.seed).share
            figures[f"at_{slo_ms}_{name}_over_per_s"] = share * over
            say(NAME, f"{slo_ms} ms, {name}: {rate:.0f}/s; of {over:.0f}/s {share:.1%}")
        figures[f"at_{slo_ms}_ratio"] = figures[f"at_{slo_ms}_split_per_s"] / figures[f"at_{slo_ms}_even_per_s"]
    return figures | {"tightest_ratio": figures[f"at_{OBJECTIVES_MS[0]}_ratio"]}


def _lanes(times: Mapping[str, BatchTimes], slo_ms: float) -> dict[str, tuple[Lane, float]]:
    """Return the lanes by name, and what their workers could do at most (queries a second)."""
    found = lanes(times, slo_ms, _FORM)
    lane, most = found["split"]
    return {**found, "whole": (lane._replace(shares=dict.fromkeys(lane.shares, 1.0)), most)}


def _queries(stage: Stage) -> int:
    return _SHORT_QUERIES if stage.short else _QUERIES


def _times(name: str) -> BatchTimes:
    sizes, took_ms = PUBLISHED_MS[name]
    return BatchTimes(sizes, tuple([1e3 * ms for ms in took_ms]))


_PICTURE: Final = f"{NAME}.png"
_WORDS: Final = {
    "split": "split by what batches take",
    "even": "split evenly",
    "whole": "as the first, without stages' deadlines",
}
_STAGES: Final = ("detect", "cars", "faces")
_BECAME: Final = {
    Became.WHOLE: "whole, in time",
    Became.PART: "with what was there",
    Became.DEFAULT: "by default",
    Became.LATE: "late",
    Became.NO_ANSWER: "no answer",
}


def tables(result: Result) -> list[Table]:
    """Return rates by objective, and how the time and the workers were split: simulated, and on Kafka."""
    return [*_simulated_tables(result), *_live_tables(result)]


def _simulated_tables(result: Result) -> list[Table]:
    found = result.figures
    shown = [ms for ms in OBJECTIVES_MS if f"at_{ms}_ratio" in found]
    if not shown:
        return []
    rates = tuple(
        (f"{ms} ms", *(f"{found[f'at_{ms}_{lane}_per_s']:.0f}" for lane in LANES), f"{found[f'at_{ms}_ratio']:.2f}")
        for ms in shown
    )
    heads = ("objective", *_WORDS.values(), "first / second")
    over = tuple((f"{ms} ms", *(f"{found[f'at_{ms}_{lane}_over_per_s']:.0f}" for lane in LANES)) for ms in shown)
    return [
        Table("Pictures a second that are answered whole and in time", heads, rates),
        Table(f"The same, where {OVER:g} times the first lane's rate is asked", heads[:-1], over),
        _splits(found, [(ms, f"at_{ms}") for ms in shown]),
    ]


def _live_tables(result: Result) -> list[Table]:
    found = result.figures
    shown = [(f"{ms} ms", f"live_at_{ms}") for ms in graph_live.OBJECTIVES_MS if f"live_at_{ms}_ratio" in found]
    if not shown:
        return []
    objectives = [(ms, f"live_at_{ms}") for ms in graph_live.OBJECTIVES_MS if f"live_at_{ms}_ratio" in found]
    if "live_own_ratio" in found:
        shown.append((f"{graph_live.OBJECTIVES_MS[0]} ms, with batches that workers size themselves", "live_own"))
    lanes = graph_live.LANES
    rates = tuple(
        (name, *(_rate(found, f"{at}_{lane}") for lane in lanes), f"{found[f'{at}_ratio']:.2f}") for name, at in shown
    )
    over = tuple(
        (name, _WORDS[lane], f"{found[f'{at}_{lane}_over_per_s']:.0f}", *_shares(found, f"{at}_{lane}_over"))
        for name, at in shown
        for lane in lanes
    )
    heads = ("objective", *(_WORDS[lane] for lane in lanes), "first / second")
    return [
        Table("Pictures a second that Kafka and workers answer whole and in time", heads, rates),
        Table(
            f"What becomes of {graph_live.OVER:g} times the first lane's rate",
            ("objective", "time", "asked a second", *_BECAME.values()),
            over,
        ),
        _splits(found, objectives),
    ]


def _rate(found: Mapping[str, float], lane: str) -> str:
    virtual = found.get(f"{lane}_virtual_per_s")
    return f"{found[f'{lane}_per_s']:.0f}" + ("" if virtual is None else f" ({virtual:.0f})")


def _shares(found: Mapping[str, float], prefix: str) -> tuple[str, ...]:
    return tuple(f"{found[f'{prefix}_{each.value}']:.1%}" for each in _BECAME)


def _splits(found: Mapping[str, float], objectives: Sequence[tuple[int, str]]) -> Table:
    rows = tuple(
        (f"{ms} ms", _WORDS[lane], *(_stage(found, f"{at}_{lane}_{stage}") for stage in _STAGES))
        for ms, at in objectives
        for lane in LANES[:2]
    )
    return Table("By when a stage must answer; workers, rows of a batch", ("objective", "time", *_STAGES), rows)


def _stage(found: Mapping[str, float], prefix: str) -> str:
    share, workers, rows = (found[f"{prefix}_{of}"] for of in ("share", "workers", "rows"))
    return f"{share:.0%}; {workers:.0f}, {rows:.0f}"


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: rates by objective, simulated and on Kafka, and the ratio of the first two lanes."""
    found = result.figures
    simulated = [(ms, f"at_{ms}") for ms in OBJECTIVES_MS if f"at_{ms}_ratio" in found]
    live = [(ms // SLOWER, f"live_at_{ms}") for ms in graph_live.OBJECTIVES_MS if f"live_at_{ms}_ratio" in found]
    figure, (left, right) = panels(2)
    for number, lane in enumerate(LANES):
        rates = [found[f"{at}_{lane}_per_s"] for _, at in simulated]
        left.plot(
            [ms for ms, _ in simulated], rates, marker="o", markersize=3, color=COLOURS[number], label=_WORDS[lane]
        )
    left.set_ylabel("pictures a second, simulated")
    left.set_ylim(bottom=0)
    for shown, marker, word in ((simulated, "o", "simulated"), (live, "s", f"on Kafka, {SLOWER} times as slow")):
        _ratios(right, found, shown, marker, word)
    right.axhline(1.3, color=COLOURS[4], linewidth=0.8, linestyle="--")
    right.set_ylabel("split by what batches take / evenly")
    right.legend(fontsize=7)
    for axes in (left, right):
        axes.set_xlabel("objective, ms")
    right.set_xlabel(f"objective, ms; on Kafka {SLOWER} times that")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: png(figure)}


def _ratios(axes: Axes, found: Mapping[str, float], shown: Sequence[tuple[int, str]], marker: str, word: str) -> None:
    if shown:
        ratios = [found[f"{at}_ratio"] for _, at in shown]
        colour = "black" if marker == "o" else COLOURS[3]
        axes.plot([ms for ms, _ in shown], ratios, marker=marker, markersize=3, color=colour, label=word)


def words(result: Result) -> dict[str, Any]:
    """Return what the page says besides: the tables of either part, and on what models Kafka was asked."""
    parts = {"simulated": _simulated_tables(result), "live": _live_tables(result)}
    return {"workers": graph_live.WORKERS, "slower": SLOWER, **parts}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a detector, then models of cars and faces: rates with the time split by what batches take, and evenly",
    tables=tables,
    page="research/nexus/graph.md.j2",
    words=words,
    plots=plots,
    parts=PARTS,
    short=True,
)
