"""Compares batch controllers with the best fixed batch on real models, all through busy workers.

For every model all contenders run at once, each with a worker of its own. They are asked in turn, round by round, with
half a second's rows waiting. A first round finds the fixed sizes that are worth asking again. Their batches meet the
objective, and do nearly as much as the best of these. They and the controllers are started several times, and asked
forwards and backwards. With equal batches one process does 4 to 12 % more than another for as long as it runs, and the
last contender finds the machine warm.
"""

from __future__ import annotations

import asyncio
import statistics
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from load.figures import P99_MS, PER_S, SHARE_OF_BEST, SHOWN, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.aggregates import held_out, over_rounds, turned
from load.harness.system import Deployment
from load.models.training import clippers, digits, package_all
from load.research.harness.backlog import Asker, settled
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.system import Stage

ADAPTIVE = ("aimd", "quantile", "deferred")
OBJECTIVE_MS = 20.0
SIZES = tuple(4 << power for power in range(11))
_SHORT = ("linear-svm", "forest", "kernel-svm")  # the cheapest row, the dearest call, the dearest row
_SECONDS, _SHORT_SECONDS = 1.8, 1.2
_STARTS, _ROUNDS = 6, 2
_FIRST_SECONDS = 1.5  # of the first round after a start; a controller has settled by then
_WORTH = 0.85  # of the best rate of the first round
PATIENCE_S = 90.0


REAL_MODELS = Figures(
    PER_S("*_best_fixed_per_s"),
    SHOWN("*_best_fixed_rows", "*_median_share", "*_median_good_share"),
    SHARE_OF_BEST("*_share_of_best", "*_least_good_share"),
    SHARE_OF_BEST("aimd_least_share", must=at_least(0.95)),
    SHARE_OF_BEST("*_least_share"),
    P99_MS("*_batch_p99_ms"),
    # Equal contenders are as far apart.
    Kind("", Better.LOWER, 0.0, 0.05)("default_behind", must=at_most(0.05)),
)


async def contest(stage: Stage) -> list[dict[str, Any]]:
    """Return a row a model and contender: rate, size and 99th percentile of its batches, and whether they are fixed."""
    data = digits()
    packages = await asyncio.to_thread(package_all, clippers(data), data.test_x, stage.folder)
    found = []
    for model in _SHORT if stage.short else packages:
        measured = await _measured(stage, model, packages[model], data.test_x)
        found += [{"model": model, "contender": name, **figures} for name, figures in measured.items()]
    return found


async def _measured(stage: Stage, model: str, package: Path, rows: NDArray[Any]) -> dict[str, dict[str, Any]]:
    contenders: dict[str, tuple[str, dict[str, float]]] = {name: (name, {}) for name in ADAPTIVE}
    contenders |= {f"fixed-{size}": ("fixed", {"rows": float(size)}) for size in SIZES}
    seconds = _SHORT_SECONDS if stage.short else _SECONDS
    rounds: list[dict[str, dict[str, float]]] = []
    for start in range(_STARTS):
        async with AsyncExitStack() as stack:
            askers = {}
            for name, given in turned(contenders.items(), start):
                deployment = workers_of("contest", {model: package}, given)
                stack.callback(topics.delete, stage.bootstrap, deployment.prefix)
                await stack.enter_async_context(stage.launch(deployment))
                askers[name] = stack.enter_context(Asker(stage, deployment.prefix, model, rows))
            first = {name: await _busy(asker, _FIRST_SECONDS) for name, asker in askers.items()}
            if not rounds:
                again = {*ADAPTIVE, *worth_asking({name: first[name] for name in first if name not in ADAPTIVE})}
                contenders = {name: given for name, given in contenders.items() if name in again}
            rounds += [
                {name: await _busy(askers[name], seconds) for name in turned(contenders, turn)}
                for turn in range(start, start + _ROUNDS)
            ]
    return {
        name: {
            **over_rounds([measured[name] for measured in rounds]),
            "rounds_per_s": [measured[name]["per_s"] for measured in rounds],
            "rounds_good_per_s": [measured[name]["good_per_s"] for measured in rounds],
        }
        for name in contenders
    }


async def _busy(asker: Asker, seconds: float) -> dict[str, float]:
    return settled(await asyncio.to_thread(asker.keep_busy, seconds), OBJECTIVE_MS)


