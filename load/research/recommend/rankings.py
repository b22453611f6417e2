"""`rankings`: which film to show, by our policies and Vowpal Wabbit on one stream; what feedback on all places adds.

Offline, in one process. Each query has a user and 20 of 400 films. Whoever ranks shows one, and is told whether it was
clicked on before the next query: error and CPU time stand side by side. The clicks are made up, so the truth is known.
Then three places are shown, of which the lower ones are seldom looked at. One `ridge` learns from the first alone, one
from all as if they were looked at alike, one from all with the examination. Then Open Bandit's uniform log: both are
taught its impressions in order, and what each would have earned is estimated.
"""

from __future__ import annotations

import asyncio
from time import process_time
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.errors import MissingDataError, PeerUnavailableError
from load.figures import IN_FULL, SHOWN, Better, Figures, Kind, at_least
from load.research.models import movies
from load.research.recommend import rank_log
from load.research.recommend.rank_lanes import Items, Ranker, Regressions, VowpalWabbit
from load.research.recommend.rank_market import PLACES, visits
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from load.harness.system import Stage

NAME: Final = "rankings"
_QUERIES, _FEW = 4_000, 500
_RUNS, _FEW_RUNS = 3, 1
_ROWS, _FEW_ROWS = 10_000, 1_000  # of Open Bandit
_LAST: Final = 4  # the last quarter is shown by itself
_TRAITS: Final = 5
_FEATURES: Final = movies.FEATURES


class Made(NamedTuple):
    """Who ranks."""

    said: str
    make: Callable[[], Ranker]


_CROSSED: Final = "--epsilon 0.05 -q UF"
OURS: Final[Mapping[str, Made]] = {
    "ridge_all": Made("`ridge`, one state", lambda: Regressions(_FEATURES, per_user=False)),
    "ridge_users": Made("`ridge`, a state for each user", lambda: Regressions(_FEATURES, per_user=True)),
    "two_speed": Made("`two_speed`, feedback alone", lambda: Items(movies.FILMS, _TRAITS)),
}
THEIRS: Final[Mapping[str, Made]] = {
    "vw": Made("Vowpal Wabbit, `-q UF`", lambda: VowpalWabbit(_CROSSED)),
    "vw_users": Made("Vowpal Wabbit, `-q UF -q IF`", lambda: VowpalWabbit(f"{_CROSSED} -q IF")),
    "vw_squarecb": Made("Vowpal Wabbit, `-q UF -q IF --squarecb`", lambda: VowpalWabbit("--squarecb -q UF -q IF")),
}
PLACED: Final[Mapping[str, Made]] = {
    "first": Made("from the first place alone", lambda: Regressions(_FEATURES, per_user=True)),
    "alike": Made("from all places, as if all were looked at", lambda: _placed((1.0, 1.0, 1.0))),
    "examined": Made("from all places, with `examination`", lambda: _placed(PLACES)),
}


def _placed(examination: tuple[float, ...]) -> Regressions:
    return Regressions(_FEATURES, per_user=True, examination=examination)


class Earned(NamedTuple):
    """What a ranker has earned in expectation, a query, and the CPU time of one."""

    error: float  # clicks less than whoever knows the truth
    last: float  # the same in the last quarter
    cpu_us: float


