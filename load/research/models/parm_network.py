"""ParM's base network for MNIST as a torch architecture; needs torch, which only this scenario and its worker load."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


SERVICE_S = (0.025, 0.05)


class Network(nn.Module):
    """784-200-100-10 with ReLU, as the published state names its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.nn = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 10))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, 10) logits of (n, 784) rows."""
        logits: torch.Tensor = self.nn(rows)
        return logits


class SlowNetwork(Network):
    """The same network; a call takes 25 to 50 ms, whatever its rows, as on a small accelerator. Not for training."""

    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng(os.getpid())

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, 10) logits of (n, 784) rows, after a while."""
        time.sleep(self._random.uniform(*SERVICE_S))
        return super().forward(rows)


def build_slow() -> SlowNetwork:
    """Return the untrained slow network."""
    return SlowNetwork()


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
