"""`intervals`: intervals of real numbers that drift: what was promised, what was held, and how wide they were.

Offline. A forecast of each series goes by the values just before and a day before; it learns from the first ones alone,
so that it grows old. Each error comes back before the next number is asked. The intervals are Skysail's (steps by
DtACI, with the bound on any sequence), adaptive conformal inference with one step, and split conformal prediction,
whose width follows from the first errors for good. Without its files one series is made, whose errors grow.
"""

from __future__ import annotations

import asyncio
import csv
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.figures import IN_FULL, SHOWN, Better, Figures, Kind, at_least
from load.harness.data import DATA
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from policies import intervals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.system import Stage

NAME: Final = "intervals"
COVERAGE: Final = 0.9
# Series of NAB, and how many values a day of each has.
SERIES: Final = {
    "taxi": ("nyc_taxi", 48),
    "apple": ("Twitter_volume_AAPL", 288),
    "amazon": ("Twitter_volume_AMZN", 288),
}
MADE: Final = "made"
_LEARNT, FIRST, WINDOW = 800, 500, 200  # values, errors, errors
_ONE_STEP: Final = (0.005,)
KINDS: Final = ("ours", "one_step", "fixed")

_HELD = Kind("", Better.HIGHER, 0.0, 0.01)
FIGURES = Figures(
    _HELD(*(f"{name}_ours_held" for name in SERIES), must=at_least(COVERAGE - 0.02, IN_FULL)),
    _HELD(*(f"{name}_ours_lowest" for name in SERIES)),
    SHOWN(*(f"{name}_{kind}_{what}" for name in (*SERIES, MADE) for kind in KINDS for what in ("held", "lowest"))),
    SHOWN(*(f"{name}_{kind}_{what}" for name in (*SERIES, MADE) for kind in KINDS for what in ("width", "all"))),
)


class Held(NamedTuple):
    """What became of intervals, by error: whether each held it, and how far it reached."""

    held: NDArray[np.bool_]
    radius: NDArray[np.float64]

    def figures(self, name: str) -> dict[str, float]:
        """Return its figures, without those of the first errors."""
        held, radius = self.held[FIRST:], self.radius[FIRST:]
        parts = [float(held[at : at + WINDOW].mean()) for at in range(0, len(held) - WINDOW + 1, WINDOW)]
        return {
            f"{name}_held": float(held.mean()),
            f"{name}_lowest": min(parts),
            f"{name}_width": 2.0 * float(np.median(radius)),
            f"{name}_all": float(np.mean(~np.isfinite(radius))),
        }


async def run(stage: Stage) -> Result:
    """Play each series to each kind of intervals; the short form plays the first of them."""
    found = {name: series(*given) for name, given in SERIES.items() if _file(given[0]).exists()}
    source = "nab" if found else MADE
    found = found or {MADE: made(stage.seed)}
    figures: dict[str, float] = {}
    for name, values in [*found.items()][: 1 if stage.short else None]:
        errors = await asyncio.to_thread(errors_of, values, SERIES.get(name, ("", 48))[1])
        for kind, play in _PLAYED.items():
            figures |= (await asyncio.to_thread(play, errors)).figures(f"{name}_{kind}")
    return Result(NAME, figures, {"form": stage.form, "source": source, "coverage": COVERAGE})


def _file(name: str) -> Path:
    return DATA / "traces" / "nab" / f"{name}.csv"


def series(name: str, _: int) -> NDArray[np.float64]:
    """Return a series of NAB."""
    with _file(name).open(newline="") as lines:
        return np.array([float(row["value"]) for row in csv.DictReader(lines)])


def made(seed: int) -> NDArray[np.float64]:
    """Return a series that goes by the hour, whose noise grows fourfold."""
    random, at = np.random.default_rng(seed), np.arange(4_000)
    return np.asarray(100.0 + 30.0 * np.sin(at * 2 * np.pi / 48) + random.normal(0.0, 1.0 + 3.0 * at / len(at)))


def errors_of(values: NDArray[np.float64], day: int) -> list[float]:
    """Return how far the forecast of each value was from it."""
    behind = (1, 2, day, day + 1)
    longest, scale = max(behind), float(np.std(values[: day + 2])) or 1.0
    rows = np.stack([values[longest - lag : len(values) - lag] for lag in behind], axis=1) / scale
    told = values[longest:] / scale
    rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    weights, *_ = np.linalg.lstsq(rows[:_LEARNT], told[:_LEARNT], rcond=None)
    errors: list[float] = (np.abs(rows @ weights - told)[_LEARNT:] * scale).tolist()
    return errors


def adaptive(errors: Sequence[float], steps: Sequence[float]) -> Held:
    """Play intervals that feedback corrects."""
    state, radius = intervals.start(COVERAGE, (), steps), []
    for error in errors:
        radius.append(intervals.margin(COVERAGE, state, steps).radius)
        state = intervals.observe(COVERAGE, state, error, steps)
    return Held(np.array(errors) <= np.array(radius), np.array(radius))


def fixed(errors: Sequence[float]) -> Held:
    """Play intervals by split conformal prediction."""
    width = sorted(errors[:FIRST])[int((FIRST + 1) * COVERAGE) - 1]
    radius = np.where(np.arange(len(errors)) < FIRST, inf, width)
    return Held(np.array(errors) <= radius, radius)


_PLAYED: Final[dict[str, Callable[[Sequence[float]], Held]]] = {
    "ours": lambda errors: adaptive(errors, intervals.STEPS),
    "one_step": lambda errors: adaptive(errors, _ONE_STEP),
    "fixed": fixed,
}
_NAMED: Final = {"ours": "Skysail", "one_step": "one step of 0.005", "fixed": "fixed"}


def tables(result: Result) -> list[Table]:
    """Return what each kind of interval held of each series, and how wide it was."""
    names = [name for name in (*SERIES, MADE) if f"{name}_ours_held" in result.figures]
    rows = [
        (
            f"{name}, {_NAMED[kind]}",
            *(f"{result.figures[f'{name}_{kind}_{what}']:.3f}" for what in ("held", "lowest")),
            _width(result.figures[f"{name}_{kind}_width"]),
            f"{result.figures[f'{name}_{kind}_all']:.1%}",
        )
        for name in names
        for kind in KINDS
    ]
    heads = ("", "held", "lowest window", "width, median", "any number")
    return [Table(f"Promised: {COVERAGE:g}", heads, tuple(rows))]


def _width(value: float) -> str:
    return f"{value:,.1f}" if isfinite(value) else "any"


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "intervals of numbers that drift: coverage promised and held by windows, beside one step and fixed ones",
    short=True,
    tables=tables,
    page="research/learning/intervals.md.j2",
    offline=True,
)
