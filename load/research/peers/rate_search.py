"""Finds the rate at which a system gives the most right answers in time: doubles it until most of them are late."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RATES = tuple(500.0 * 2**doubled for doubled in range(8))
BETWEEN = (2**0.5, 2**0.25)  # beyond the best rate, before the next: one after the other
_KEPT = 0.5  # of the queries in time; below it the rate is too high
_PATIENCE = 2  # such rates in a row; one may be a busy moment of the machine


class Step(NamedTuple):
    """The result of a rate.

    Attributes:
        goodput: right answers in time (1/s) by objective (ms).
        settled: whether nothing is left of it, so that another rate can be tried.
    """

    goodput: Mapping[int, float]
    settled: bool


class Ask(Protocol):
    """Asks at a rate."""

    def __call__(self, rate: float) -> Step:
        """Send at `rate` (1/s) for a while."""
        ...


def climb(ask: Ask, objectives: Sequence[int], ceiling_per_s: float = float("inf")) -> dict[float, Step]:
    """Return every rate that was tried.

    At the last of the doubled rates most answers miss even the longest objective. So the result also shows a system
    under overload.

    Args:
        ask: asks.
        objectives: in ms.
        ceiling_per_s: rates beyond it are not tried.
    """
    tried: dict[float, Step] = {}
    failed = 0
    for rate in (rate for rate in RATES if rate <= ceiling_per_s):
        tried[rate] = ask(rate)
        if not tried[rate].settled:
            return tried
        failed = failed + 1 if tried[rate].goodput[max(objectives)] < _KEPT * rate else 0
        if failed == _PATIENCE:
            break
    for beyond in BETWEEN:
        between = {best_rate(tried, objective) * beyond for objective in objectives}
        for rate in sorted(rate for rate in between - tried.keys() if rate <= ceiling_per_s):
            if all(step.settled for step in tried.values()):
                tried[rate] = ask(rate)
    return tried


def best_rate(tried: Mapping[float, Step], objective: int) -> float:
    """Return the rate with the highest goodput."""
    return max(tried, key=lambda rate: tried[rate].goodput[objective])
