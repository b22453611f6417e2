"""Sets of labels that hold the true one as often as promised: adaptive conformal inference, a fold over feedback.

    weights of labels ──▶ set: every label of at least `least`
                                        ▲
    state ──▶ aim: alpha, least ────────┘
      ▲
      └── observe: the true label's weight; alpha + GAMMA * (1 - coverage - missed)

A state is a flat tuple: the promised coverage, alpha, and a histogram of the true labels' weights. `least` is the
weight that a share 1 - alpha of them had. Alpha starts at 1 - coverage and moves with each miss and hit.

So the share of misses after T observations is above 1 - coverage by at most
(max(coverage, 1 - coverage) + GAMMA) / (GAMMA * T). That holds for any weights in any order, if each set is made from
the state that it teaches. It is as little below, as long as alpha stays under its cap, twice 1 - coverage. The cap is
ours: where models are more often right than promised alpha would rise to 1, and after a change sets would hold one
label each until it is down again, for some 200 misses.

`observe` judges the set that the state at hand would make, not the one that was answered. Feedback that comes long
after its answer would otherwise wind alpha up for as long.

References:
    Gibbs and Candes, Adaptive conformal inference under distribution shift, NeurIPS 2021: alpha, GAMMA and the bound.
    Vovk, Gammerman and Shafer, Algorithmic learning in a random world, 2005: the rank among n + 1.
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp, log
from typing import TYPE_CHECKING, Final, NamedTuple

from policies import intervals
from policies.errors import require

if TYPE_CHECKING:
    from policies.contract import State

GAMMA: Final = 0.005  # of Gibbs and Candes
MOST: Final = 0.999  # coverage: a promise beyond it would take tens of thousands of observations to keep
_BINS: Final = 64
LIGHTEST: Final = 1e-4  # a label of less weight counts as one of none
# Observations that the histogram remembers, and how many of those it must hold that may be missed.
_WINDOW, _MISSES = 500, 10
NO_LABEL: Final = 2.0  # more than any weight


def _lower_edges() -> tuple[float, ...]:
    """Return the bins' lower edges, rising: even steps of log(w / (1 - w)), since most weights are near 0 or 1.

    They are rounded, so that all machines have the same.
    """
    end = log((1.0 - LIGHTEST) / LIGHTEST)
    steps = [end * (2.0 * index / (_BINS - 2) - 1.0) for index in range(_BINS - 1)]
    return (0.0, *(round(1.0 / (1.0 + exp(-step)), 6) for step in steps))


EDGES: Final = _lower_edges()


class Aim(NamedTuple):
    """How a set is made: `least` is the weight that a label needs to be in it."""

    coverage: float  # promised
    alpha: float  # the share of misses aimed at; below 0 where the promise needs that
    least: float  # 0 = every label is in it, `NO_LABEL` = none


def check(coverage: float) -> None:
    """Refuse a promise that cannot be kept.

    Raises:
        PolicyError: it is not in (0, `MOST`].
    """
    require(0.0 < coverage <= MOST, f"coverage is {coverage}; it must lie in (0, {MOST}]")


def start(coverage: float, state: State = ()) -> State:
    """Return the state under a promise: as it is, or with alpha anew where another coverage was promised before.

    What another version of this module has stored, with other bins, counts as nothing. So does a state of intervals.

    Raises:
        PolicyError: of `check`.
    """
    check(coverage)
    if len(state) != 2 + _BINS or intervals.is_state(state):
        return (coverage, 1.0 - coverage, *(0.0,) * _BINS)
    return state if state[0] == coverage else (coverage, 1.0 - coverage, *state[2:])


def cap(coverage: float) -> float:
    """Return the largest alpha under a promise."""
    return 2.0 * (1.0 - coverage)


def aim(coverage: float, state: State = ()) -> Aim:
    """Return how sets are made in a state; with too few observations for the promise, every label is in them.

    Raises:
        PolicyError: of `start`.
    """
    _, alpha, *counts = start(coverage, state)
    return Aim(coverage, alpha, _least(alpha, counts))


def _least(alpha: float, counts: list[float]) -> float:
    """Return the weight that a share 1 - alpha of the true labels had, rounded down to a bin's edge."""
    if alpha <= 0.0:
        return 0.0
    if alpha >= 1.0:
        return NO_LABEL
    rank = (sum(counts) + 1.0) * (1.0 - alpha)
    for index in reversed(range(_BINS)):
        rank -= counts[index]
        if rank <= 0.0:
            return EDGES[index]
    return 0.0


def observe(coverage: float, state: State, weight: float) -> State:
    """Return the state after one observation.

    Args:
        coverage: promised.
        state: before it; empty = none.
        weight: of the true label, in [0, 1].

    Raises:
        PolicyError: of `start`.
    """
    _, alpha, *counts = state = start(coverage, state)
    missed = weight < _least(alpha, counts)
    kept = 1.0 - 1.0 / max(_WINDOW, _MISSES / (1.0 - coverage))
    counts = [count * kept for count in counts]
    counts[bisect_right(EDGES, weight) - 1] += 1.0
    alpha = min(alpha + GAMMA * (1.0 - coverage - missed), cap(coverage))
    return (coverage, alpha, *counts)
