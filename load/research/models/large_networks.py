"""Two networks of a GPU's size with random weights, and the loop around them that one writes by hand; needs torch.

`wide` has 25.1 million weights: a row is small, and the weights are read for every batch. `image` takes ImageNet's rows
of 602 kB, and has little to compute: a row costs its copies.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

WIDE, IMAGE = (1024,), (3, 224, 224)
_REPEATS = 10


def wide() -> nn.Module:
    """Return 1024-4096-4096-1000 with ReLU, takes (n, 1024)."""
    return nn.Sequential(
        nn.Linear(*WIDE, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)
    ).requires_grad_(requires_grad=False)


def image() -> nn.Module:
    """Return two convolutions and a linear layer, takes (n, 3, 224, 224)."""
    return nn.Sequential(
        *(nn.Conv2d(IMAGE[0], 16, 7, stride=4, padding=3), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 4 * 4, 1000)),
    ).requires_grad_(requires_grad=False)


def seeded(name: str, seed: int) -> nn.Module:
    """Return one of them with repeatable random weights."""
    torch.manual_seed(seed)
    network: nn.Module = {"wide": wide, "image": image}[name]()
    return network.eval()


def weights(network: nn.Module) -> int:
    """Return how many numbers it has learnt, or would have."""
    return sum(parameter.numel() for parameter in network.parameters())


def device() -> str:
    """Return the name of the GPU, empty = there is none."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def loop(network: nn.Module) -> Callable[[NDArray[np.float32]], NDArray[np.int64]]:
    """Return the bare loop's body: rows (n, ...) to the device, through the network, labels (n,) back; one thread."""
    there = _there()
    network = network.to(there)

    def predict(rows: NDArray[np.float32]) -> NDArray[np.int64]:
        torch.set_num_threads(1)
        with torch.inference_mode():
            answers: NDArray[np.int64] = network(torch.from_numpy(rows).to(there)).argmax(dim=1).cpu().numpy()
        return answers

    return predict


def alone_s(network: nn.Module, rows: NDArray[np.float32]) -> tuple[float, float]:
    """Return how long rows are copied to the GPU from pinned memory, and computed once they are there: medians (s)."""
    pinned, network = torch.from_numpy(rows).pin_memory(), network.to(_there())
    there = pinned.to(_there())
    with torch.inference_mode():
        return _median_s(lambda: there.copy_(pinned, non_blocking=True)), _median_s(lambda: network(there))


def _median_s(call: Callable[[], Any]) -> float:
    taken = []
    for _ in range(_REPEATS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return sorted(taken)[_REPEATS // 2]


def _there() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
