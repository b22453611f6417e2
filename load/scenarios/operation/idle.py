"""`idle`: the cost of a deployment without queries: memory by role, CPU of all roles together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from load.figures import MIB, Better, Figures, Kind, at_most
from load.harness import topics
from load.harness.driving import deployed
from load.harness.processes import cpu_seconds, usage
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application

if TYPE_CHECKING:
    from load.harness.system import Stage

NAME = "idle"
_IDLE_S = 30.0
_WARM_UP_RATE = 100.0
_WARM_UP_S = 5.0
_SETTLE_S = 3.0


_CORES = Kind("cores", Better.LOWER, 0.3, 0.02)
FIGURES = Figures(
    MIB("selection_mib", "joiner_mib", "learner_mib", must=at_most(76)),
    MIB("control_mib", must=at_most(150)),
    MIB("worker_mib", must=at_most(220)),
    _CORES("all_roles_cores", must=at_most(0.05)),
    _CORES("*_cores"),
)


async def run(stage: Stage) -> Result:
    """Send a little load, so that everything is loaded, then none for 30 s."""
    data = digits()
    estimators = linear_models(data)
    deployment = Deployment(
        prefix=topics.new_prefix(NAME),
        applications=(Application("digits", tuple(estimators), "exp3"),),
        models=package_all(estimators, data.test_x, stage.folder, LINEAR_RUNTIME),
        roles=("selection", "worker", "joiner", "learner", "control"),
    )
    async with deployed(stage, deployment) as driver:
        workload = Rows("digits", data.inputs, data.labels, seed=stage.seed)
        await driver.at(_WARM_UP_RATE, workload, _WARM_UP_S)
        await asyncio.sleep(_SETTLE_S)
        before = usage(driver.system.pids)
        await asyncio.sleep(_IDLE_S)
        after = usage(driver.system.pids)
    memory = {_role(name): 0.0 for name in after}
    for name, used in after.items():
        memory[_role(name)] = max(memory[_role(name)], used.rss_bytes / 2**20)
    spent = cpu_seconds(before, after)
    return Result(
        NAME,
        figures={
            **{f"{role}_mib": mib for role, mib in memory.items()},
            **{f"{name.replace('.', '_')}_cores": seconds / _IDLE_S for name, seconds in spent.items()},
            "all_roles_cores": sum(spent.values()) / _IDLE_S,
        },
        parameters={"seconds": _IDLE_S, "models": len(estimators), "runtime": LINEAR_RUNTIME},
        notes=("memory of the worker is that of the larger of two",),
    )


def _role(instance: str) -> str:
    return instance.partition(".")[0]


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "resident memory of each role, CPU of all roles when nothing happens",
)
