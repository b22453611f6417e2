"""Whether sets of labels hold what was promised: by how much they may seem to fall short by chance.

Of `count` independent sets that each hold the true label with probability q or more, a share of h < q or fewer hold it
with a probability of at most exp(-count * KL(h, q)), KL being the relative entropy of two coins (Chernoff, 1952). So
the share that is behind what was seen is at most the q at which that is `CHANCE`.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Final

from streams.control.page_types import Alert, skysail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streams.control.page_types import ApplicationRow

# One looks at five minutes once a second: a year has 100,000 such stretches that do not overlap.
CHANCE: Final = 1e-6
_HALVINGS: Final = 40


def at_most(held: float, count: float) -> float:
    """Return the largest share of sets that hold the true label, given that a share `held` of so many did."""
    low, high = held, 1.0
    for _ in range(_HALVINGS if count else 0):
        middle = (low + high) / 2.0
        low, high = (low, middle) if count * _entropy(held, middle) > -log(CHANCE) else (middle, high)
    return high


def broken(row: ApplicationRow) -> Iterator[Alert]:
    """Return the alert where an application's sets hold less than was promised, and chance does not explain it."""
    coverage = row["coverage"]
    if coverage is None or coverage["held"] is None or coverage["at_most"] >= coverage["promised"]:
        return
    text = (
        f"{row['name']}: {coverage['held']:.1%} of {coverage['judged']:.0f} sets of labels held the true one in the"
        f" last five minutes; promised are {coverage['promised']:.1%}, and by chance there are so few once in a million"
        " times. Inputs, labels or models have changed: with feedback sets grow until the promise is kept again"
    )
    yield Alert(level="bad", text=text, command=skysail("app", "show", row["name"]))


def _entropy(one: float, other: float) -> float:
    """Return KL of two coins; of 0 < other < 1."""
    heads = one * log(one / other) if one else 0.0
    return heads + ((1.0 - one) * log((1.0 - one) / (1.0 - other)) if one < 1.0 else 0.0)
