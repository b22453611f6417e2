"""What another ranking would have earned, from rankings whose places were drawn evenly from all candidates.

A slate has m places and n candidates. All n! / (n - m)! slates were equally likely, so what each estimator divides by
is known in closed form, and no log of propensities is needed beside that a slate was drawn.

    per_place       each place by itself: n where the same candidate stood there, else nothing. Right where what a place
                    earns depends on the place and on what stands there (Li et al., Offline evaluation of ranking
                    policies with click models, KDD 2018).
    pseudo_inverse  the whole slate by how much of it is alike. Right where what a slate earns is a sum over its places,
                    even if only the sum is told (Swaminathan et al., Off-policy evaluation for slate recommendation,
                    NIPS 2017, https://doi.org/10.48550/arXiv.1605.04812).

Both are unbiased then. `per_place` needs to know what each place has earned, and tells more by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies.estimators.estimate import Contributions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.estimators.log import Floats

PER_PLACE, PSEUDO_INVERSE = SLATE_ESTIMATORS = ("per_place", "pseudo_inverse")
LEAST_CANDIDATES: Final = 2


class DrawnSlate(NamedTuple):
    """A ranking that was drawn, what it has earned, and what another policy would have shown instead."""

    candidates: int  # among which it was drawn
    shown: tuple[int, ...]
    earned: tuple[float, ...]  # by place
    other: tuple[int, ...]  # as many places


def per_place(slate: DrawnSlate) -> Floats:
    """Return the weight of each place (m,): n where the other policy shows the same there.

    Examples:
        >>> per_place(DrawnSlate(5, (1, 2), (1.0, 0.0), (1, 3))).tolist()
        [5.0, 0.0]
    """
    found: Floats = slate.candidates * (np.array(slate.shown) == np.array(slate.other)).astype(np.float64)
    return found


def pseudo_inverse(slate: DrawnSlate) -> float:
    """Return the weight of what the slate has earned: q' pinv(E[s s']) s, for indicators s of drawn slates.

    E[s s'] of even slates has three eigenspaces: all alike, candidates over all places, and places against each other.

    Examples:
        >>> round(pseudo_inverse(DrawnSlate(5, (1, 2), (1.0, 0.0), (1, 3))), 9)
        3.666666667
    """
    n, m = slate.candidates, len(slate.shown)
    same = sum([one == other for one, other in zip(slate.shown, slate.other, strict=True)])
    anywhere = (len({*slate.shown} & {*slate.other}) - m * m / n) / m
    over_all = 0.0 if n == m else n * (n - 1) / (n - m) * anywhere
    return 1.0 + over_all + (n - 1) * (same - m / n - anywhere)


def contributions(name: str, slates: Sequence[DrawnSlate]) -> Contributions:
    """Return what each drawn slate adds to an estimate of what the other policy earns a ranking."""
    if name == PER_PLACE:
        weights = [per_place(slate) for slate in slates]
        added = [float(weight @ np.array(slate.earned)) for weight, slate in zip(weights, slates, strict=True)]
        return Contributions(np.array(added), np.ones(len(added)), np.array([weight.mean() for weight in weights]))
    whole = np.array([pseudo_inverse(slate) for slate in slates])
    return Contributions(whole * [sum(slate.earned) for slate in slates], np.ones(len(whole)), whole)
