"""`batching`: the adaptive batch size of a real worker on a model whose cost is known exactly.

The model takes 5 ms a batch and 0.1 ms a row, and the objective of a batch is 20 ms. So the best batch has 150 rows and
does 7,500 rows a second. A backlog of model queries keeps every take full. Halfway each row begins to cost twice as
much. Each other controller does the same work. `fixed` has the best size for the first half.

In the end the controllers are compared with the best fixed batches of real models. This decides the default
(`load.research.batching.controller_comparison`).
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from load.figures import GAIN, PER_S, SHARE_OF_BEST, SHOWN, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.system import Deployment
from load.harness.wire import Wire
from load.harness.workload import query_id
from load.models.functions import BATCH_S, ROW_S
from load.research.batching.controller_comparison import REAL_MODELS, behind, contest, shares, verdict
from load.results.results import Result
from load.scenario import Scenario
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Application, ModelPredictions, ModelQueries, Tensor
from streams.runtime.clock import SystemClock
from workers.packages.packaging import package_function
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from load.harness.system import Stage

NAME = "batching"
_MODEL = "timed"
_OBJECTIVE_MS = 20.0
_BEST_ROWS = (_OBJECTIVE_MS / 1e3 - BATCH_S) / ROW_S
_BEST_PER_S = _BEST_ROWS / (_OBJECTIVE_MS / 1e3)
_CHEAP_ROWS = 40_000  # 300 takes, most of them at the settled size
_DEAR_ROWS = 10_000
_SINGLE_ROWS = 600  # at batch size 1: 3 s
_DUE_US = 600_000_000
_TIMEOUT_S = 120.0
_SETTLED = slice(200, 260)
_OTHERS: Mapping[str, Mapping[str, float]] = {"quantile": {}, "deferred": {}, "fixed": {"rows": _BEST_ROWS}}


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as the worker reported it."""

    rows: int
    cap: int
    predict_us: int


_BATCHES = Kind("", Better.LOWER, 0.5, 2.0)  # until something is reached
FIGURES = Figures(
    PER_S("settled_per_s", "single_per_s", "single_wall_per_s"),
    SHARE_OF_BEST("settled_share_of_best", must=at_least(0.9)),
    SHOWN("settled_cap"),
    _BATCHES("settling_batches", must=at_most(200)),
    Kind("", Better.LOWER, 0.0, 1.0)("backoff_batches", must=at_most(5)),
    GAIN("gain_over_batch_1", must=at_least(20)),
    *(
        (
            *PER_S(f"{name}_settled_per_s"),
            *SHARE_OF_BEST(f"{name}_settled_share_of_best"),
            *SHOWN(f"{name}_settled_cap", f"{name}_backoff_batches"),
            *_BATCHES(f"{name}_settling_batches"),
        )
        for name in _OTHERS
    ),
    REAL_MODELS,
)


async def run(stage: Stage) -> Result:
    """Let AIMD find the size, double the cost, and compare with batches of one and with the other controllers."""
    package = stage.folder / _MODEL
    package_function("load.models.functions:timed", package, _MODEL, "1", np.ones((2, 1), np.float32))
    costs = [1.0] * _CHEAP_ROWS + [2.0] * _DEAR_ROWS
    batches, _ = await _work(stage, package, _worker("aimd", {}), costs)
    singles, single_s = await _work(stage, package, _worker("fixed", {"rows": 1.0}), [1.0] * _SINGLE_ROWS)
    others = {}
    for name, parameters in _OTHERS.items():
        others[name] = figures((await _work(stage, package, _worker(name, parameters), costs))[0])
    of_aimd = figures(batches)
    contenders = await contest(stage)
    real = shares(contenders)
    return Result(
        NAME,
        figures={
            **of_aimd,
            **_gain(batches, singles),
            "single_wall_per_s": _SINGLE_ROWS / single_s,
            **{f"{name}_{figure}": value for name, found in others.items() for figure, value in found.items()},
            **real,
            **behind(real, WorkerSettings().controller),
        },
        parameters={
            "form": stage.form,
            "objective_ms": _OBJECTIVE_MS,
            "best_rows": _BEST_ROWS,
            "best_per_s": _BEST_PER_S,
        },
        series={
            "batches": [{"rows": b.rows, "cap": b.cap, "predict_us": b.predict_us} for b in batches],
            "contenders": contenders,
        },
        notes=(*side_by_side({"aimd": of_aimd, **others}), *verdict(real, WorkerSettings().controller)),
    )


