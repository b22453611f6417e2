"""Two networks as trunk and head, with random weights, and the same networks whole; needs torch.

`image` is six convolutions over a picture of 64 x 64 bytes, 133 million multiplications a row: in a batch a row costs
as much as alone. `wide` has 10.5 million weights, which are read for every batch: in one a row costs a half or a third.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import nn

from workers.packages.packaging import package_torch

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CLASSES: Final = 10
SIDE, NUMBERS, WIDTH = 64, 1024, 2048
_HERE: Final = "load.research.models.trunks"
_MIDDLE: Final = {"image": 256, "wide": WIDTH}


class Picture(nn.Module):
    """Bytes as numbers."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, 1, side, side) between 0 and 1."""
        return rows.reshape(len(rows), 1, SIDE, SIDE).float() / 255


def image() -> nn.Module:
    """Return six convolutions, takes (n, 4096) bytes, gives (n, 256)."""
    layers: list[nn.Module] = [Picture()]
    before = 1
    for widths in ((32,), (64, 64), (128, 128), (256,)):
        for width in widths:
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            before = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten())


def wide() -> nn.Module:
    """Return three layers with ReLU, takes (n, 1024), gives (n, 2048)."""
    layers: list[nn.Module] = []
    for before in (NUMBERS, WIDTH, WIDTH):
        layers += [nn.Linear(before, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers)


def head(middle: int) -> nn.Module:
    """Return a linear layer."""
    return nn.Linear(middle, CLASSES)


def whole(trunk: str) -> nn.Module:
    """Return a trunk and a head as one network."""
    return nn.Sequential({"image": image, "wide": wide}[trunk](), head(_MIDDLE[trunk]))


def rows(trunk: str, count: int, seed: int) -> NDArray[np.generic]:
    """Return rows that a trunk takes."""
    random = np.random.default_rng(seed)
    if trunk == "image":
        return random.integers(0, 256, (count, SIDE * SIDE), np.uint8)
    return random.standard_normal((count, NUMBERS), np.float32)


def package(trunk: str, names: list[str], folder: Path, seed: int) -> None:
    """Package each network twice: `heads/NAME` as head and trunk, `whole/NAME` whole. All have one trunk."""
    torch.manual_seed(seed)
    network, sample, middle = whole(trunk).eval(), rows(trunk, 3, seed), _MIDDLE[trunk]
    assert isinstance(network, nn.Sequential), "it is made so"
    for name in names:
        nn.init.normal_(network[1].weight, std=0.1)  # type: ignore[arg-type] # the weights of a linear layer
        package_torch(
            network[1],
            folder / "heads" / name,
            name,
            "1",
            sample,
            architecture=f"{_HERE}:head",
            arguments={"middle": middle},
            trunk=network[0],
            trunk_architecture=f"{_HERE}:{trunk}",
        )
        package_torch(
            network,
            folder / "whole" / name,
            name,
            "1",
            sample,
            architecture=f"{_HERE}:whole",
            arguments={"trunk": trunk},
        )
