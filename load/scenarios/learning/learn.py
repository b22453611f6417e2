"""`learn`: how fast predictions and feedback become learnt states, and the memory of a million pending predictions.

It runs once with one state for all, and once with a state for each of many users, all of which exist already.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import numpy as np

from load.figures import CPU_US, IN_FULL, MIB, PER_S, RATIO, SHOWN_S, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.probes import await_gauge, await_learnt
from load.harness.processes import cpu_seconds, usage
from load.harness.system import Deployment
from load.harness.wire import Wire
from load.harness.workload import query_id
from load.models.functions import COLUMNS
from load.results.results import Result
from load.scenario import Scenario
from policies.registry import create, spec
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Application, Decision, Feedback, ModelOutput, Outcome, Prediction, Status
from streams.runtime.clock import SystemClock
from streams.topology import state_name
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from load.harness.system import Stage

NAME = "learn"
_OBSERVATIONS = 100_000
_CONTEXTS = 100_000
_STATES = 2 * _CONTEXTS  # kept: of fewer than there are, users in turn would find none
_PENDING = 1_000_000
_TIMEOUT_S = 300.0
_MODELS = ("first", "second")
_POLICY = spec(create("exp3"))


FIGURES = Figures(
    PER_S("observations_per_s", must=at_least(11_000)),
    PER_S("observations_per_core_s", must=at_least(5_000)),
    PER_S("contexts_observations_per_s", must=at_least(11_000)),
    PER_S("contexts_observations_per_core_s"),
    CPU_US("*joiner_cpu_us_per_observation", "*learner_cpu_us_per_observation"),
    RATIO("contexts_learner_cpu_us_per_observation_ratio", must=at_most(10)),
    MIB("pending_million_mib", must=at_most(700 * 1e6 / 2**20, IN_FULL)),
    Kind("B")("pending_bytes_each"),
    SHOWN_S("pending_taken_in_s"),
)


async def run(stage: Stage) -> Result:
    """Join and learn backlogs; then, not in the short form, let predictions wait for feedback that never comes."""
    packages = await asyncio.to_thread(_package, stage.folder)
    rate = await _rate(stage, packages)
    rate |= {f"contexts_{name}": value for name, value in (await _rate(stage, packages, _CONTEXTS)).items()}
    learner = "learner_cpu_us_per_observation"
    rate[f"contexts_{learner}_ratio"] = rate[f"contexts_{learner}"] / rate[learner]
    return Result(
        NAME,
        figures=rate if stage.short else {**rate, **await _memory(stage, packages)},
        parameters={
            "form": stage.form,
            "observations": _OBSERVATIONS,
            "contexts": _CONTEXTS,
            "pending": _PENDING,
            "policy": "exp3",
        },
    )


async def _rate(stage: Stage, packages: dict[str, Path], contexts: int = 0) -> dict[str, float]:
    deployment = _deployment(packages, ("joiner", "learner"), contexts)
    async with stage.launch(deployment) as system:
        if contexts:  # each of them has a state before anything is measured
            await asyncio.to_thread(_learnt, stage, deployment.prefix, 0, contexts, contexts)
        before, started_s = usage(system.pids), time.monotonic()
        await asyncio.to_thread(_learnt, stage, deployment.prefix, contexts, _OBSERVATIONS, contexts)
        wall_s = time.monotonic() - started_s
        used_s = cpu_seconds(before, usage(system.pids))
    topics.delete(stage.bootstrap, deployment.prefix)
    return {
        "observations_per_core_s": _OBSERVATIONS / sum(used_s.values()),
        "observations_per_s": _OBSERVATIONS / wall_s,
        "joiner_cpu_us_per_observation": used_s["joiner"] / _OBSERVATIONS * 1e6,
        "learner_cpu_us_per_observation": used_s["learner"] / _OBSERVATIONS * 1e6,
    }


def _learnt(stage: Stage, prefix: str, first: int, count: int, contexts: int) -> None:
    """Have so many observations learnt, of queries numbered from `first` on."""
    _fill(stage, prefix, range(first, first + count), with_feedback=True, contexts=contexts)
    await_learnt(stage, prefix, first + count, _TIMEOUT_S)


async def _memory(stage: Stage, packages: dict[str, Path]) -> dict[str, float]:
    deployment = _deployment(packages, ("joiner",))
    async with stage.launch(deployment) as system:
        empty_bytes = usage(system.pids)["joiner"].rss_bytes
        started_s = time.monotonic()
        await asyncio.to_thread(_fill, stage, deployment.prefix, range(_PENDING), with_feedback=False)
        waited_for = ("joiner", "predictions_waiting", _PENDING, _TIMEOUT_S)
        await asyncio.to_thread(await_gauge, stage, deployment.prefix, *waited_for)
        taken_s = time.monotonic() - started_s
        full_bytes = usage(system.pids)["joiner"].rss_bytes
    topics.delete(stage.bootstrap, deployment.prefix)
    return {
        "pending_million_mib": full_bytes / 2**20,
        "pending_bytes_each": (full_bytes - empty_bytes) / _PENDING,
        "pending_taken_in_s": taken_s,
    }


def _package(folder: Path) -> dict[str, Path]:
    """The roles under test never load them, but an application has models."""
    for name, function in zip(_MODELS, COLUMNS, strict=False):
        package_function(function, folder / name, name, "1", np.zeros((2, 5), np.uint8))
    return {name: folder / name for name in _MODELS}


def _deployment(packages: dict[str, Path], roles: tuple[str, ...], contexts: int = 0) -> Deployment:
    window_s = 3_600.0  # longer than the scenario: nothing that is pending may run out
    application = Application("digits", _MODELS, "exp3", per_context=bool(contexts), window_s=window_s)
    settings = {"joiner": {"window_s": window_s}, "learner": {"states": _STATES}}
    return Deployment(topics.new_prefix(NAME), (application,), packages, roles=roles, settings=settings)


def _fill(stage: Stage, prefix: str, numbers: Iterable[int], *, with_feedback: bool, contexts: int = 0) -> None:
    """Write predictions as the selection role writes them, and right feedback for each; users come in turn."""
    wire, codec = Wire(stage.bootstrap, prefix, stage.properties, linger_ms=5), Codec()
    now_us = SystemClock().now_us()
    for index in numbers:
        name = query_id(stage.seed, index)
        context = f"user-{index % contexts}" if contexts else None
        wire.produce(names.PREDICTIONS, name.encode(), codec.encode(_prediction(name, context, index % 2, now_us)))
        if with_feedback:
            feedback = Feedback(name, label=index % 10, sent_us=now_us)
            wire.produce(names.FEEDBACK, name.encode(), codec.encode(feedback))
        if not index % 1_000:
            wire.poll(0)
    unsent = wire.flush(_TIMEOUT_S)
    wire.close()
    if unsent:
        raise RuntimeError(f"{unsent} records were not taken by the broker")


def _prediction(name: str, context: str | None, arm: int, now_us: int) -> Prediction:
    return Prediction(
        query_id=name,
        application="digits",
        context=context,
        decision=Decision((arm,), 0, state_name("digits", context), _POLICY, _MODELS, (0.5, 0.5)),
        status=Status.COMPLETE,
        reason=None,
        answer=3,
        confidence=1.0,
        outputs=(ModelOutput(_MODELS[arm], "1", Outcome.OK, 3),),
        sent_us=now_us,
        received_us=now_us,
        deadline_us=now_us + 100_000,
        answered_us=now_us + 10_000,
    )


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "join and learn: observations a second and core; memory of a million pending predictions",
    short=True,
)
