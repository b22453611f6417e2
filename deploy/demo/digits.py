"""The demo's data: scikit-learn's hand-written digits (1797 images of 8 x 8, shipped with the package).

The rows that queries are made of are held out: no model is trained on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

if TYPE_CHECKING:
    from numpy.typing import NDArray

HELD_OUT = 0.4  # of 1797 rows: 719 for queries, 1078 to train on


class Digits(NamedTuple):
    """Rows of 64 floats in 0..16 and their digits; `asked_*` are the held-out ones."""

    train_rows: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    asked_rows: NDArray[np.float32]
    asked_labels: NDArray[np.int64]


def digits(seed: int) -> Digits:
    """Return the data set, split by the seed; every digit has the same share on both sides."""
    rows, labels = load_digits(return_X_y=True)
    train_rows, asked_rows, train_labels, asked_labels = train_test_split(
        rows.astype(np.float32), labels.astype(np.int64), test_size=HELD_OUT, random_state=seed, stratify=labels
    )
    return Digits(train_rows, train_labels, asked_rows, asked_labels)


def sample(count: int, size: int, seed: int) -> NDArray[np.intp]:
    """Return `count` row numbers below `size`, drawn with replacement."""
    return np.random.default_rng(seed).integers(size, size=count)


def repeating(order: NDArray[np.intp], share: float, within: int, seed: int) -> NDArray[np.intp]:
    """Return the order with a share of it asking again for one of the rows just before, as users do.

    Args:
        order: row numbers, shape (queries,).
        share: of the queries that repeat one, drawn by the seed.
        within: how many queries back that one is at most.
        seed: of both draws.
    """
    draw, asked = np.random.default_rng(seed), order.copy()
    repeats, back = draw.random(len(order)) < share, draw.integers(1, within + 1, size=len(order))
    for place in np.flatnonzero(repeats):
        asked[place] = asked[max(0, place - back[place])]
    return asked
