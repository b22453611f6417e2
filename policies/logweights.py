"""Weights that sum to 1, kept as logarithms: a weight may become tiny, but its logarithm is never infinite or NaN."""

from __future__ import annotations

from math import exp, inf, log
from typing import TYPE_CHECKING, Final

from policies.errors import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.contract import State

# A smaller share gives nothing back that could be measured, and its logarithm leaves the numbers of a double.
_SMALLEST_SHARE = 1e-12


def log_sum(logs: Sequence[float]) -> float:
    """Return the logarithm of the sum of the weights, whatever the size of the logarithms."""
    top = max(logs)
    total = 0.0
    for (
        value
    ) in logs:  # not `sum`, which rounds otherwise from Python 3.12 on: the same log is to give the same weights
        total += exp(value - top)
    return top + log(total)


def normalised(logs: Sequence[float]) -> State:
    """Shift finite logarithms so that the weights sum to 1."""
    total = log_sum(logs)
    return tuple([value - total for value in logs])


_EQUAL: Final = 0.5  # part of a context's first weights that is the same for every arm


class LogWeights:
    """Part of the policies that weigh arms: the state is the logarithms of the weights."""

    __slots__ = ()

    def init(self, arms: int) -> State:
        """Return equal weights."""
        return (-log(arms),) * arms

    def weights(self, state: State, arms: int) -> tuple[float, ...]:
        """Return the weights."""
        return tuple([exp(value) for value in state])

    def extend(self, state: State, old_arms: Sequence[str], new_arms: Sequence[str]) -> State:
        """Re-map by name; a new arm gets the average weight of those kept (as in Clipper)."""
        known = dict(zip(old_arms, state, strict=True))
        kept = [known[arm] for arm in new_arms if arm in known]
        if not kept:
            return self.init(len(new_arms))
        average = log_sum(kept) - log(len(kept))
        return normalised([known.get(arm, average) for arm in new_arms])

    def start(self, state: State, arms: int) -> State:
        """Return a context's first weights: half those of all contexts, half equal ones.

        So no arm has less than half of what it would start with otherwise, which costs exponential weights at most
        ln 2 / eta of loss; where contexts are alike it saves them up to ln(K / 2) / eta.
        """
        equal = _EQUAL / arms
        return normalised([log((1.0 - _EQUAL) * exp(value) + equal) for value in state])


def check_rates(name: str, eta: float, share: float, usual_eta: str, usual_share: str) -> None:
    """Check a learning rate, and the weight given back at each step.

    Raises:
        PolicyError: One is out of range.
    """
    require(0.0 < eta < inf, f"{name}: eta is {eta}; it must be positive, {usual_eta} is usual")
    require(
        share == 0.0 or _SMALLEST_SHARE <= share <= 1.0,
        f"{name}: share is {share}; it must be 0 or lie in [1e-12, 1], {usual_share} is usual",
    )
