"""Converts a fitted scikit-learn estimator to ONNX with skl2onnx. Packaging needs this; workers do not."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import skl2onnx

from workers.runtimes.estimators import refusal
from workers.runtimes.onnx import ONNX_FILE

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


def convert(estimator: object, folder: Path, rows: NDArray[np.generic]) -> str:
    """Write the estimator as a graph into `folder` and return the name of the file.

    Args:
        estimator: fitted.
        folder: of the package.
        rows: a batch; the graph takes its dtype and shape.

    Raises:
        PackageError: skl2onnx cannot convert it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it reads attributes that scikit-learn deprecates (skl2onnx 1.20)
            graph = _graph(estimator, rows)
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise refusal("converted to ONNX", estimator, reason) from error
    (folder / ONNX_FILE).write_bytes(graph)
    return ONNX_FILE


def _graph(estimator: object, rows: NDArray[np.generic]) -> bytes:
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else None  # arrays, not dicts
    try:
        graph: bytes = skl2onnx.to_onnx(estimator, rows[:1], options=options).SerializeToString()
    except NameError:  # LinearSVC has no such option: its scores are an array
        graph = skl2onnx.to_onnx(estimator, rows[:1]).SerializeToString()
    return graph
