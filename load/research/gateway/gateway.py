"""`gateway`: what HTTP costs over the client on Kafka, and how many requests a second it takes beside MLServer.

Latencies are of both ways in turn, at 500 a second. Then as many connections as that takes ask without a pause: the
gateway with the whole loop behind it, and MLServer with the same model, by turns on the same cores. The better of
MLServer's settings counts.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import numpy as np

from load.errors import PeerFailedError
from load.figures import (
    CPU_US,
    FAULTS,
    NONE,
    P50_MS,
    P99_MS,
    PER_S,
    RATIO_RATE,
    Better,
    Figures,
    Kind,
    at_least,
    at_most,
)
from load.harness import arrivals, topics
from load.harness.aggregates import turned
from load.harness.driving import deployed
from load.harness.http import HttpSender, free_port, post
from load.harness.processes import usage
from load.harness.system import Deployment
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.research.gateway import mlserver
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Status
from streams.client import Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from load.harness.driving import Driver
    from load.harness.system import Stage
    from load.models.training import Estimator
    from schemas.records import Tensor

NAME: Final = "gateway"
RATE: Final = 500.0
ROUNDS: Final = 3  # of both ways in turn
BUSY: Final = 64  # connections that ask without a pause: one alone would measure how long an answer takes
_SLO_MS: Final = 1_000.0
_ROLE: Final = "gateway"
_BOTH, _ONE, _MODEL = "digits", "one", "logistic"  # an application that chooses, and one of the model that all have

FIGURES = Figures(
    P50_MS("client_p50_ms", "http_p50_ms"),
    P99_MS("client_p99_ms", "http_p99_ms"),
    Kind("ms", Better.LOWER, 0.5, 0.5)("over_client_p50_ms", must=at_most(1.0)),
    CPU_US("cpu_us_per_request", must=at_most(80)),
    CPU_US("at_500_cpu_us_per_request"),
    PER_S("busy_per_s", "mlserver_*_per_s"),
    RATIO_RATE("to_mlserver_ratio_rate", must=at_least(3)),
    FAULTS("without_answer", must=NONE),
)


async def run(stage: Stage) -> Result:
    """Ask by both ways in turn at one rate, then over HTTP without a pause."""
    data, port = digits(), free_port()
    estimators = linear_models(data)
    deployment = Deployment(
        prefix=topics.new_prefix(NAME),
        applications=(
            Application(_BOTH, tuple(estimators), "exp3", slo_ms=_SLO_MS),
            Application(_ONE, (_MODEL,), "single", slo_ms=_SLO_MS),
        ),
        models=package_all(estimators, data.test_x, stage.folder, LINEAR_RUNTIME),
        roles=("selection", "worker", "joiner", "learner", "gateway"),
        settings={"gateway": {"port": port}},
        processes="shared",
    )
    async with deployed(stage, deployment, data.inputs[0]) as driver, HttpSender(port) as sender:
        figures = await _both(driver, sender, data.inputs)
        figures |= await _busy(driver, port, data.inputs, estimators[_MODEL])
    return Result(
        NAME,
        figures=figures,
        parameters={"rate": RATE, "seconds": stage.seconds, "rounds": ROUNDS, "connections": BUSY},
        notes=("one row of 64 float32 a request, as JSON; latencies from the time when each was meant to be sent",),
    )


async def _both(driver: Driver, sender: HttpSender, inputs: Sequence[Tensor]) -> dict[str, float]:
    """Ask by both ways in turn; the client's part runs in this process, as HTTP's sender does."""
    stage, requests = driver.stage, _requests(inputs, _BOTH)
    taken: dict[str, list[float]] = {"client": [], "http": []}
    lost = 0
    cpu_s = 0.0
    async with Client(stage.bootstrap, driver.prefix, stage.properties) as client:

        async def by_client(index: int) -> bool:
            row = inputs[index % len(inputs)]
            return (await client.predict(_BOTH, row)).status is not Status.DEFAULT

        async def by_http(index: int) -> bool:
            return (await sender.send(requests[index % len(requests)]))[0] == 200

        for turn in range(ROUNDS):
            for way, ask in (("client", by_client), ("http", by_http)):
                offsets_us = arrivals.until(stage.arrivals.at(RATE, stage.seed + turn), stage.seconds / ROUNDS)
                before_s = _cpu_s(driver)
                found, missing = await _open_loop(offsets_us, ask)
                cpu_s += _cpu_s(driver) - before_s if way == "http" else 0.0
                taken[way] += found
                lost += missing
    figures = {f"{way}_p{at}_ms": float(np.percentile(taken[way], at)) for way in taken for at in (50, 99)}
    figures["over_client_p50_ms"] = figures["http_p50_ms"] - figures["client_p50_ms"]
    figures["at_500_cpu_us_per_request"] = cpu_s / len(taken["http"]) * 1e6
    return {**figures, "without_answer": float(lost)}


async def _busy(driver: Driver, port: int, inputs: Sequence[Tensor], model: Estimator) -> dict[str, float]:
    """Ask from several connections, each again as soon as it has its answer: the gateway and MLServer by turns."""
    stage, requests = driver.stage, _requests(inputs, _ONE)
    rates: dict[str, list[float]] = {name: [] for name in (_ROLE, *mlserver.SETTINGS)}
    spent_s, answered = 0.0, 0
    async with AsyncExitStack() as stack:
        ports = {_ROLE: port}
        for name, setting in mlserver.SETTINGS.items():
            starting = mlserver.serving(stage.folder / f"mlserver-{name}", _ONE, model, setting)
            ports[name] = await stack.enter_async_context(starting)
        for other in ports.values():
            await _asked(other, requests, 1.0)  # until it is warm
        for turn in range(ROUNDS):
            for name in turned(tuple(ports), turn):
                before_s = _cpu_s(driver)
                done, took_s = await _asked(ports[name], requests, stage.seconds / ROUNDS / 2)
                rates[name].append(done / took_s)
                if name == _ROLE:
                    spent_s, answered = spent_s + _cpu_s(driver) - before_s, answered + done
    found = {name: statistics.mean(each) for name, each in rates.items()}
    figures = {f"mlserver_{name}_per_s": found[name] for name in mlserver.SETTINGS}
    best = max(figures.values())
    cpu_us = spent_s / answered * 1e6
    return {
        "busy_per_s": found[_ROLE],
        "cpu_us_per_request": cpu_us,
        **figures,
        "to_mlserver_ratio_rate": found[_ROLE] / best,
    }


async def _asked(port: int, requests: Sequence[bytes], seconds: float) -> tuple[int, float]:
    """Ask without a pause; returns how many were answered, and within how many seconds.

    Raises:
        PeerFailedError: a request was not answered.
    """
    done, begun_s = 0, time.monotonic()

    async def one(sender: HttpSender, first: int) -> None:
        nonlocal done
        index = first
        while time.monotonic() < begun_s + seconds:
            status, body = await sender.send(requests[index % len(requests)])
            if status != 200:
                raise PeerFailedError(f"port {port} answered with {status}: {body[:200]!r}")
            index, done = index + BUSY, done + 1

    async with HttpSender(port) as sender, asyncio.TaskGroup() as tasks:
        for first in range(BUSY):
            tasks.create_task(one(sender, first))
    return done, time.monotonic() - begun_s


async def _open_loop(offsets_us: Iterable[int], ask: Callable[[int], Awaitable[bool]]) -> tuple[list[float], int]:
    """Ask at the times that are meant, whatever is under way; returns latencies (ms), and how many had no answer."""
    loop, taken, lost = asyncio.get_running_loop(), list[float](), 0
    start_s = loop.time() + 0.1

    async def one(index: int, at_s: float) -> None:
        nonlocal lost
        lost += not await ask(index)
        taken.append((loop.time() - at_s) * 1e3)

    async with asyncio.TaskGroup() as tasks:
        for index, offset_us in enumerate(offsets_us):
            at_s = start_s + offset_us / 1e6
            if (wait_s := at_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            tasks.create_task(one(index, at_s))
    return taken, lost


def _requests(inputs: Sequence[Tensor], application: str) -> list[bytes]:
    """Return a request for each row."""
    found = []
    for row in inputs:
        tensor = {"name": "input", "datatype": "FP32", "shape": [1, *row.shape], "data": row.numpy().ravel().tolist()}
        found.append(post(f"/v2/models/{application}/infer", json.dumps({"inputs": [tensor]}).encode()))
    return found


def _cpu_s(driver: Driver) -> float:
    """Return the CPU seconds of the gateway's process so far."""
    return usage({_ROLE: driver.system.pids[_ROLE]})[_ROLE].cpu_s


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "what HTTP costs over the client on Kafka, and its requests a second beside MLServer's",
)
