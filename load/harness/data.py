"""Finds the public data sets that some scenarios replay. A fresh clone has none of them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from load.errors import MissingDataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# MNIST and models' published predictions on it are too large to ship.
DATA = Path(os.environ.get("SKYSAIL_DATA", "../shared/data"))
MNIST_ANSWERS = DATA / "derived/mnist_preds_public.npz"  # of published models
_IMAGES_HEADER, _LABELS_HEADER = 16, 8
_PIXELS = 28 * 28


def mnist(folder: Path, part: str, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the first images (count, 784), 0 to 255, and their labels (count,).

    Args:
        folder: with the four files as they are published.
        part: `train` or `t10k`.
        count: of rows.

    Raises:
        MissingDataError: a file is not there.
    """
    images, labels = (folder / f"{part}-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1"))
    need(images, labels)
    pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=_IMAGES_HEADER)
    digits = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=_LABELS_HEADER)
    return pixels.reshape(-1, _PIXELS)[:count], digits[:count].astype(np.int64)


def need(*paths: Path) -> None:
    """Check that files are there.

    Raises:
        MissingDataError: one is not; says how to point to it.
    """
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise MissingDataError(
            f"no {', '.join(missing)}: set SKYSAIL_DATA to the folder that holds the public data sets"
        )
