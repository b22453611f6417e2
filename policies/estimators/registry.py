"""The estimators by name, and all their estimates of one log at once."""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import TYPE_CHECKING

from policies.estimators.doubly_robust import dm, dr, dr_os, switch
from policies.estimators.errors import EstimateError, TooFewError
from policies.estimators.estimate import LEAST_EFFECTIVE, Contributions, Estimate, ratio, resampled
from policies.estimators.importance import clipped, full_information, ipw, replay, snipw
from policies.estimators.log import effective, summed
from policies.estimators.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from policies.estimators.log import Log


def _plain(made: Callable[[Log], Contributions]) -> Callable[[Log], tuple[Contributions, str]]:
    return lambda log: (made(log), "")


def _tuned(made: Callable[[Log, float], Contributions], parameter: str) -> Callable[[Log], tuple[Contributions, str]]:
    def chosen(log: Log) -> tuple[Contributions, str]:
        value, rows = tuned(partial(made, log))
        return rows, f"{parameter}={value:g}"

    return chosen


def _clipped(log: Log) -> tuple[Contributions, str]:
    """Cut weights at the root of how many decisions there are: the bias vanishes as the log grows (Ionides 2008)."""
    bound = sqrt(len(log.losses))
    return clipped(log, bound), f"bound={bound:.3g}"


# In the order in which they are shown: from the one that assumes least to the one that assumes most, then the one that
# need not estimate.
ESTIMATORS: Mapping[str, Callable[[Log], tuple[Contributions, str]]] = {
    "replay": _plain(replay),
    "ipw": _plain(ipw),
    "snipw": _plain(snipw),
    "clipped": _clipped,
    "dr": _plain(dr),
    "dr_os": _tuned(dr_os, "lambda"),
    "switch": _tuned(switch, "tau"),
    "dm": _plain(dm),
    "full_information": _plain(full_information),
}


# Their own spread says nothing of what a wrong model does to them: `dr` is right whatever the model is.
_AS_WRONG_AS_THE_MODEL = frozenset(("dr_os", "switch", "dm"))


def estimate(
    log: Log,
    names: Iterable[str] = tuple(ESTIMATORS),
    *,
    alpha: float = 0.05,
    seed: int = 0,
    least: float = LEAST_EFFECTIVE,
) -> dict[str, Estimate | EstimateError]:
    """Return by estimator what the log's target policy would have cost, or why that cannot be said.

    Intervals of estimators that are as wrong as their model of the losses reach as far as that of `dr`: they hold
    wherever that one does. Where rows belong to units, errors, intervals and samples are those of units.

    Args:
        log: decisions with the target's propensities.
        names: of estimators.
        alpha: what the bootstrap intervals may miss.
        seed: of the bootstrap.
        least: effective samples below which an estimate is refused; 0 = none is.
    """
    made: dict[str, tuple[Contributions, str]] = {}
    found: dict[str, Estimate | EstimateError] = {}
    for name in names:
        try:
            rows, note = ESTIMATORS[name](log)
            rows = rows.counted(log.parts)
            if (samples := effective(summed(rows.weights, log.units))) < least:
                raise TooFewError(samples, least)
        except EstimateError as refusal:
            found[name] = refusal
        else:
            made[name] = (rows, note)
    intervals = _intervals(log, {name: rows for name, (rows, _) in made.items()}, alpha, seed)
    for name, (rows, note) in made.items():
        low, high = intervals[name]
        value, error = ratio(rows.gathered(log.units))
        weights = rows.weights
        used = effective(summed(weights, log.units)), float(weights.max()), log.unsupported, len(weights)
        found[name] = Estimate(name, value, error, low, high, *used, note)
    return {name: found[name] for name in names}


def _intervals(log: Log, made: Mapping[str, Contributions], alpha: float, seed: int) -> dict[str, tuple[float, float]]:
    """Return the intervals by estimator."""
    if not made:
        return {}
    is_doubtful = not _AS_WRONG_AS_THE_MODEL.isdisjoint(made)
    rows = {**made, "dr": made["dr"] if "dr" in made else dr(log).counted(log.parts)} if is_doubtful else made
    found = dict(zip(rows, resampled([each.gathered(log.units) for each in rows.values()], alpha, seed), strict=True))
    for name in _AS_WRONG_AS_THE_MODEL & made.keys():
        low, high = zip(found[name], found["dr"], strict=True)
        found[name] = min(low), max(high)
    return found
