"""Which answers of a model are right often enough: a threshold on its confidence that holds a risk, at all times.

    cells          counts of answers and of wrong ones by confidence, the least confident first
    risk of cell k how often an answer is wrong and lies in cell k or above, of all answers
    held           that this is below the bound has been shown, at level 1 - delta

Cells are tested from the most confident one downwards, and the first that fails ends it. So all tests together are
wrong as rarely as one (fixed sequence testing: Angelopoulos et al., Learn then Test, arXiv 2110.01052). One test bets
against the hypothesis that the risk is as large as the bound. Its capital is the likelihood of the answers under the
mixture of all rates (Krichevsky and Trofimov, IEEE Trans. Inf. Theory 27, 1981) over that under the bound. It may be
looked at after every answer, because such a capital ever exceeds 1 / delta with probability delta at most (Ville). The
losses may be any numbers in [0, 1]: between 0 and 1 the likelihood is convex in them.
"""

from __future__ import annotations

from math import inf, lgamma, log, log1p, log10, pi
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

CELLS: Final = 24  # four a decade of the doubt 1 - confidence, down to 10^-6
_A_DECADE: Final = 4


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


def lowest_held(counts: Sequence[float], wrong: Sequence[float], risk: float, delta: float) -> int:
    """Return the lowest cell such that the answers in it and above hold the risk; `CELLS` = none does.

    Args:
        counts: (CELLS,) answers.
        wrong: (CELLS,) sums of their losses.
        risk: the bound, in [0, 1): a loss of all answers, those below the cell count as right.
        delta: how often this may be wrong at any time, in (0, 1).
    """
    total, lost, lowest = sum(counts), 0.0, CELLS
    for at in range(CELLS - 1, -1, -1):
        lost += wrong[at]
        if evidence(lost, total, risk) < -log(delta):
            break
        lowest = at
    return lowest


def evidence(lost: float, total: float, risk: float) -> float:
    """Return the logarithm of what a bet on a rate below `risk` has won, -inf where the losses say the opposite.

    Args:
        lost: sum of the losses.
        total: how many there are.
        risk: in [0, 1].

    Examples:
        >>> evidence(0.0, 100.0, 0.05) > 0.0 > evidence(4.9, 100.0, 0.05)
        True
    """
    if not 0.0 < risk < 1.0 or lost >= risk * total:
        return inf if risk >= 1.0 else -inf
    mixture = lgamma(lost + 0.5) + lgamma(total - lost + 0.5) - lgamma(total + 1.0) - log(pi)
    return mixture - lost * log(risk) - (total - lost) * log1p(-risk)
