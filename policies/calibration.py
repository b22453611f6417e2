"""How often a model is right when it is as sure as it says: its own confidence, calibrated by what feedback told.

    its own     0    ...   0.9        0.95                1.0        knots, closer where models are sure
    right       0    ...   0.7  ─────  0.75  ───────────  0.8        straight in between, and never falling

A state is a flat tuple: for each arm, and each knot, how many answers were that sure, and how many of them were right.
An answer between two knots counts at both, the more the nearer it is. Each knot begins with `PRIOR` answers that were
right as often as they said. So without feedback a confidence is the model's own, and with much it is the share that was
right. A knot remembers about the last `WINDOW` answers near it, because models drift and are replaced.

A model that is surer is right more often, or it would not rank its answers. So knots that contradict this are put
together (pool adjacent violators), which also evens out chance.

References:
    Zadrozny and Elkan, Obtaining calibrated probability estimates from decision trees and naive Bayesian classifiers,
    ICML 2001 (counts by confidence); Transforming classifier scores into accurate multiclass probability estimates, KDD
    2002 (never falling); Ayer et al., Ann. Math. Statist. 26 (1955) (pool adjacent violators).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.contract import State

KNOTS: Final = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0)
WIDTH: Final = 2 * len(KNOTS)  # numbers of an arm
PRIOR: Final = 4.0
WINDOW: Final = 300.0
_CURVES = 1024  # remembered: an arm's in one state


def observed(state: State, arms: int, arm: int, confidence: float, loss: float) -> State:
    """Return the state after one answer.

    Args:
        state: so far; empty, or not made for so many arms and knots = nothing is known.
        arms: how many there are.
        arm: that answered.
        confidence: its own, in [0, 1].
        loss: of its answer, in [0, 1]; it counts as right by the rest.
    """
    values = list(state) if len(state) == arms * WIDTH else [0.0] * (arms * WIDTH)
    lower, far = _place(confidence)
    for knot, weight in ((lower, 1.0 - far), (lower + 1, far)):
        at = arm * WIDTH + 2 * knot
        kept = 1.0 - weight / WINDOW
        values[at] = kept * values[at] + weight
        values[at + 1] = kept * values[at + 1] + weight * (1.0 - loss)
    return tuple(values)


def calibrated(state: State, arm: int, confidence: float) -> float:
    """Return how likely an answer is right, in [0, 1], by the confidence that its model has in it.

    Examples:
        >>> calibrated((), 0, 0.99)
        0.99
        >>> sure = ()
        >>> for number in range(100):
        ...     sure = observed(sure, 1, 0, 0.99, float(number % 2))
        >>> round(calibrated(sure, 0, 0.99), 2)
        0.58
    """
    counts = state[arm * WIDTH : (arm + 1) * WIDTH]
    if not any(counts):
        return confidence
    return along(curve(counts), confidence)


def along(right: Sequence[float], confidence: float) -> float:
    """Return how likely an answer is right, by a curve (knots,) that says it at each knot.

    Examples:
        >>> along(KNOTS, 0.75)
        0.75
    """
    lower, far = _place(confidence)
    return right[lower] + far * (right[lower + 1] - right[lower])


def counted(confidences: Iterable[float], right: Iterable[float]) -> State:
    """Return the counts (WIDTH,) of answers that are all known at once: none of them is forgotten.

    Args:
        confidences: in [0, 1].
        right: of each, 1 if it is; in between, how likely.
    """
    values = [0.0] * WIDTH
    for confidence, is_right in zip(confidences, right, strict=True):
        lower, far = _place(confidence)
        for knot, weight in ((lower, 1.0 - far), (lower + 1, far)):
            values[2 * knot] += weight
            values[2 * knot + 1] += weight * is_right
    return tuple(values)


@lru_cache(_CURVES)
def curve(counts: State) -> tuple[float, ...]:
    """Return at each knot how likely an answer is right, never falling.

    Args:
        counts: (WIDTH,) of one arm.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, observations, knots
    for knot, seen, right in zip(KNOTS, counts[::2], counts[1::2], strict=True):
        weight, size = PRIOR + seen, 1
        mean = min(1.0, max(0.0, knot + (right - knot * seen) / weight))
        while blocks and blocks[-1][0] >= mean:
            before, its, more = blocks.pop()
            mean, weight, size = (its * before + weight * mean) / (its + weight), its + weight, size + more
        blocks.append((mean, weight, size))
    return tuple([min(1.0, mean) for mean, _, size in blocks for _ in range(size)])


def extended(state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
    """Return the counts by name; a new arm has none, and counts that do not fit the old arms are as none."""
    if len(state) != WIDTH * len(old_arms):
        return ()
    if tuple(old_arms) == tuple(new_arms):
        return state
    known = {name: state[WIDTH * at : WIDTH * (at + 1)] for at, name in enumerate(old_arms)}
    kept = [known.get(name, (0.0,) * WIDTH) for name in new_arms]
    return tuple([count for counts in kept for count in counts]) if any(map(any, kept)) else ()


def started(state: State) -> State:
    """Return a context's first counts: what is known of all contexts, at each knot believed as the prior is."""
    values = list(state)
    for at in range(0, len(values) - 1, 2):
        share = min(1.0, PRIOR / values[at]) if values[at] else 0.0
        values[at], values[at + 1] = share * values[at], share * values[at + 1]
    return tuple(values)


def _place(confidence: float) -> tuple[int, float]:
    """Return the knot at or below a confidence, and how far towards the next it is, in [0, 1]."""
    lower = min(bisect_right(KNOTS, confidence), len(KNOTS) - 1) - 1
    low, high = KNOTS[lower : lower + 2]
    return lower, (confidence - low) / (high - low)