def workers_of(
    name: str, packages: Mapping[str, Path], given: tuple[str, Mapping[str, float]], *roles: str
) -> Deployment:
    """Return workers of models that batch as a controller says, an application each, and these roles.

    Args:
        name: goes into the prefix of its topics.
        packages: of the models.
        given: the controller and its parameters.
        roles: beside the workers.
    """
    controller, parameters = given
    worker = {"controller": controller, "parameters": dict(parameters), "objective_ms": OBJECTIVE_MS}
    return Deployment(
        topics.new_prefix(name),
        tuple(Application(model, (model,), "single", slo_ms=PATIENCE_S * 1e3) for model in packages),
        packages,
        roles=(*roles, "worker"),
        settings={"worker": worker, "log_level": "warning"},
    )


def worth_asking(first: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the fixed sizes to ask again: within the objective, and not far behind the best of these.

    Where none meets the objective, the one that is least above it.
    """
    within = {name: of["per_s"] for name, of in first.items() if of["batch_p99_ms"] <= OBJECTIVE_MS}
    if not within:
        return [min(first, key=lambda name: first[name]["batch_p99_ms"])]
    return [name for name, per_s in within.items() if per_s >= _WORTH * max(within.values())]


def shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what each controller reaches of the best fixed batch within the objective, by model, and at least.

    The share is a mean over all rounds. In each, the fixed batch is the one that was best after the other starts. Of
    two contenders with equal batches, one is ahead by 6 % (standard deviation) for a start. So a share is good to 3 %
    after six starts. `share` counts all rows, `good_share` those in batches that took no longer than the objective.

    A model without a batch within the objective is left out.

    Args:
        rows: as `contest` gives them.
    """
    found: dict[str, float] = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = {row["contender"]: row for row in rows if row["model"] == model}
        fixed = [row for name, row in mine.items() if name not in ADAPTIVE]
        within = [row for row in fixed if row["batch_p99_ms"] <= OBJECTIVE_MS]
        if not within:
            continue
        best = max(within, key=lambda row: row["per_s"])
        found[f"{model}_best_fixed_per_s"] = best["per_s"]
        found[f"{model}_best_fixed_rows"] = best["rows_a_batch"]
        for name in ADAPTIVE:
            for share, rounds in (("share", "rounds_per_s"), ("good_share", "rounds_good_per_s")):
                best_of_others = held_out([row[rounds] for row in within], _STARTS)
                found[f"{model}_{name}_{share}_of_best"] = sum(mine[name][rounds]) / sum(best_of_others)
            found[f"{model}_{name}_batch_p99_ms"] = mine[name]["batch_p99_ms"]
    for name in ADAPTIVE:
        for share in ("share", "good_share"):
            of_models = [value for figure, value in found.items() if figure.endswith(f"_{name}_{share}_of_best")]
            if of_models:
                found[f"{name}_least_{share}"] = min(of_models)
                found[f"{name}_median_{share}"] = statistics.median(of_models)
    return found


def behind(found: Mapping[str, float], default: str) -> dict[str, float]:
    """Return how far the default is behind the best controller, each where it fares worst; {} without a verdict.

    Rows in batches beyond the objective count nothing, so that speed and keeping the objective are one figure.
    """
    least = {name: found[f"{name}_least_good_share"] for name in ADAPTIVE if f"{name}_least_good_share" in found}
    return {"default_behind": max(least.values()) - least[default]} if least else {}


def verdict(found: Mapping[str, float], default: str) -> tuple[str, ...]:
    """Say in a line each what the controllers reach, in a last one which is the best and how far the default is off.

    The best is the one that does most in batches within the objective on the model where it does least.
    """
    if f"{default}_least_share" not in found:
        return (f"no model has a batch within {OBJECTIVE_MS:g} ms: no verdict",)
    worst_ms = {
        name: max(value for figure, value in found.items() if figure.endswith(f"_{name}_batch_p99_ms"))
        for name in ADAPTIVE
    }
    best = max(ADAPTIVE, key=lambda name: found[f"{name}_least_good_share"])
    points = behind(found, default)["default_behind"] * 100
    said = "the default" if best == default else f"the default, {default}, is {points:.1f} points behind"
    lines = [
        f"{name:<8} real models: {found[f'{name}_least_share']:.0%} at least, {found[f'{name}_median_share']:.0%} in "
        f"the middle, of the best fixed batch within {OBJECTIVE_MS:g} ms; in batches within it "
        f"{found[f'{name}_least_good_share']:.0%} at least; batches of {worst_ms[name]:.1f} ms (p99)"
        for name in ADAPTIVE
    ]
    return (*lines, f"{best} does most within the objective on the model where it does least: {said}")
