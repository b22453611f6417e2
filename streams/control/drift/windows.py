"""Which windows are compared with what was before them, and how surely a window is of other shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streams.control.drift.evidence import log_evidence, sure, tempered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streams.control.drift.evidence import Counts

# A window is so many minutes with values.
_WINDOWS: Final = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200)
FEW_MINUTES: Final = 30  # with values, before a window: how much they vary says little else
FEW_WINDOWS: Final = 8  # as long as the window, before it
FEW_HOURS: Final = 4  # or as many hours, as after a start


def windows(blocks: Counts, past: Counts, rows: Counts) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield lengths of windows that end now, and which columns are looked at.

    All of them where enough came before; else those that began with the window and a package's rows.

    Args:
        blocks: the last minutes (minutes, columns, bins).
        past: hours before these.
        rows: of packages (columns, bins).
    """
    usual = {
        length
        for length in _WINDOWS
        if len(blocks) - length >= (0 if len(past) >= FEW_HOURS else max(FEW_MINUTES, FEW_WINDOWS * length))
    }
    began = np.where(rows.any(axis=-1) & ~past.any(axis=(0, 2)), _ages(blocks), 0)
    for length in sorted({*usual, *began.tolist()} - {0}):
        yield length, (began == length) | (length in usual)


def surely(before: Counts, window: Counts, blocks: Counts, past: Counts, length: int) -> NDArray[np.float64]:
    """Return the evidence of each column that a window is of other shares, as values in runs bring it, too.

    Args:
        before: counts of all before the window, a package's rows, too.
        window: its minutes.
        blocks: the minutes before the window that are known one by one.
        past: hours before these.
        length: of the window, in minutes: windows before it are as long.
    """
    found, columns = log_evidence(before, window.sum(axis=0)), len(before)
    if found.max(initial=0.0) < sure(columns):  # what runs take away changes nothing
        return found
    blocks, past = blocks[:, :columns], past[:, :columns]
    whole = blocks[len(blocks) % length :]
    as_long = whole.reshape(len(whole) // length, length, *whole.shape[1:]).sum(axis=1)
    known = [blocks, as_long, past] if len(past) >= FEW_HOURS else [blocks, as_long]
    left = [tempered(found, each) for each in known if len(each) > 1]
    is_new = ~(blocks.any(axis=(0, 2)) | past.any(axis=(0, 2)))
    # Where a package's rows alone are before, the window says how minutes vary: a few minutes tell of nothing.
    return np.where(is_new, tempered(found, window[:, :columns]), np.min([found, *left], axis=0))


def _ages(blocks: Counts) -> NDArray[np.int64]:
    """Return since how many minutes columns have values; 0 = they have none."""
    are_there = blocks.any(axis=-1)
    first = are_there.argmax(axis=0) if len(blocks) else np.zeros(blocks.shape[1], np.int64)
    return np.where(are_there.any(axis=0), len(blocks) - first, 0)
