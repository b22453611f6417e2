"""`evaluation`: whether off-policy estimates and their intervals are right, against published values and known truths.

Offline. Open Bandit's values and obp's table on digits; how often intervals hold, at one look and at every look; how
long a million observations take; the regret of our bandits beside river's and MABWiser's.
"""

from __future__ import annotations

import asyncio
from math import sqrt
from typing import TYPE_CHECKING

from load.errors import MissingDataError
from load.figures import IN_FULL, SHOWN, Better, Figures, Kind, at_least, at_most
from load.research.learning import bandit_logs, digits_log, regret
from load.research.learning.open_bandit import PUBLISHED, open_bandit
from load.results.results import Result
from load.scenario import Scenario
from policies.estimators.estimate import Estimate
from policies.estimators.registry import ESTIMATORS, estimate

if TYPE_CHECKING:
    from load.harness.system import Stage

NAME = "evaluation"
_RUNS, _ROWS = 100, 10_000  # intervals, and how long they are looked at
_OBSERVATIONS = 1_000_000
_THERE = ("open_bandit", "there")
_LIBRARIES = ("river", "mabwiser")
_SHARE = Kind("", Better.HIGHER, 0.0, 0.05)
_APART = Kind("", Better.LOWER, 0.0, 1.0)  # in standard errors

FIGURES = Figures(
    Kind("", Better.LOWER, 0.0, 1e-8)(*(f"open_bandit_{name}_off" for name in PUBLISHED), must=at_most(1e-8, _THERE)),
    SHOWN(*(f"open_bandit_{name}" for name in PUBLISHED)),
    _SHARE(*(f"covered_{name}" for name in ESTIMATORS if name != "full_information"), must=at_least(0.9)),
    _SHARE("covered_at_every_look", must=at_least(0.95)),
    SHOWN("naive_covered_at_every_look"),
    Kind("s", Better.LOWER, 0.25, 0.5)("million_observations_cpu_s", must=at_most(5.0)),
    SHOWN(*(f"digits_{name}_error" for name in digits_log.PUBLISHED)),
    _APART(*(f"digits_{name}_apart" for name in digits_log.PUBLISHED), must=at_most(3.0, IN_FULL)),
    _APART(*(f"regret_{p}_{library}_apart" for p in regret.POLICIES for library in _LIBRARIES), must=at_most(3.0)),
)


async def run(stage: Stage) -> Result:
    """Measure all of it; the short form takes fewer runs and queries."""
    figures, there = _published()
    figures["million_observations_cpu_s"] = bandit_logs.seconds(_OBSERVATIONS)
    figures |= {f"covered_{name}": share for name, share in bandit_logs.coverage(_RUNS).items()}
    held, naive = bandit_logs.always_right(_RUNS, _ROWS)
    figures |= {"covered_at_every_look": held, "naive_covered_at_every_look": naive}
    figures |= await asyncio.to_thread(_digits, 3 if stage.short else digits_log.RUNS)
    figures |= await asyncio.to_thread(_regret, regret.HORIZONS[0 if stage.short else -1])
    note = f"an interval of the same level by the normal distribution was wrong at some look in {1 - naive:.0%} of runs"
    return Result(NAME, figures, {"form": stage.form, "runs": _RUNS, "open_bandit": there}, notes=(note,))


def _published() -> tuple[dict[str, float], str]:
    """Return what Open Bandit gives, and whether it is there."""
    try:
        found = estimate(open_bandit(), PUBLISHED)
    except MissingDataError:
        return {}, "absent"
    values = {name: each.value for name, each in found.items() if isinstance(each, Estimate)}
    off = {f"open_bandit_{name}_off": abs(value - PUBLISHED[name]) for name, value in values.items()}
    return off | {f"open_bandit_{name}": value for name, value in values.items()}, "there"


def _digits(runs: int) -> dict[str, float]:
    """Return the mean relative errors, and how many standard errors they lie from the published ones."""
    figures = {}
    for name, errors in digits_log.relative_errors(runs).items():
        mean, spread = digits_log.PUBLISHED[name]
        figures[f"digits_{name}_error"] = float(errors.mean())
        error = spread * sqrt(1.0 / runs + 1.0 / digits_log.RUNS)
        figures[f"digits_{name}_apart"] = abs(float(errors.mean()) - mean) / error
    return figures


def _regret(horizon: int) -> dict[str, float]:
    """Return how far our regret lies from that of others."""
    return {
        f"regret_{policy}_{library}_apart": regret.apart(policy, library, horizon)
        for policy in regret.POLICIES
        for library in _LIBRARIES
    }


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "off-policy estimates and intervals against published values and known truths; bandits beside other libraries",
    short=True,
    offline=True,
)
