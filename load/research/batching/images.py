"""`images`: photographs of 150 KB and tensors of 602 KB through the whole system, beside a bare hop of the same.

    whole   client ─▶ queries ─▶ selection ─▶ model's topic ─▶ worker ─▶ answer ─▶ feedback, learnt
    hop     client ─▶ topic ─▶ a hand-written consumer that writes the same bytes on ─▶ topic ─▶ client

An input travels twice in the whole system (to selection, and on to the worker) and twice through the hop. The models
answer what stands in the input: they cost nothing, so that only the way is measured. Both get each rate by turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from load.baseline.measure import chain
from load.figures import CPU_US, FAULTS, RATIO, Better, Figures, Kind, quantiles_ms
from load.harness import topics
from load.harness.driving import deployed
from load.harness.processes import listening, total_cpu_s
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.research.models import images
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from schemas.records import Application, Tensor
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from load.baseline.measure import Chain
    from load.harness.driving import Driver
    from load.harness.recorder import Recorder
    from load.harness.system import Stage
    from schemas.records import Input

NAME = "images"
SECONDS: Final = 8.0


class Sort(NamedTuple):
    """A kind of input: bytes of one, the rates (1/s) at which it is sent, and those of the short form."""

    size: int
    rates: tuple[int, ...]
    short: tuple[int, ...]


SORTS: Final = {
    "jpeg": Sort(images.JPEG_BYTES, (20, 100, 200), (20, 100)),
    "tensor": Sort(4 * 3 * 224 * 224, (10, 25, 50), (10, 25)),
}
LANES: Final = ("whole", "hop")
_IMAGES = 32  # that are sent over and over
_INPUT_KIB, _SLO_US = 1024, 500_000
_WARM_UP_RATE, _WARM_UP_S = 10, 3.0
_THROUGHPUT = Kind("MB/s", Better.HIGHER, 0.1)
_PLACES: Final = tuple(f"{sort}_at_{rate}" for sort, found in SORTS.items() for rate in found.rates)
FIGURES = Figures(
    tuple(
        figure
        for lane in LANES
        for at in _PLACES
        for figure in (
            *quantiles_ms(f"{lane}_{at}_", "p50", "p99"),
            *_THROUGHPUT(f"{lane}_{at}_throughput"),
            *CPU_US(f"{lane}_{at}_broker_cpu_us"),
            *FAULTS(f"{lane}_{at}_lost"),
        )
    ),
    tuple(
        figure
        for at in _PLACES
        for figure in (*CPU_US(f"whole_{at}_cpu_us"), *FAULTS(f"whole_{at}_defaults", f"whole_{at}_wrong"))
    ),
    RATIO(*(f"{at}_ratio_{point}" for at in _PLACES for point in ("p50", "p99"))),
)


async def run(stage: Stage) -> Result:
    """Send each kind at each rate, through the hop and through the whole system."""
    packages = {
        "jpeg": _package(stage, "jpeg", [images.jpeg(0, 0)]),
        "tensor": _package(stage, "tensor", images.tensor(0, 0)[None]),
    }
    applications = tuple(Application(sort, (sort,), "single", slo_ms=_SLO_US / 1e3) for sort in SORTS)
    settings = {"max_input_kib": _INPUT_KIB, "selection": {"inline": []}, "log_level": "warning"}
    deployment = Deployment(
        topics.new_prefix(NAME), applications, packages, settings=settings, processes=stage.processes
    )
    figures: dict[str, float] = {}
    async with deployed(stage, deployment) as driver:
        for sort in SORTS:
            figures |= await _sent(stage, driver, sort)
    return Result(
        NAME,
        figures=figures,
        parameters={
            "form": stage.form,
            "seconds": stage.seconds,
            "seed": stage.seed,
            "arrivals": stage.arrivals.name,
            "max_input_kib": _INPUT_KIB,
        },
        notes=("an image is sent as it is: JPEG bytes, or float32 of 3 x 224 x 224", "hop: aiokafka, bytes passed on"),
    )


def _package(stage: Stage, sort: str, sample: object) -> Path:
    folder = stage.folder / sort
    package_function(f"load.research.models.images:of_{sort}s", folder, sort, "1", sample)  # type: ignore[arg-type] # both are rows
    return folder


def _workload(sort: str, seed: int) -> Rows:
    labels = [number % images.CLASSES for number in range(_IMAGES)]
    inputs: list[Input] = [
        images.jpeg(label, number) if sort == "jpeg" else Tensor.of(images.tensor(label, number))
        for number, label in enumerate(labels)
    ]
    return Rows(sort, inputs, labels, seed=seed)


async def _sent(stage: Stage, driver: Driver, sort: str) -> dict[str, float]:
    """Warm up, then send each rate through one after the other."""
    found: dict[str, float] = {}
    rates = SORTS[sort].short if stage.short else SORTS[sort].rates
    workload = _workload(sort, stage.seed)
    await driver.at(_WARM_UP_RATE, _workload(sort, stage.seed + 1), _WARM_UP_S, slo_us=_SLO_US)
    async with chain(stage, workload, hops=1, warm_up_s=_WARM_UP_S, warm_up_rate=_WARM_UP_RATE) as bare:
        for rate in rates:
            at = f"{sort}_at_{rate}"
            hop, whole = await _through(stage, bare, sort, rate), await _stretch(driver, sort, rate)
            found |= {f"hop_{at}_{name}": value for name, value in hop.items()}
            found |= {f"whole_{at}_{name}": value for name, value in whole.items()}
            found |= {f"{at}_ratio_{point}": whole[f"{point}_ms"] / hop[f"{point}_ms"] for point in ("p50", "p99")}
    return found


async def _through(stage: Stage, bare: Chain, sort: str, rate: int) -> dict[str, float]:
    workload, broker = _workload(sort, stage.seed + rate), listening(stage.bootstrap)
    before_s = total_cpu_s(broker)
    recorder = await bare.at(rate, stage.arrivals.at(rate, stage.seed), workload, stage.seconds)
    return _common(recorder, sort, stage.seconds, total_cpu_s(broker) - before_s)


async def _stretch(driver: Driver, sort: str, rate: int) -> dict[str, float]:
    stage, broker = driver.stage, listening(driver.stage.bootstrap)
    before_s = total_cpu_s(broker)
    stretch = await driver.at(rate, _workload(sort, stage.seed + rate), stage.seconds, slo_us=_SLO_US)
    found = _common(stretch.recorder, sort, stage.seconds, total_cpu_s(broker) - before_s)
    total = stretch.recorder.total
    return {
        **found,
        "cpu_us": stretch.cpu_us_per_query,
        "defaults": total.defaults,
        "wrong": total.wrong,
    }


def _common(recorder: Recorder, sort: str, seconds: float, broker_s: float) -> dict[str, float]:
    """Name what both lanes have; the broker's work for the sender and the reader counts, too."""
    answered, taken = recorder.total.answered, recorder.latency_ms()
    return {
        **{f"{point}_ms": taken[point] for point in ("p50", "p99")},
        "throughput": answered * SORTS[sort].size / seconds / 1e6,
        "broker_cpu_us": broker_s / max(1, answered) * 1e6,
        "lost": recorder.open,
    }


