"""Models as functions, for scenarios that need a model with known answers or a known cost.

Packaged by dotted path (`load.models.functions:third`); the input carries what the function needs, so a worker needs no
file and no state beside it.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BATCH_S = 5e-3
ROW_S = 1e-4
MODULUS = 1_009  # a prime


def timed(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer 0 after 5 ms and 0.1 ms a row; `rows` (n, 1) says how many times dearer than that each row is."""
    time.sleep(BATCH_S + ROW_S * float(rows.sum()))
    return np.zeros(len(rows), np.int64)


def slow(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer 0 after 5 ms and 1 ms a row."""
    time.sleep(BATCH_S + 10 * ROW_S * len(rows))
    return np.zeros(len(rows), np.int64)


def line(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer 0 after a + b * n ms; `rows` (n, 2) hold a and b."""
    time.sleep(float(rows[0, 0] + rows[:, 1].sum()) / 1e3)
    return np.zeros(len(rows), np.int64)


def sleeping(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer 0 after as many seconds as the largest of `rows` (n, 1) says."""
    time.sleep(float(rows.max()))
    return np.zeros(len(rows), np.int64)


def nothing(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer 0 at once."""
    return np.zeros(len(rows), np.int64)


def right(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer column 0 of `rows` (n, 1)."""
    return rows[:, 0].astype(np.int64)


class Panic(BaseException):
    """What a library in Rust raises: no `Exception`."""


def panics(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer column 0 of `rows` (n, 1), but panic over 666."""
    if (rows == 666).any():
        raise Panic("index out of bounds")
    return right(rows)


def trigrams(texts: Sequence[str]) -> NDArray[np.int64]:
    """Answer how many kinds of trigrams each text has; a long one keeps Python's lock for long."""
    return np.array([len({*zip(text, text[1:], text[2:], strict=False)}) for text in texts], np.int64)


def shown(rows: Sequence[bytes]) -> list[str]:
    """Answer how each of `rows` begins."""
    return [row[:64].decode("latin-1") for row in rows]


class Deadly:
    """Ends the process that loads it, as a damaged booster may."""

    def __init__(self, folder: object) -> None:
        signal.raise_signal(signal.SIGSEGV)

    def predict_batch(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """Never be asked."""
        return nothing(rows)


def wrong(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer one more than column 0 of `rows` (n, 1)."""
    return rows[:, 0].astype(np.int64) + 1


def features(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Answer (column 0 / 16, 1) of `rows` (n, 1), as scores."""
    return np.stack([rows[:, 0] / 16, np.ones(len(rows), np.float32)], axis=1)


def never_in_time(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer 0 after two seconds, when the query is over."""
    time.sleep(2)
    return np.zeros(len(rows), np.int64)


def first(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Answer column 0 of `rows` (n, 5): what the first of five models said about that row."""
    return rows[:, 0]


def second(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Answer column 1."""
    return rows[:, 1]


def third(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Answer column 2."""
    return rows[:, 2]


def fourth(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Answer column 3."""
    return rows[:, 3]


def fifth(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Answer column 4."""
    return rows[:, 4]


def residue(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Answer column 0 of `rows` (n, 1) modulo `MODULUS`: another input mostly has another answer."""
    return rows[:, 0] % MODULUS


COLUMNS = tuple(f"load.models.functions:{column.__name__}" for column in (first, second, third, fourth, fifth))
