"""Which answers of a cheap model need no dearer one: a threshold on its confidence that holds a risk, at all times.

    cells          answers by confidence, the least confident first, and what each of them cost too much
    risk of cell k what the answers in cell k and above cost too much, of all answers
    held           that this is below the bound has been shown, at level 1 - delta

Cells are tested from the most confident one downwards, and the first that fails ends it. So all tests together are
wrong as rarely as one (fixed sequence testing: Angelopoulos et al., Learn then Test, arXiv 2110.01052). One test bets
on rates below the bound, an equal part of the capital on each. If the risk is at least the bound, no such bet gains on
the average, whatever was decided before. So the capital ever exceeds 1 / delta with probability delta at most (Ville,
1939), and it may be looked at after every answer. The costs may be any numbers in [0, 1], as the winnings are convex in
them (Waudby-Smith and Ramdas, J. R. Stat. Soc. B 86, 2024).
"""

from __future__ import annotations

from math import exp, inf, log, log1p, log10
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

CELLS: Final = 32  # eight a decade of the doubt 1 - confidence, down to 10^-4
_A_DECADE: Final = 8
_RATES: Final = tuple((number + 0.5) / 16 for number in range(16))  # that are bet on, as parts of the bound


def place(confidence: float) -> float:
    """Return where a confidence in [0, 1] stands among the cells: 0.0 = none, `CELLS` = certain."""
    doubt = 1.0 - confidence
    return min(float(CELLS), -_A_DECADE * log10(doubt)) if doubt > 0.0 else float(CELLS)


def confidence_at(at: float) -> float:
    """Return the confidence that stands at a place in [0, CELLS]."""
    return 1.0 - float(10.0 ** (-at / _A_DECADE))


def cell(confidence: float) -> int:
    """Return the cell of a confidence."""
    return min(int(place(confidence)), CELLS - 1)


def lowest_held(counts: Sequence[float], costs: Sequence[float], risk: float, delta: float) -> int:
    """Return the lowest cell such that the answers in it and above hold the risk; `CELLS` = none does.

    Args:
        counts: (CELLS,) answers.
        costs: (CELLS,) sums of what they cost too much, each in [0, 1].
        risk: the bound on the mean over all answers, in [0, 1); those below the cell cost nothing.
        delta: how often this may be wrong at any time, in (0, 1).
    """
    total, cost, lowest = sum(counts), 0.0, CELLS
    for at in range(CELLS - 1, -1, -1):
        cost += costs[at]
        if capital(cost, total, risk) < -log(delta):
            break
        lowest = at
    return lowest


def capital(cost: float, total: float, bound: float) -> float:
    """Return the logarithm of what bets on a mean below `bound` have come to, each with an equal part of 1.

    Args:
        cost: sum of the costs.
        total: how many there are.
        bound: in [0, 1).

    Examples:
        >>> capital(0.0, 100.0, 0.05) > 0.0 > capital(5.0, 100.0, 0.05)
        True
    """
    if bound <= 0.0:
        return -inf
    won = [cost * log(part) + (total - cost) * (log1p(-part * bound) - log1p(-bound)) for part in _RATES]
    most = max(won)
    return most + log(sum([exp(each - most) for each in won]) / len(won))
