"""A loaded and warmed-up model as one function: what a worker's thread or child process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Tensor
from workers.inputs.padding import Padded
from workers.inputs.rows import predict_rows
from workers.inputs.tables import blank_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input
    from streams.operators.contract import Predicted
    from workers.manifest import Signature
    from workers.packages.loading import LoadedModel
    from workers.runtimes.contract import Runtime


def predictor(model: LoadedModel, sizes: tuple[int, ...] = ()) -> Callable[[Sequence[Input]], Predicted]:
    """Return a function that predicts rows. Its first call, often far slower than the rest, has been made already.

    A model that cannot answer a blank row is not refused, because real rows may look different.

    Args:
        model: that is asked.
        sizes: of the batches that it may be given, rising, each tried once now; none = any.
    """
    runtime: Runtime = Padded(model.runtime, sizes) if sizes else model.runtime

    def predict(inputs: Sequence[Input]) -> Predicted:
        return predict_rows(runtime, model.manifest, inputs)

    for size in sizes or (1,):
        predict([blank(model.manifest.input)] * size)
    return predict


def blank(signature: Signature) -> Input:
    """Return an empty input of a signature: zeros, or no characters."""
    if signature.kind == "tensor":
        return Tensor.of(np.zeros(signature.shape, signature.dtype))
    if signature.kind == "table":
        return blank_row(signature)
    return "" if signature.kind == "string" else b""
