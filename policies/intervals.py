"""Intervals that hold the true number as often as promised: adaptive conformal inference, a fold over feedback.

    answer ──▶ [answer - radius, answer + radius]
                                        ▲
    state ──▶ margin: alpha, radius ────┘
      ▲
      └── observe: the error; each alpha + its step * (1 - coverage - missed), weights of alphas, excess of misses

A state is a flat tuple: the promised coverage, the excess, one alpha and one weight for each of `STEPS`, and the latest
errors. The alpha in force is the mean of them by weight; the radius is what a share 1 - alpha of the errors did not
exceed. A small step is best while nothing changes, a large one after a change, so the weights follow what was best
lately, by the pinball loss (DtACI). That alone promises nothing about every sequence. So the excess counts misses above
the promise, and never falls below 0. While it is `most_excess` or more, an interval holds any number.

So of any T observations in a row the share of misses is above 1 - coverage by at most (`most_excess` + 1) / T, whatever
comes, if each interval is made from the state that it teaches. Gibbs and Candes promise the same, with a step of 0.005,
of the T first observations.

References:
    Gibbs and Candes, Adaptive conformal inference under distribution shift, NeurIPS 2021: alpha, and its step.
    Gibbs and Candes, Conformal inference for online prediction with arbitrary distribution shifts, JMLR 2024: DtACI.
    Vovk, Gammerman and Shafer, Algorithmic learning in a random world, 2005: the rank among n + 1.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import repeat
from math import ceil, exp, inf, isfinite, log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.errors import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.contract import State

STEPS: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)  # of Gibbs and Candes
MOST_PROMISED: Final = 0.99  # a state has the errors that it takes, and 0.999 would take thousands
_SPAN: Final = 500  # observations among which the best step is looked for, as theirs
_SHARED: Final = 1.0 / (2 * _SPAN)  # of the weights, spread evenly after each observation
_FEWEST, _MISSES = 200, 10  # errors that are kept, at least; and how many of those are to be missed
_ROUNDED: Final = 1e-9  # by how much the sum of weights may miss
_EASED: Final = 0.005  # the step of adaptive conformal inference, whose promise this keeps


class Margin(NamedTuple):
    """How an interval is made."""

    coverage: float  # promised
    alpha: float  # the share of misses aimed at; below 0 where the promise needs that
    radius: float  # how far the interval reaches on both sides of the answer; infinite = any number is in it


def check(coverage: float) -> None:
    """Refuse a promise that cannot be kept.

    Raises:
        PolicyError: it is not in (0, `MOST_PROMISED`].
    """
    require(0.0 < coverage <= MOST_PROMISED, f"coverage of numbers is {coverage}; it must lie in (0, {MOST_PROMISED}]")


def most_excess(coverage: float) -> float:
    """Return how many misses above the promise there may be before intervals hold any number."""
    return (max(coverage, 1.0 - coverage) + _EASED) / _EASED - 1.0


def kept(coverage: float) -> int:
    """Return how many errors a state keeps."""
    return max(_FEWEST, ceil(_MISSES / (1.0 - coverage)))


def start(coverage: float, state: State = (), steps: Sequence[float] = STEPS) -> State:
    """Return the state under a promise: as it is, or with the errors alone where another coverage was promised.

    What is no state of intervals counts as nothing.

    Raises:
        PolicyError: of `check`.
    """
    check(coverage)
    count = len(steps)
    is_known = is_state(state, steps)
    if is_known and state[0] == coverage:
        return state
    errors = state[2 + 2 * count :] if is_known else ()
    return (coverage, 0.0, *repeat(1.0 - coverage, count), *repeat(1.0 / count, count), *errors)


def is_state(state: State, steps: Sequence[float] = STEPS) -> bool:
    """Tell whether numbers are a state of intervals, and not one of sets of labels: its weights are shares of 1."""
    count = len(steps)
    if not 2 + 2 * count <= len(state) <= 2 + 2 * count + kept(MOST_PROMISED) or not 0.0 < state[0] < 1.0:
        return False
    _, weights, _ = _parts(state, count)
    return min(weights) > 0.0 and abs(sum(weights) - 1.0) < _ROUNDED


def margin(coverage: float, state: State = (), steps: Sequence[float] = STEPS) -> Margin:
    """Return how intervals are made in a state; with too few errors for the promise, any number is in them.

    Raises:
        PolicyError: of `start`.
    """
    state = start(coverage, state, steps)
    alphas, weights, errors = _parts(state, len(steps))
    alpha = _mean(alphas, weights)
    return Margin(coverage, alpha, inf if state[1] >= most_excess(coverage) else _radius(alpha, sorted(errors)))


def _radius(alpha: float, errors: Sequence[float]) -> float:
    """Return what a share 1 - alpha of the errors, which rise, did not exceed; of one more than there are."""
    rank = ceil((len(errors) + 1) * (1.0 - alpha))
    if rank <= 0:
        return 0.0
    return errors[rank - 1] if rank <= len(errors) else inf


def observe(coverage: float, state: State, error: float, steps: Sequence[float] = STEPS) -> State:
    """Return the state after one observation.

    Args:
        coverage: promised.
        state: before it; empty = none.
        error: how far the answer was from the true number.
        steps: by which alphas move.

    Raises:
        PolicyError: of `start`, or the error is none.
    """
    require(isfinite(error) and error >= 0.0, f"an answer cannot be wrong by {error}")
    state = start(coverage, state, steps)
    alphas, weights, errors = _parts(state, len(steps))
    rising, wanted = sorted(errors), 1.0 - coverage
    missed = state[1] < most_excess(coverage) and error > _radius(_mean(alphas, weights), rising)
    # The largest alpha whose interval would have held it.
    best = 1.0 - bisect_left(rising, error) / (len(rising) + 1)
    weights = _weighed(alphas, weights, best, wanted)
    alphas = [alpha + step * (wanted - (alpha > best)) for alpha, step in zip(alphas, steps, strict=True)]
    excess = max(0.0, state[1] + missed - wanted)
    return (coverage, excess, *alphas, *weights, *errors[-(kept(coverage) - 1) :], error)


def _weighed(alphas: Sequence[float], weights: Sequence[float], best: float, wanted: float) -> list[float]:
    """Return the weights after an observation: of less pinball loss more, and of none nothing."""
    rate = sqrt(3.0 / _SPAN * (log(len(alphas) * _SPAN) + 2.0) / ((1.0 - wanted) ** 2 * wanted**2))
    losses = [wanted * (best - alpha) - min(0.0, best - alpha) for alpha in alphas]
    least = min(losses)
    found = [weight * exp(rate * (least - loss)) for weight, loss in zip(weights, losses, strict=True)]
    total = sum(found)
    return [(1.0 - _SHARED) * each / total + _SHARED / len(found) for each in found]


def _parts(state: State, count: int) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    return state[2 : 2 + count], state[2 + count : 2 + 2 * count], state[2 + 2 * count :]


def _mean(alphas: Sequence[float], weights: Sequence[float]) -> float:
    return sum([alpha * weight for alpha, weight in zip(alphas, weights, strict=True)])
