"""Models of large inputs whose answer stands in the input: what they cost is the way, not the arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SHAPE: Final = (3, 224, 224)  # of a tensor as networks trained on ImageNet take it: 602,112 bytes of float32
JPEG_BYTES: Final = 150_000
_START: Final = b"\xff\xd8"  # of a JPEG
CLASSES: Final = 100


def jpeg(label: int, seed: int) -> bytes:
    """Return as many bytes as a photograph has, which cannot be compressed either; the label is the third of them."""
    rest = np.random.default_rng(seed).bytes(JPEG_BYTES - len(_START) - 1)
    return _START + bytes([label]) + rest


def tensor(label: int, seed: int) -> NDArray[np.float32]:
    """Return a tensor of `SHAPE` whose first number is the label."""
    found = np.random.default_rng(seed).random(SHAPE, np.float32)
    found[0, 0, 0] = label
    return found


def of_jpegs(rows: Sequence[bytes]) -> NDArray[np.int64]:
    """Answer the label of each image."""
    return np.array([row[len(_START)] if len(row) > len(_START) else 0 for row in rows], np.int64)


def of_tensors(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer the label of each tensor."""
    return rows[:, 0, 0, 0].astype(np.int64)
