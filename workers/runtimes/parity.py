"""Networks that answer the sum of a coded model's outputs, and how they are trained.

    for k rows: P(x1 + ... + xk) ≈ F(x1) + ... + F(xk)         loss: the mean squared error between the two sides

As Kosaian, Rashmi and Venkataraman have it (SOSP 2019): Adam with rate 1e-3 and weight decay 1e-5, groups drawn anew in
each epoch. The rate falls to 0 along a cosine, which takes some tens of epochs to where a constant one takes hundreds.
For an affine F nothing has to be trained (`affine`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

RATE, DECAY = 1e-3, 1e-5
_TYPES = {"float32": torch.float32, "float64": torch.float64}


def mlp(inputs: int, outputs: int, hidden: Sequence[int] = (200, 100)) -> nn.Module:
    """Return a network of dense layers with ReLU between them; rows of any shape are flattened.

    Args:
        inputs: numbers of a row.
        outputs: numbers of an answer.
        hidden: units of the layers between.
    """
    sizes = [inputs, *hidden, outputs]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def affine(inputs: int, outputs: int, dtype: str = "float32") -> nn.Module:
    """Return one dense layer over rows of any shape, which computes in `dtype`."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs, dtype=_TYPES[dtype]))


def filled_affine(weights: NDArray[np.floating], intercept: NDArray[np.floating]) -> nn.Module:
    """Return `affine` with these weights (inputs, outputs) and this intercept (outputs,), in their type."""
    inputs, outputs = weights.shape
    network = affine(inputs, outputs, dtype=weights.dtype.name)
    state = {"1.weight": torch.from_numpy(weights.T.copy()), "1.bias": torch.from_numpy(intercept.copy())}
    network.load_state_dict(state)
    return network


def fit(
    network: nn.Module,
    rows: NDArray[np.floating],
    outputs: NDArray[np.floating],
    *,
    k: int,
    epochs: int,
    batch: int,
    rate: float = RATE,
    seed: int = 0,
    threads: int = 1,
) -> Iterator[float]:
    """Train a network to answer the sum of k rows with the sum of their outputs; yields the mean loss of each epoch.

    Args:
        network: that is trained, where it is: on a GPU, if there is one.
        rows: inputs of the coded model, (n, ...).
        outputs: what it answers to them, (n, m).
        k: rows that are summed.
        epochs: how often all rows are taken.
        batch: sums in a step.
        rate: of Adam, at the beginning.
        seed: of the groups; the network's own start is the caller's.
        threads: of the arithmetic; more than one wait for each other, which pays off for large networks alone.
    """
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    given, wanted = torch.from_numpy(rows).to(device), torch.from_numpy(outputs).to(device)
    network.to(device).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, weight_decay=DECAY, fused=True)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    random = torch.Generator().manual_seed(seed)
    groups = len(given) // k
    for _ in range(epochs):
        drawn = torch.randperm(len(given), generator=random)[: groups * k].reshape(groups, k).to(device)
        total = 0.0
        for start in range(0, groups, batch):
            places = drawn[start : start + batch]
            found = network(given[places].sum(dim=1))
            loss = nn.functional.mse_loss(found.reshape(len(places), -1), wanted[places].sum(dim=1))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch has no annotation for it
            optimizer.step()
            total += loss.item() * len(places)
        falling.step()
        network.eval()
        yield total / groups
        network.train()
    network.eval().cpu()


def answers(network: nn.Module, rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return what a network answers to rows (n, ...): (n, m)."""
    device = next(network.parameters()).device
    with torch.inference_mode():
        found: NDArray[np.floating] = network(torch.from_numpy(rows).to(device)).cpu().numpy()
    return found.reshape(len(rows), -1)


def seeded(seed: int) -> None:
    """Let networks that are built next start from a seed."""
    torch.manual_seed(seed)
