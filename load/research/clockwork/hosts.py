"""`hosts`: 1,000 models known to one host, a quarter of them in memory: their cost, hot and cold queries, a restart.

Three small models of the digits are packaged, in the runtimes for linear models, for trees and ONNX. The others are
copies of these packages under other names: a host shares nothing among them. Each model has an application of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import psutil

from load.figures import (
    CPU_US,
    FAULTS,
    IN_FULL,
    MIB,
    NONE,
    P50_MS,
    P99_MS,
    RIGHT,
    SHOWN,
    SHOWN_US,
    Better,
    Figures,
    Kind,
    at_least,
)
from load.harness import topics as made
from load.harness.driving import deployed
from load.harness.openloop import Asked
from load.harness.progress import say
from load.harness.system import Deployment
from load.harness.wire import Wire
from load.harness.workload import query_id
from load.models.training import digits, small_models
from load.results.results import Result
from load.scenario import Scenario
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Query, Report, Tensor
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage
    from load.models.training import Digits
    from schemas.records import Prediction, Value

NAME: Final = "hosts"
_say = partial(say, NAME)
KNOWN, SHORT_KNOWN = 1_000, 100
HOT: Final = 0.25  # of the models: those that are asked all the time, and that the memory holds
_COLD: Final = 100  # models that are asked once, in the full form
_POOL, _HOST = "all", "host.all"
_WARM_RATE, _RATE, _COLD_RATE = 10.0, 100.0, 2.0
_SECONDS, _SHORT_SECONDS = 60.0, 15.0
# Models take more than their files: what the process grew by differs from one time to the next.
_ROOM: Final = 1.5
_PATIENT_MS: Final = 20_000.0  # of queries that wait until their model has been loaded
_SLO_MS: Final = 1_000.0
_UNTIL_S: Final = 120.0
_SAMPLE: Final = 64

_SECOND = Kind("s", Better.LOWER, 0.5, 1.0)
FIGURES: Final = Figures(
    SHOWN("known_models", "queries_sent"),
    RIGHT("resident_models", must=at_least(KNOWN * HOT, IN_FULL)),
    FAULTS("lost", "duplicates", "wrong", must=NONE),
    FAULTS("*_defaults"),
    CPU_US("hot_host_cpu_us", "hot_loop_cpu_us"),
    SHOWN_US("cold_*_cpu_us"),
    MIB("host_pss_mib", "models_pss_mib", "budget_mib"),
    SHOWN("loads", "evictions"),
    _SECOND("deployed_s", "known_again_s", "answers_again_s"),
    P50_MS("hot_p50_ms", "cold_p50_ms"),
    P99_MS("hot_p99_ms", "cold_p99_ms"),
)


@dataclass(frozen=True, slots=True)
class _Many:
    """The packages.

    Attributes:
        folders: by model.
        answers: of each model to each row.
        rows: as they travel.
    """

    folders: Mapping[str, Path]
    answers: Mapping[str, Sequence[int]]
    rows: Sequence[Tensor]

    def bytes(self, names: Sequence[str]) -> int:
        """Return what these packages' files take."""
        return sum(file.stat().st_size for name in names for file in self.folders[name].iterdir())