def tables(result: Result) -> Sequence[Table]:
    """Return a line for each kind, rate and lane."""
    heads = ("input", "a second", "MB/s", "lane", "p50 ms", "p99 ms", "roles us", "broker us", "lost")
    rows = [
        _line(result.figures, lane, sort, rate)
        for sort, found in SORTS.items()
        for rate in found.rates
        for lane in LANES
        if f"{lane}_{sort}_at_{rate}_p50_ms" in result.figures
    ]
    return (Table("Images through the whole system and through one hop", heads, tuple(rows)),)


def _line(figures: Mapping[str, float], lane: str, sort: str, rate: int) -> tuple[str, ...]:
    at = f"{lane}_{sort}_at_{rate}"
    taken = (f"{figures[f'{at}_{point}_ms']:.1f}" for point in ("p50", "p99"))
    roles = figures.get(f"{at}_cpu_us")
    cpu = ("" if roles is None else f"{roles:.0f}", f"{figures[f'{at}_broker_cpu_us']:.0f}")
    return sort, str(rate), f"{figures[f'{at}_throughput']:.1f}", lane, *taken, *cpu, f"{figures[f'{at}_lost']:.0f}"


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "JPEG images of 150 KB and tensors of 602 KB through the whole system, beside one bare hop of the same bytes",
    any_arrivals=True,
    tables=tables,
    seconds=SECONDS,
    short=True,
    any_processes=True,
)
