"""A loaded and warmed-up model as one function: what a worker's thread or child process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Tensor
from workers.rows import predict_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input
    from workers.manifest import Signature
    from workers.packaging import LoadedModel
    from workers.rows import Predicted


def predictor(model: LoadedModel) -> Callable[[Sequence[Input]], Predicted]:
    """Return what predicts rows; the first call, often far slower than the rest, has been made and forgotten.

    A model that cannot answer a blank row is not refused: the rows it is meant for may be others.
    """

    def predict(inputs: Sequence[Input]) -> Predicted:
        return predict_rows(model.runtime, model.manifest, inputs)

    predict([blank(model.manifest.input)])
    return predict


def blank(signature: Signature) -> Input:
    """Return an empty input of a signature: zeros, or no characters."""
    if signature.kind == "tensor":
        return Tensor.of(np.zeros(signature.shape, signature.dtype))
    return "" if signature.kind == "string" else b""
