"""`guards`: what it costs that an application bounds how far one teacher and one context can move it.

The same backlog is asked of three applications in turn: one without bounds, one whose bounds nobody reaches, and one
that learns of most lessons nothing. All have the same models and the same contexts, and every answer gets feedback.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from load.figures import CPU_US, DEFAULTS, FAULTS, NONE, SHOWN, Better, Figures, Kind, at_most
from load.harness import topics
from load.harness.aggregates import turned
from load.harness.driving import deployed
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import LINEAR_RUNTIME, digits, linear_models, package_all
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage
    from load.models.training import Digits

NAME = "guards"
PLAIN, BOUNDED, REACHED = "plain", "bounded", "reached"
_BACKLOG, _SHORT_BACKLOG = 20_000, 10_000
_TURNS: Final = 12  # one of them is a warm-up
_CONTEXTS: Final = 50
_SLO_MS, _DRAIN_S = 600_000.0, 120.0
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {PLAIN: (0, 0), BOUNDED: (10**9, 10**9), REACHED: (60, 10)}
_SHARE = Kind("", Better.LOWER, 0.03)

FIGURES = Figures(
    CPU_US(*(f"{name}_cpu_us" for name in _BOUNDS)),
    _SHARE("bounded_share", must=at_most(0.03)),
    _SHARE("reached_share"),
    SHOWN("*_least", "*_most"),
    FAULTS("lost", must=NONE),
    DEFAULTS("defaults", must=NONE),
)


async def run(stage: Stage) -> Result:
    """Drain the same backlog by each application, turn by turn."""
    data, backlog = digits(), _SHORT_BACKLOG if stage.short else _BACKLOG
    packages = package_all(linear_models(data), data.test_x, stage.folder, LINEAR_RUNTIME)
    applications = [
        Application(
            name, tuple(packages), "exp3", max_slo_ms=_SLO_MS, lessons_per_teacher=most, lessons_per_context=each
        )
        for name, (most, each) in _BOUNDS.items()
    ]
    deployment = Deployment(topics.new_prefix(NAME), tuple(applications), packages)
    spent: dict[str, list[float]] = {name: [] for name in _BOUNDS}
    faults = {"lost": 0.0, "defaults": 0.0}
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        for turn in range(_TURNS):
            for name in turned(_BOUNDS, turn):
                stretch = await _drained(driver, name, data, backlog, turn)
                faults["lost"] += stretch.recorder.open
                faults["defaults"] += stretch.recorder.total.defaults
                if turn:
                    spent[name].append(stretch.cpu_us_per_query)
    return Result(NAME, {**shares_of(spent), **faults}, {"backlog": backlog, "turns": _TURNS - 1, "seed": stage.seed})


async def _drained(driver: Driver, name: str, data: Digits, backlog: int, turn: int) -> Stretch:
    contexts = [f"context-{number}" for number in range(_CONTEXTS)]
    seed = driver.stage.seed * 1_000 + turn * len(_BOUNDS) + list(_BOUNDS).index(name)
    workload = Rows(name, data.inputs, data.labels, contexts, seed, _SLO_MS)
    return await driver.backlog(backlog, workload, _DRAIN_S)


def shares_of(spent: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return medians, and the shares that bounds add, as medians over turns, each beside the same turn without."""
    figures = {f"{name}_cpu_us": median(its) for name, its in spent.items()}
    for name in (BOUNDED, REACHED):
        shares = [its / plain - 1.0 for its, plain in zip(spent[name], spent[PLAIN], strict=True)]
        figures |= {f"{name}_share": median(shares), f"{name}_least": min(shares), f"{name}_most": max(shares)}
    return figures


def tables(result: Result) -> Sequence[Table]:
    """Return what a query costs all roles, by bounds."""
    rows = [(name, f"{result.figures[f'{name}_cpu_us']:.1f}", *_shares(result.figures, name)) for name in _BOUNDS]
    return (Table("CPU of all roles a query", ("application", "us", "more than plain", "least to most"), tuple(rows)),)


def _shares(figures: Mapping[str, float], name: str) -> tuple[str, str]:
    if name == PLAIN:
        return "", ""
    return f"{figures[f'{name}_share']:+.1%}", f"{figures[f'{name}_least']:+.1%} to {figures[f'{name}_most']:+.1%}"


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "what bounds on teachers and contexts cost: CPU of all roles a query, with and without",
    tables=tables,
    page="scenarios/rate/guards.md.j2",
    short=True,
)
