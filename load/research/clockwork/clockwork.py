"""`clockwork`: many models on one host of which a tenth fit into memory, under Clockwork's schedule and beside others.

profiled    200 models as Clockwork has published them, which only take time
real        200 models of three kinds that are measured here: linear, trees, ONNX
objectives  the profiled ones with less and less time for an answer

These are simulated: the kernel's own schedules and residency, in virtual time (`workers.simulation.host`). Beside
`clockwork` the same host runs `fifo` with batches by `aimd`, and `apart` has as many workers of one model each as fit
into the same memory, for the models that are asked most, on the same device. A query that a model does not answer in
time is a miss: refused, expired, late, or of a model that is not there. `clockwork_live` has the parts on Kafka.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import numpy as np

from load.figures import IN_FULL, SHOWN, SHOWN_US, WITHIN_SLO, Figures, Kind, at_least
from load.research.clockwork import clockwork_live, many_asked, many_models
from load.research.clockwork.clockwork_live import LOAD, MODELS, RESIDENT, SLO_MS
from load.results.results import Result
from workers.simulation.host import EXPIRED, NO_MODEL, PREDICTED, REFUSED, HostPlan, HostRun, simulate_host

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.system import Stage
    from load.research.clockwork.many_asked import Asked, Played
    from load.research.clockwork.many_models import Family
    from workers.simulation.host import HostModel

NAME = "clockwork"
SIMULATED = ("profiled", "real", "objectives")
PARTS = (*SIMULATED, *clockwork_live.PARTS)
QUERIES, SHORT_QUERIES = 1_000_000, 30_000
OBJECTIVE_QUERIES, SHORT_OBJECTIVE_QUERIES = 60_000, 10_000
OBJECTIVES_MS: Final = (100, 75, 50, 40, 30, 25, 20, 15, 12, 10)
LANES: Mapping[str, str] = {"clockwork": "clockwork", "fifo": "fifo, aimd", "apart": "a worker a model"}
# As selection: what is left for the way back to the client.
_MARGIN_US, _MARGIN_PART = 5_000, 10
_SHARES: Final = ("cold_share", "refused_share", "expired_share", "late_share", "no_model_share", "busy")
_ERRORS: Final = ("under_p99_us", "over_p99_us")

FIGURES = Figures(
    WITHIN_SLO("profiled_clockwork_goodput", must=at_least(0.9999, IN_FULL)),
    WITHIN_SLO("real_clockwork_goodput", must=at_least(0.999, IN_FULL)),
    *(
        (
            *WITHIN_SLO(f"{part}_{lane}_goodput", f"{part}_{lane}_goodput_within"),
            *SHOWN(*(f"{part}_{lane}_{share}" for share in _SHARES)),
            *SHOWN(*(f"{part}_{lane}_{what}" for what in ("cold_goodput", "rows_a_batch"))),
            *SHOWN(*(f"{part}_{lane}_{what}" for what in ("under_share", "over_share"))),
            *SHOWN_US(*(f"{part}_{lane}_{error}" for error in _ERRORS)),
        )
        for part in SIMULATED[:2]
        for lane in LANES
    ),
    clockwork_live.FIGURES,
    SHOWN("*_queries", "*_speed", "*_within_share", "*_most_asked_share"),
    Kind("1/s")("*_per_s"),
    *(WITHIN_SLO(f"objective_{ms}_{lane}_goodput_within") for ms in OBJECTIVES_MS for lane in ("clockwork", "fifo")),
)


async def run(stage: Stage) -> Result:
    """Run the parts that are asked for."""
    parts = stage.only or PARTS
    figures: dict[str, float] = {}
    notes: list[str] = []
    if "profiled" in parts or "objectives" in parts:
        families = many_models.published()
        if "profiled" in parts:
            figures |= await asyncio.to_thread(_compared, "profiled", families, stage, loads_beside=True)
        if "objectives" in parts:
            figures |= await asyncio.to_thread(_objectives, families, stage)
    if "real" in parts:
        families = await asyncio.to_thread(many_models.real, stage.folder)
        notes += [
            f"{each.name}: one row {np.median(each.samples[1]):,.0f} us, sixteen {np.median(each.samples[16]):,.0f};"
            f" loading {each.load_us / 1e3:,.1f} ms; {each.bytes / 1024:,.0f} KiB"
            for each in families
        ]
        figures |= await asyncio.to_thread(_compared, "real", families, stage, loads_beside=False)
    figures |= await clockwork_live.run(stage, parts)
    return Result(
        NAME,
        figures=figures,
        parameters={
            "form": stage.form if not stage.only else ",".join(stage.only),
            "seed": float(stage.seed),
            "models": float(MODELS),
            "live_models": float(clockwork_live.models_of(stage)),
            "resident": RESIDENT,
            "load": LOAD,
            "slo_ms": SLO_MS,
            "skew": many_asked.SKEW,
        },
        notes=tuple(notes),
    )


def _compared(part: str, families: Sequence[Family], stage: Stage, *, loads_beside: bool) -> dict[str, float]:
    """Return the figures of all lanes at 100 ms."""
    random = np.random.default_rng(stage.seed)
    its = many_asked.asked(SHORT_QUERIES if stage.short else QUERIES, MODELS, random)
    models, budget = _models(families, random)
    played = many_asked.played(its, models, budget, LOAD, loads_beside=loads_beside)
    figures = {
        f"{part}_queries": float(len(its.models)),
        f"{part}_per_s": len(its.models) * 1e6 / float(played.arrivals_us[-1]),
        f"{part}_speed": played.speed,
        f"{part}_within_share": float(played.is_within.mean()),
        f"{part}_most_asked_share": its.share_of_most_asked(MODELS),
    }
    for lane in LANES:
        plan = _plan(lane, its, played, models, budget, SLO_MS, loads_beside=loads_beside)
        its_run = simulate_host(plan, np.random.default_rng(stage.seed))
        figures |= {f"{part}_{lane}_{name}": value for name, value in _figures(plan, its_run, played).items()}
    return figures


def _objectives(families: Sequence[Family], stage: Stage) -> dict[str, float]:
    """Return how many are in time as the objective gets shorter."""
    random = np.random.default_rng(stage.seed)
    its = many_asked.asked(SHORT_OBJECTIVE_QUERIES if stage.short else OBJECTIVE_QUERIES, MODELS, random)
    models, budget = _models(families, random)
    played = many_asked.played(its, models, budget, LOAD, loads_beside=True)
    figures = {}
    for ms in OBJECTIVES_MS:
        for lane in ("clockwork", "fifo"):
            plan = _plan(lane, its, played, models, budget, ms, loads_beside=True)
            found = _figures(plan, simulate_host(plan, np.random.default_rng(stage.seed)), played)
            figures[f"objective_{ms}_{lane}_goodput_within"] = found["goodput_within"]
    return figures


def _models(families: Sequence[Family], random: np.random.Generator) -> tuple[tuple[HostModel, ...], int]:
    """Return the models, of each kind as many, and the bytes that a tenth of them takes."""
    kinds = random.permutation(np.arange(MODELS) % len(families))
    models = tuple(families[kind].model() for kind in kinds.tolist())
    return models, int(RESIDENT * sum(model.bytes for model in models))


def _plan(
    lane: str,
    its: Asked,
    played: Played,
    models: tuple[HostModel, ...],
    budget_bytes: int,
    slo_ms: float,
    *,
    loads_beside: bool,
) -> HostPlan:
    slo_us = int(slo_ms * 1e3)
    return HostPlan(
        played.arrivals_us,
        its.models,
        models,
        slo_us - min(_MARGIN_US, slo_us // _MARGIN_PART),
        budget_bytes,
        schedule="clockwork" if lane == "clockwork" else "fifo",
        apart=_most_asked(its, models, budget_bytes) if lane == "apart" else None,
        loads_beside=loads_beside,
    )


def _most_asked(its: Asked, models: Sequence[HostModel], budget_bytes: int) -> frozenset[int]:
    """Return the models that are asked most, as many as fit into memory."""
    chosen, used = set(), 0
    for model in np.argsort(-np.bincount(its.models, minlength=len(models)), kind="stable").tolist():
        if used + models[model].bytes <= budget_bytes:
            chosen.add(int(model))
            used += models[model].bytes
    return frozenset(chosen)


def _figures(plan: HostPlan, its: HostRun, played: Played) -> dict[str, float]:
    """Return what became of the queries, as shares of all of them."""
    outcome, done_us = np.frombuffer(its.outcome, np.uint8), np.frombuffer(its.done_us, np.int64)
    is_cold = np.frombuffer(its.is_cold, np.uint8).astype(bool)
    is_good = (outcome == PREDICTED) & (done_us <= plan.arrivals_us + plan.due_us)
    seconds = float(plan.arrivals_us[-1]) / 1e6
    predicted, errors = max(1, int((outcome == PREDICTED).sum())), its.errors
    return {
        "goodput": float(is_good.mean()),
        "goodput_within": float(is_good[played.is_within].mean()) if played.is_within.any() else 0.0,
        "cold_share": float(is_cold.mean()),
        "cold_goodput": float(is_good[is_cold].mean()) if is_cold.any() else 0.0,
        "refused_share": float((outcome == REFUSED).mean()),
        "expired_share": float((outcome == EXPIRED).mean()),
        "late_share": float(((outcome == PREDICTED) & ~is_good).mean()),
        "no_model_share": float((outcome == NO_MODEL).mean()),
        "loads_per_s": its.loads / seconds,
        "rows_a_batch": predicted / max(1, its.batches),
        "busy": its.busy_us / 1e6 / seconds,
        "under_share": errors.under / max(1, errors.batches),
        "over_share": errors.over / max(1, errors.batches),
        "under_p99_us": float(errors.under_p99_us),
        "over_p99_us": float(errors.over_p99_us),
    }