class _Asking:
    """Asks models in turn, with all rows; remembers what each query is to be answered."""

    def __init__(self, many: _Many, names: Sequence[str], seed: int, slo_ms: float | None) -> None:
        self._many, self._names, self._seed, self._slo_ms = many, names, seed, slo_ms
        self._expected: dict[str, int] = {}
        self.wrong = 0

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`."""
        name, row = self._names[index % len(self._names)], index % len(self._many.rows)
        query = query_id(self._seed, index)
        self._expected[query] = self._many.answers[name][row]
        return Asked(Query(query, name, self._many.rows[row], sent_us=intended_us, slo_ms=self._slo_ms))

    def judge(self, predictions: Sequence[Prediction]) -> None:
        """Count answers of models that are not theirs."""
        for each in predictions:
            expected = self._expected.get(each.query_id)
            self.wrong += expected is not None and each.answer is not None and _number(each.answer) != expected


async def run(stage: Stage) -> Result:
    """Deploy all, ask all hot models until they are in memory, measure hot and cold queries, and kill the host."""
    count, seconds = (SHORT_KNOWN, _SHORT_SECONDS) if stage.short else (KNOWN, _SECONDS)
    many = await asyncio.to_thread(packaged, stage.folder / NAME, count)
    names = [*many.folders]
    hot, cold = names[: int(count * HOT)], names[int(count * HOT) :][: _COLD if not stage.short else _COLD // 5]
    budget_mib = int(many.bytes(hot) * _ROOM / 2**20) + 1
    began_s = time.monotonic()
    async with deployed(stage, _deployment(many, budget_mib)) as driver:
        figures = {"deployed_s": time.monotonic() - began_s, "budget_mib": float(budget_mib)}
        _say(f"{count} models are known after {figures['deployed_s']:.0f} s; {len(hot)} are asked, one after the other")
        asked = [await _ask(driver, many, hot, 0, _WARM_RATE, len(hot) / _WARM_RATE, _PATIENT_MS)]
        _say(f"hot models at {_RATE:g}/s for {seconds:g} s")
        asked.append(await _ask(driver, many, hot, 1, _RATE, seconds, None))
        figures |= _latencies("hot", asked[-1][1]) | _pss(driver)
        figures |= await asyncio.to_thread(_figures_of_host, stage, driver.prefix, lambda _: True)
        _say(f"{len(cold)} models that were never asked")
        asked.append(await _ask(driver, many, cold, 2, _COLD_RATE, len(cold) / _COLD_RATE, _PATIENT_MS))
        figures |= _latencies("cold", asked[-1][1])
        _say("the host is killed")
        figures |= await _killed(stage, driver, many, hot[0])
    recorders = [stretch.recorder for _, stretch in asked]
    return Result(
        NAME,
        figures
        | {
            "queries_sent": float(sum(each.total.sent for each in recorders)),
            "lost": float(sum(each.open for each in recorders)),
            "duplicates": float(sum(each.duplicates for each in recorders)),
            "wrong": float(sum(asking.wrong for asking, _ in asked)),
            "warm_defaults": float(recorders[0].total.defaults),
        },
        parameters={"form": stage.form, "models": count, "hot": len(hot), "cold": len(cold), "seconds": seconds},
        notes=("PSS: pages that n processes share count for 1/n.",),
    )


def packaged(folder: Path, count: int) -> _Many:
    """Package three models, and copy the packages under as many names as there are to be models."""
    data = digits()
    originals = [_package(runtime, estimator, data, folder) for runtime, estimator in small_models(data).items()]
    folders, answers = {}, {}
    for number in range(count):
        original, its = originals[number % len(originals)]
        name = f"m{number:04}"
        folders[name], answers[name] = folder / name, its
        shutil.copytree(original, folders[name])
        manifest = folders[name] / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "name": name}))
    return _Many(folders, answers, data.inputs)


def _package(runtime: str, estimator: object, data: Digits, folder: Path) -> tuple[Path, list[int]]:
    path = folder / f"original-{runtime}"
    package_sklearn(estimator, path, runtime, "1", data.test_x[:_SAMPLE], output="label", convert=runtime)
    return path, [int(answer) for answer in estimator.predict(data.test_x)]  # type: ignore[attr-defined]


def _deployment(many: _Many, budget_mib: int) -> Deployment:
    applications = tuple(
        Application(name, (name,), "single", slo_ms=_SLO_MS, max_slo_ms=_PATIENT_MS, default_output=None)
        for name in many.folders
    )
    return Deployment(
        made.new_prefix(NAME),
        applications,
        many.folders,
        partitions=1,
        settings={"hosts": {_POOL: {"models": "all others", "memory_mib": budget_mib}}},
        processes="shared",
    )


async def _ask(
    driver: Driver, many: _Many, names: Sequence[str], turn: int, rate: float, seconds: float, slo_ms: float | None
) -> tuple[_Asking, Stretch]:
    """Ask models in turn; those of another `turn` are other queries."""
    asking = _Asking(many, names, driver.stage.seed + turn, slo_ms)
    slo_us, patience_s = int((slo_ms or _SLO_MS) * 1e3), (slo_ms or _SLO_MS) / 1e3 + 5
    stretch = await driver.at(rate, asking, seconds, slo_us, asking.judge, turn, patience_s)
    return asking, stretch


def _latencies(what: str, stretch: Stretch) -> dict[str, float]:
    found, sent = stretch.recorder.figures(), max(1, stretch.recorder.total.sent)
    cpu = {f"{what}_{name.partition('.')[0]}_cpu_us": spent / sent * 1e6 for name, spent in stretch.cpu_s.items()}
    return {f"{what}_{name}": found[name] for name in ("p50_ms", "p99_ms", "defaults")} | cpu


def _pss(driver: Driver) -> dict[str, float]:
    """Return what the host takes, and the process with its models."""
    host = psutil.Process(driver.system.pids[_HOST])
    models = sum(child.memory_full_info().pss for child in host.children(recursive=True))
    return {"host_pss_mib": host.memory_full_info().pss / 2**20, "models_pss_mib": models / 2**20}


def _figures_of_host(stage: Stage, prefix: str, is_it: Callable[[Report], bool]) -> dict[str, float]:
    """Return the figures of the host's next report that is the one that is waited for."""
    wire = Wire(stage.bootstrap, prefix, stage.properties)
    try:
        report = next((one for one in _reports(wire) if one.role == _HOST and is_it(one)), None)
    finally:
        wire.close()
    if report is None:
        raise TimeoutError(f"the host did not report so within {_UNTIL_S:g} s")
    return {
        "known_models": report.gauges["host_known_models"],
        "resident_models": report.gauges["host_resident_models"],
        "loads": report.counters.get("host_loads_total", 0.0),
        "evictions": report.counters.get("host_evictions_total", 0.0),
    }


def _reports(wire: Wire) -> Iterator[Report]:
    """Yield the reports from now on, for so long as one is waited for."""
    codec, until_s = Codec(), time.monotonic() + _UNTIL_S
    wire.follow((topics.REPORTS,))
    while time.monotonic() < until_s:
        for arrival in wire.poll(1.0):
            yield codec.decode(Report, arrival.value)


async def _killed(stage: Stage, driver: Driver, many: _Many, name: str) -> dict[str, float]:
    """Kill the host; return when it knows all models again, and when a query that waited was answered."""
    pid, count = driver.system.pids[_HOST], len(many.folders)
    began_s = time.monotonic()

    def again(report: Report) -> bool:
        return report.gauges.get("pid") != pid and report.gauges.get("host_known_models") == count

    waiting = asyncio.to_thread(_figures_of_host, stage, driver.prefix, again)
    knowing = asyncio.create_task(_timed(waiting, began_s))
    os.kill(pid, signal.SIGKILL)
    await driver.greet(name, many.rows[0])
    answered_s = time.monotonic() - began_s
    return {"known_again_s": await knowing, "answers_again_s": answered_s}


async def _timed(waiting: Awaitable[object], began_s: float) -> float:
    await waiting
    return time.monotonic() - began_s


def _number(answer: Value) -> int:
    return int(float(answer)) if isinstance(answer, int | float | str) else -1


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "1,000 models known to one host, a quarter of them in memory: what they take, hot and cold queries, a restart",
    short=True,
)
