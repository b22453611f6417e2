"""A budget of questions: up to which confidence a dear model can be asked so that the share that is asked is held.

The threshold is the quantile of the confidences that have been seen, at the share that is still to be had. That is the
budget, and two corrections. One is the price of a question, as in primal-dual pacing: it rises with every question and
falls with every query, so the threshold settles where the budget is held, whatever the confidences do. The other is
the debt: what was asked too much or too little so far is made up for within an eighth of the past. Both grow slower
the more has been seen, so feedback that comes late does not make the threshold swing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.risk import CELLS

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEBT_GAIN: Final = 8.0  # over the queries so far
_PRICE_GAIN: Final = 4.0  # likewise; half of the other, so that the price does not overshoot
_LEAST: Final = 1_000.0  # queries, for the gain at the start


def payable(budget: float, queries: float, asked: float, price: float = 0.0) -> float:
    """Return the share of the next queries that may be asked, in [0, 1].

    Args:
        budget: the share of all queries, in [0, 1].
        queries: so far.
        asked: of these.
        price: what a share costs beside itself, see `risen`.

    Examples:
        >>> payable(0.3, 1_000.0, 300.0), payable(0.3, 1_000.0, 310.0) < 0.3
        (0.3, True)
    """
    debt = asked - budget * queries
    return min(1.0, max(0.0, budget - price - _DEBT_GAIN * debt / max(queries, _LEAST)))


def risen(price: float, budget: float, queries: float, *, is_asked: bool) -> float:
    """Return the price after a query: higher if it was asked, else lower; `queries` so far."""
    return min(1.0, max(-1.0, price + _PRICE_GAIN * (is_asked - budget) / max(queries, _LEAST)))


def place_for(counts: Sequence[float], share: float, above: float = 0.5) -> float:
    """Return the place below which answers are asked about so that this share of them is; see `risk.place`.

    Args:
        counts: (CELLS,) answers by confidence, the least confident first.
        share: of all answers, in [0, 1].
        above: the mean share that is asked about within a cell's width above the place.

    Examples:
        >>> round(place_for([1.0] * CELLS, 0.5), 3)
        15.5
    """
    known = [count + 1.0 / CELLS for count in counts]  # before any have come: anything
    wanted, below, before = share * sum(known), 0.0, 0.0
    for at, count in enumerate([*known, 0.0]):
        here = below + above * count
        if here >= wanted:
            return 0.0 if at == 0 else at - 1 + (wanted - before) / (here - before)
        below, before = below + count, here
    return float(CELLS)