def earned(ranker: Ranker, count: int, seed: int, top: int) -> Earned:
    """Let a ranker show so many times, and learn from each before the next."""
    missed, spent = np.zeros(count), 0.0
    for number, visit in enumerate(visits(count, seed)):
        begun = process_time()
        shown = ranker.show(visit.asked, top, visit.draw)
        ranker.learn(visit.asked, shown, visit.clicks(shown.best))
        spent += process_time() - begun
        missed[number] = visit.worth(visit.ideal(top)) - visit.worth(shown.best)
    return Earned(float(missed.mean()), float(missed[-(count // _LAST) :].mean()), spent / count * 1e6)


def compared(makers: Mapping[str, Made], count: int, runs: int, top: int) -> dict[str, float]:
    """Return the figures of some rankers: means of all runs, and the standard error of the mean."""
    figures: dict[str, float] = {}
    for name, made in makers.items():
        found = np.array([earned(made.make(), count, seed, top) for seed in range(runs)])
        error, last, cpu_us = found.mean(axis=0).tolist()
        figures |= {f"{name}_error": error, f"{name}_last_error": last, f"{name}_cpu_us": cpu_us}
        if runs > 1:
            figures[f"{name}_error_spread"] = float(found[:, 0].std(ddof=1) / np.sqrt(runs))
    return figures


_ERROR = Kind("", Better.LOWER, 0.05, 0.005)
_CPU = Kind("us", Better.LOWER, 0.5)
FIGURES = Figures(
    *(_ERROR(f"{name}_error", f"{name}_last_error") for name in (*OURS, *PLACED)),
    *(SHOWN(f"{name}_error", f"{name}_last_error") for name in THEIRS),
    *(SHOWN(f"{name}_error_spread") for name in (*OURS, *THEIRS, *PLACED)),
    *(_CPU(f"{name}_cpu_us") for name in (*OURS, *PLACED)),
    *(Kind("us")(f"{name}_cpu_us") for name in THEIRS),
    Kind("", Better.HIGHER, 0.0, 0.01)("places_saved", must=at_least(0.0, IN_FULL)),
    Kind("us")("obd_*_cpu_us"),
    SHOWN("examination_saved", "obd_*"),
)


async def run(stage: Stage) -> Result:
    """Measure all of it; the short form takes fewer queries."""
    count, runs = (_FEW, _FEW_RUNS) if stage.short else (_QUERIES, _RUNS)
    figures, notes, there = await asyncio.to_thread(_all, count, runs)
    given: dict[str, float | str] = {"form": stage.form, "queries": count, "runs": runs, "vowpal_wabbit": there}
    return Result(NAME, figures, given, notes=tuple(notes))


def _all(count: int, runs: int) -> tuple[dict[str, float], list[str], str]:
    figures, there = compared(OURS, count, runs, 1), "there"
    notes: list[str] = []
    try:
        figures |= compared(THEIRS, count, runs, 1)
    except PeerUnavailableError as error:
        notes.append(str(error))
        there = "absent"
    figures |= compared(PLACED, count, runs, len(PLACES))
    figures["places_saved"] = figures["first_error"] - figures["examined_error"]
    figures["examination_saved"] = figures["alike_error"] - figures["examined_error"]
    try:
        figures |= rank_log.figures(_ROWS if runs > 1 else _FEW_ROWS)
    except MissingDataError as error:
        notes.append(str(error))
    return figures, notes, there


def tables(result: Result) -> list[Table]:
    """Return who ranks how well and at which price, what places teach, and Open Bandit."""
    heads = ("clicks missed a query", "in the last quarter", "CPU a query, us")
    made = [
        Table("Side by side", ("who ranks", *heads), _rows(result, {**OURS, **THEIRS})),
        Table("Places", ("`ridge` learns", *heads), _rows(result, PLACED)),
    ]
    if "obd_logged" in result.figures:
        made.append(rank_log.table(result.figures))
    return made


def _rows(result: Result, makers: Mapping[str, Made]) -> tuple[tuple[str, ...], ...]:
    found = result.figures
    return tuple(
        (
            made.said,
            f"{found[f'{name}_error']:.4f}"
            + (f" ± {found[f'{name}_error_spread']:.4f}" if f"{name}_error_spread" in found else ""),
            f"{found[f'{name}_last_error']:.4f}",
            f"{found[f'{name}_cpu_us']:,.0f}",
        )
        for name, made in makers.items()
        if f"{name}_error" in found
    )


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "candidates ranked by our policies and by Vowpal Wabbit on the same stream, error and CPU; feedback on all places",
    tables=tables,
    page="research/recommend/rankings.md.j2",
    short=True,
    offline=True,
)
