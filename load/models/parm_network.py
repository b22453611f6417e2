"""ParM's base network for MNIST as a torch architecture; needs torch, which only this scenario and its worker load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


class Network(nn.Module):
    """784-200-100-10 with ReLU, as the published state names its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.nn = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 10))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, 10) logits of (n, 784) rows."""
        logits: torch.Tensor = self.nn(rows)
        return logits


def build() -> Network:
    """Return the untrained network."""
    return Network()


def load_published(path: Path) -> Network:
    """Return the network with the published weights; nothing but tensors is unpickled.

    Raises:
        FileNotFoundError: they are not there.
    """
    network = build()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return network.eval()


def logits(network: Network, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logits (n, 10) of rows (n, 784), all in one batch."""
    with torch.inference_mode():
        result: NDArray[np.float32] = network(torch.from_numpy(rows)).numpy()
    return result