def _worker(controller: str, parameters: Mapping[str, float]) -> dict[str, object]:
    return {"controller": controller, "parameters": parameters, "objective_ms": _OBJECTIVE_MS}


def side_by_side(found: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """Write each controller's figures as one line."""
    return tuple(
        f"{name:<8} {of['settled_per_s']:7,.0f} rows/s, {of['settled_share_of_best']:4.0%} of the best, "
        f"cap {of['settled_cap']:3.0f}, there after {of['settling_batches']:3.0f} batches; "
        f"dearer rows broke the objective {of['backoff_batches']:.0f} times"
        for name, of in found.items()
    )


async def _work(
    stage: Stage, package: Path, worker: dict[str, object], costs: Sequence[float]
) -> tuple[list[Batch], float]:
    """Have one worker answer a backlog of rows of given cost; returns its batches in order, and the seconds it took."""
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application("timed", (_MODEL,), "single"),),
        {_MODEL: package},
        partitions=1,
        roles=("worker",),
        settings={"worker": worker},
    )
    async with stage.launch(deployment):
        done = await asyncio.to_thread(_ask, stage, deployment.prefix, costs)
    topics.delete(stage.bootstrap, deployment.prefix)
    return done


def _ask(stage: Stage, prefix: str, costs: Sequence[float]) -> tuple[list[Batch], float]:
    wire, codec, clock = Wire(stage.bootstrap, prefix, stage.properties, linger_ms=5), Codec(), SystemClock()
    wire.follow((names.MODEL_PREDICTIONS,))
    start_us = clock.now_us()
    inputs = {cost: Tensor.of(np.full((1, 1), cost, np.float32)) for cost in set(costs)}
    for index, cost in enumerate(costs):
        # A microsecond apart, so that the order by deadline is this order and dear rows really come last.
        query = ModelQueries((query_id(stage.seed, index),), 0, (start_us + _DUE_US + index,), inputs[cost])
        # One key: one partition, so that dear rows really come after the cheap ones.
        wire.produce(names.model_queries(_MODEL), b"batching", codec.encode(query))
    wire.flush()
    batches: list[Batch] = []
    rows = 0
    while rows < len(costs) and clock.now_us() < start_us + _TIMEOUT_S * 1e6:
        for arrival in wire.poll(0.2):
            answer = codec.decode(ModelPredictions, arrival.value)
            batches.append(Batch(answer.batch_rows, answer.batch_cap, answer.predict_us))
            rows += len(answer.query_ids)
    wire.close()
    if rows < len(costs):
        raise TimeoutError(f"the worker answered {rows} of {len(costs)} rows within {_TIMEOUT_S:g} s")
    return batches, (clock.now_us() - start_us) / 1e6


def figures(batches: Sequence[Batch]) -> dict[str, float]:
    """Say where a controller settled, after how many batches, and how many broke the objective when rows got dear."""
    dear = first_dear(batches)
    settled, after = batches[:dear][_SETTLED], batches[dear:]
    goal = 0.9 * _BEST_PER_S
    return {
        "settled_per_s": rate(settled),
        "settled_share_of_best": rate(settled) / _BEST_PER_S,
        "settled_cap": float(np.median([batch.cap for batch in settled])),
        "settling_batches": count_until([rate((batch,)) >= goal for batch in batches[:dear]]),
        "backoff_batches": count_until([batch.predict_us <= _OBJECTIVE_MS * 1e3 for batch in after]) - 1,
    }


def _gain(batches: Sequence[Batch], singles: Sequence[Batch]) -> dict[str, float]:
    settled = batches[: first_dear(batches)][_SETTLED]
    return {"single_per_s": rate(singles), "gain_over_batch_1": rate(settled) / rate(singles)}


def rate(batches: Sequence[Batch]) -> float:
    """Return rows a second of predicting."""
    return sum(batch.rows for batch in batches) / max(1, sum(batch.predict_us for batch in batches)) * 1e6


def first_dear(batches: Sequence[Batch]) -> int:
    """Return the index of the first batch with a dear row in it."""
    ends = itertools.accumulate(batch.rows for batch in batches)
    return next((index for index, end in enumerate(ends) if end > _CHEAP_ROWS), len(batches))


def count_until(reached: Sequence[bool]) -> int:
    """Return how many batches it took until one reached it, that one included; one more than there are if none did."""
    return next((count for count, yes in enumerate(reached, start=1) if yes), len(reached) + 1)


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "batch controllers: settling and backing off on a model of known cost, the best of them on real ones",
    short=True,
)
