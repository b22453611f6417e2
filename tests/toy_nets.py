"""Networks small enough to read, named by dotted paths in tests (`tests.toy_nets:mlp`); needs torch."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


def mlp(inputs: int, outputs: int, hidden: tuple[int, ...] = (16,)) -> nn.Module:
    """Make a multilayer perceptron with ReLU between its layers."""
    sizes = [inputs, *hidden, outputs]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def noisy(inputs: int, outputs: int) -> nn.Module:
    """Make a network whose training mode would answer at random, and depend on the batch."""
    return nn.Sequential(nn.BatchNorm1d(inputs), nn.Dropout(0.5), nn.Linear(inputs, outputs))


def seeded(factory: nn.Module, seed: int = 0) -> nn.Module:
    """Fill a network with repeatable numbers."""
    torch.manual_seed(seed)
    for parameter in factory.parameters():
        nn.init.normal_(parameter, std=0.5)
    return factory


def picky(inputs: int, outputs: int) -> nn.Module:
    """Make a head that raises when a number of a row is above 100."""
    return Picky(inputs, outputs)


class Picky(nn.Linear):
    """A layer that does not take large numbers."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's own word
        """Return its outputs."""
        if bool((input.abs() > 100).any()):
            raise ValueError("too large")
        return super().forward(input)


class LeftAndRight(nn.Module):
    """Two tensors in, two out: what rows weigh with the number beside them, and their numbers without it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        """Answer by name."""
        return {"total": (left * self.weight).sum(1) + right, "both": left - right[:, None]}


def left_and_right() -> nn.Module:
    """Make it."""
    return LeftAndRight()
