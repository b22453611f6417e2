"""Pictures with cars and faces in them, and a detector that finds them after the time that ResNet-152 would take.

A picture is made of tiles: black ones, cars (above 0) and faces (below 0). What is found is right; only the time that a
batch takes is Clockwork's, on a device that is slower (`load.research.models.published`).
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from load.research.models import published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SLOWER: Final = 12
TILE, ROWS, COLUMNS = 8, 4, 8
MOST: Final = ROWS * COLUMNS // 2  # of a kind
# What stands for the stages' models, by name.
MODELS: Final = {
    "detector": "load.research.models.traffic:detect",
    "car-net": f"load.research.models.published:resnet18_{SLOWER}",
    "face-net": f"load.research.models.published:resnet50_{SLOWER}",
}


def picture(cars: int, faces: int) -> NDArray[np.float32]:
    """Return a picture with so many of each, at most `MOST`, in the order of its tiles."""
    tiles = np.zeros((ROWS * COLUMNS, 1, TILE, 1), np.float32)
    tiles[:cars], tiles[cars : cars + faces] = 1.0, -1.0
    spread = np.broadcast_to(tiles, (ROWS * COLUMNS, TILE, TILE, 1)).reshape(ROWS, COLUMNS, TILE, TILE)
    return np.ascontiguousarray(spread.swapaxes(1, 2).reshape(ROWS * TILE, COLUMNS * TILE))


def found(pixels: NDArray[np.float32]) -> str:
    """Return what stands in a picture, as JSON: of each thing its label and the box of its tile."""
    middle = TILE // 2
    centres = pixels[middle::TILE, middle::TILE]
    return json.dumps(
        [
            {"label": "car" if centres[row, column] > 0 else "face", "box": _box(row, column)}
            for row, column in np.argwhere(centres).tolist()
        ]
    )


def detect(pictures: Sequence[NDArray[np.float32]]) -> list[str]:
    """Answer what stands in each picture, after the time that the batch takes."""
    _taking()(pictures)
    return [found(pixels) for pixels in pictures]


@cache
def _taking() -> published.Sleeping:
    slow = published.published()["resnet152"]
    return published.Sleeping(slow._replace(times_us=tuple(us * SLOWER for us in slow.times_us)))


def _box(row: int, column: int) -> list[int]:
    return [column * TILE, row * TILE, (column + 1) * TILE, (row + 1) * TILE]
