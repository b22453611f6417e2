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
from typing import TYPE_CHECKING, Final

from load.figures import IN_FULL, SHOWN, Better, Figures, Kind, at_least
from load.harness.progress import say
from load.research.nexus import graph_live
from load.research.nexus.graph_virtual import MODELS, Form, highest, lanes, play
from load.research.nexus.pool_traffic import PUBLISHED_MS
from load.results.results import Result
from policies.packing.work import Times

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def _lanes(times: Mapping[str, Times], slo_ms: float) -> dict[str, tuple[Lane, float]]:
    """Return the lanes by name, and what their workers could do at most (queries a second)."""
    found = lanes(times, slo_ms, _FORM)
    lane, most = found["split"]
    return {**found, "whole": (lane._replace(shares=dict.fromkeys(lane.shares, 1.0)), most)}


def _queries(stage: Stage) -> int:
    return _SHORT_QUERIES if stage.short else _QUERIES


def _times(name: str) -> Times:
    sizes, took_ms = PUBLISHED_MS[name]
    return Times(sizes, tuple([1e3 * ms for ms in took_ms]))
