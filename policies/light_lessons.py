"""What a light lesson does where a whole one forgets, or mixes equal weights in: so much less.

A thousand lessons of weight 1 / 1000 that each forget as much as a whole one leave nothing of what was there before,
nor of each other. Here n lessons of weight 1 / n forget, mix in and add exactly what one lesson does. A lesson of
weight 1 is computed as if there were no weights: a fold of whole lessons gives the same bits.
"""

from __future__ import annotations

from math import expm1, log, log1p
from typing import Final, NamedTuple

_LEAST: Final = 1e-300  # of a part that is mixed in: its logarithm is finite


class Fading(NamedTuple):
    """What is left of earlier counts after a lesson, and what the lesson adds to them."""

    kept: float
    added: float


def fading(discount: float, weight: float) -> Fading:
    """Return what a lesson of that weight keeps and adds, where a whole one keeps `discount` and adds 1.

    Args:
        discount: in (0, 1].
        weight: in (0, 1].

    Examples:
        >>> fading(0.25, 1.0)
        Fading(kept=0.25, added=1.0)
        >>> kept, added = fading(0.25, 0.5)
        >>> kept, round(kept * added + added, 9)
        (0.5, 1.0)
    """
    if weight == 1.0 or discount == 1.0:
        return Fading(discount, weight)
    forgotten = -expm1(weight * log(discount))
    return Fading(1.0 - forgotten, forgotten / (1.0 - discount))


def mixed_in(share: float, weight: float) -> float:
    """Return the part of the whole that a lesson of that weight replaces, where a whole one replaces `share`.

    Examples:
        >>> mixed_in(0.75, 1.0), round(mixed_in(0.75, 0.5), 9)
        (0.75, 0.5)
    """
    if weight == 1.0 or share == 1.0:
        return share
    return max(_LEAST, -expm1(weight * log1p(-share)))


def added_to_whole(part: float, weight: float) -> float:
    """Return what a lesson of that weight adds to 1, where a whole one adds `part`.

    Examples:
        >>> added_to_whole(3.0, 1.0), round(added_to_whole(3.0, 0.5), 9)
        (3.0, 1.0)
    """
    if weight == 1.0:
        return part
    return max(_LEAST, expm1(weight * log1p(part)))
