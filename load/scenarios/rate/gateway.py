"""`gateway`: what HTTP costs over the client on Kafka: latency at 500 a second, and CPU time a request."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from load.figures import CPU_US, FAULTS, NONE, P50_MS, P99_MS, PER_S, Better, Figures, Kind, at_most
from load.harness import arrivals, topics
from load.harness.driving import deployed
from load.harness.http import HttpSender, free_port, post
from load.harness.processes import usage
from load.harness.system import Deployment
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Status
from streams.client import Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from load.harness.driving import Driver
    from load.harness.system import Stage
    from schemas.records import Tensor

NAME: Final = "gateway"
RATE: Final = 500.0
ROUNDS: Final = 3  # of both ways in turn
BUSY: Final = 16  # connections that ask without a pause
_SLO_MS: Final = 1_000.0
_ROLE: Final = "gateway"

FIGURES = Figures(
    P50_MS("client_p50_ms", "http_p50_ms"),
    P99_MS("client_p99_ms", "http_p99_ms"),
    Kind("ms", Better.LOWER, 0.5, 0.5)("over_client_p50_ms", must=at_most(1.0)),
    CPU_US("cpu_us_per_request", must=at_most(80)),
    CPU_US("at_500_cpu_us_per_request"),
    PER_S("busy_per_s"),
    FAULTS("without_answer", must=NONE),
)


async def run(stage: Stage) -> Result:
    """Ask by both ways in turn at one rate, then over HTTP without a pause."""
    data, port = digits(), free_port()
    estimators = linear_models(data)
    deployment = Deployment(
        prefix=topics.new_prefix(NAME),
        applications=(Application("digits", tuple(estimators), "exp3", slo_ms=_SLO_MS),),
        models=package_all(estimators, data.test_x, stage.folder, LINEAR_RUNTIME),
        roles=("selection", "worker", "joiner", "learner", "gateway"),
        settings={"gateway": {"port": port}},
        processes="shared",
    )
    async with deployed(stage, deployment, data.inputs[0]) as driver, HttpSender(port) as sender:
        figures = await _both(driver, sender, data.inputs)
        figures |= await _busy(driver, sender, data.inputs)
    return Result(
        NAME,
        figures=figures,
        parameters={"rate": RATE, "seconds": stage.seconds, "rounds": ROUNDS, "connections": BUSY},
        notes=("one row of 64 float32 a request, as JSON; latencies from the time when each was meant to be sent",),
    )


async def _both(driver: Driver, sender: HttpSender, inputs: Sequence[Tensor]) -> dict[str, float]:
    """Ask by both ways in turn; the client's part runs in this process, as HTTP's sender does."""
    stage, requests = driver.stage, _requests(inputs)
    taken: dict[str, list[float]] = {"client": [], "http": []}
    lost = 0
    cpu_s = 0.0
    async with Client(stage.bootstrap, driver.prefix, stage.properties) as client:

        async def by_client(index: int) -> bool:
            row = inputs[index % len(inputs)]
            return (await client.predict("digits", row)).status is not Status.DEFAULT

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


async def _busy(driver: Driver, sender: HttpSender, inputs: Sequence[Tensor]) -> dict[str, float]:
    """Ask over HTTP from several connections, each again as soon as it has its answer."""
    requests, done = _requests(inputs), 0
    end_s = time.monotonic() + driver.stage.seconds / 2

    async def one(first: int) -> None:
        nonlocal done
        index = first
        while time.monotonic() < end_s:
            await sender.send(requests[index % len(requests)])
            index += BUSY
            done += 1

    begun_s, before_s = time.monotonic(), _cpu_s(driver)
    await asyncio.gather(*map(one, range(BUSY)))
    spent_s = _cpu_s(driver) - before_s
    return {"busy_per_s": done / (time.monotonic() - begun_s), "cpu_us_per_request": spent_s / max(1, done) * 1e6}


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


def _requests(inputs: Sequence[Tensor]) -> list[bytes]:
    """Return a request for each row."""
    found = []
    for row in inputs:
        tensor = {"name": "input", "datatype": "FP32", "shape": [1, *row.shape], "data": row.numpy().ravel().tolist()}
        found.append(post("/v2/models/digits/infer", json.dumps({"inputs": [tensor]}).encode()))
    return found


def _cpu_s(driver: Driver) -> float:
    """Return the CPU seconds of the gateway's process so far."""
    return usage({_ROLE: driver.system.pids[_ROLE]})[_ROLE].cpu_s


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "what HTTP costs over the client on Kafka: latency at 500 a second, CPU time a request",
)
