"""Whether losses of a window have a larger mean than those before it, or chance explains the difference.

Let n losses in [0, 1] have mean h and N before them mean r < h. If all are independent and of one true mean q, then
n KL(h, q) and N KL(r, q) each exceed x on their side with probability e^-x at most (Chernoff, 1952; KL is the relative
entropy of two coins). Their sum exceeds x with probability (1 + x) e^-x at most, and is least at the mean of both
windows together. So nothing has to be known of q.

Losses that come in runs say less than independent ones. How much less is seen in blocks: by as much as the means of
blocks vary more than those of coins would.
"""

from __future__ import annotations

from math import log, log1p
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class LossSum(NamedTuple):
    """Some losses in [0, 1]: their sum, and how many."""

    total: float = 0.0
    number: float = 0.0

    @property
    def mean(self) -> float:
        """Their mean; 0 of none."""
        return min(1.0, max(0.0, self.total / self.number)) if self.number else 0.0

    def plus(self, other: LossSum) -> LossSum:
        """Return both together."""
        return LossSum(self.total + other.total, self.number + other.number)

    def flipped(self) -> LossSum:
        """Return what they leave to 1, so that a fall is a rise."""
        return LossSum(self.number - self.total, self.number)


def rise(before: LossSum, window: LossSum) -> float:
    """Return the statistic of the module's text, the larger the less chance explains; 0 where nothing rose.

    Examples:
        >>> round(rise(LossSum(5.0, 100.0), LossSum(10.0, 10.0)), 1)
        23.2
        >>> rise(LossSum(5.0, 100.0), LossSum(0.0, 10.0))
        0.0
    """
    if not before.number or not window.number or window.mean <= before.mean:
        return 0.0
    both = before.plus(window).mean
    return window.number * coin_entropy(window.mean, both) + before.number * coin_entropy(before.mean, both)


def surprise(found: float) -> float:
    """Return the logarithm of how seldom chance brings such a statistic, or a larger one: once in e^surprise times."""
    return found - log1p(found)


def runs(*windows: Sequence[LossSum]) -> float:
    """Return how many losses of these windows' blocks say as much as one that is independent; at least 1."""
    off, free = 0.0, 0
    for blocks in windows:
        mean = LossSum(sum(each.total for each in blocks), sum(each.number for each in blocks)).mean
        one = mean * (1.0 - mean)
        free += max(0, len(blocks) - 1)
        if one > 0.0:
            off += sum((each.total - each.number * mean) ** 2 / (each.number * one) for each in blocks if each.number)
    return max(1.0, off / free) if free else 1.0


def coin_entropy(one: float, other: float) -> float:
    """Return KL of two coins; of 0 < other < 1."""
    heads = one * log(one / other) if one else 0.0
    return heads + ((1.0 - one) * log((1.0 - one) / (1.0 - other)) if one < 1.0 else 0.0)
