"""Runs an estimator as tensor operations of torch, converted by Hummingbird: on a GPU, if there is one.

The conversion runs when a package is loaded. Its result is not stored.

References:
    Nakandala et al., A Tensor Compiler for Unified Machine Learning Prediction Serving, OSDI 2020.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from hummingbird.ml import convert

from workers.runtimes.torch import TorchRuntime, device

if TYPE_CHECKING:
    import numpy as np

    from workers.manifest import Manifest


class _Numbers(torch.nn.Module):
    """The numbers of a converted estimator: for a classifier the scores, without the labels before them."""

    def __init__(self, graph: torch.nn.Module) -> None:
        super().__init__()
        self._graph = graph

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self._graph(rows)
        numbers: torch.Tensor = found[1] if isinstance(found, tuple) else found
        return numbers


def runtime(manifest: Manifest, estimator: object, _dtype: np.dtype[np.generic], threads: int = 1) -> TorchRuntime:
    """Return the estimator as a runtime under torch; Hummingbird may raise any error if it cannot convert it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls what torch and onnx deprecate (0.4.12)
        graph = convert(estimator, "torch", extra_config={"n_threads": threads}).model
    return TorchRuntime(manifest, _Numbers(graph), device(), threads)
