"""Converts a fitted scikit-learn estimator to ONNX with skl2onnx. Packaging needs this; workers do not."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import skl2onnx

from workers.runtimes.estimators import refusal
from workers.runtimes.onnx import ONNX_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def convert(estimator: Any, folder: Path, rows: NDArray[Any]) -> str:
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
    (folder / ONNX_FILE).write_bytes(graph.SerializeToString())
    return ONNX_FILE


def _graph(estimator: Any, rows: NDArray[Any]) -> Any:
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else None  # arrays, not dicts
    try:
        return skl2onnx.to_onnx(estimator, rows[:1], options=options)
    except NameError:  # LinearSVC has no such option: its scores are an array
        return skl2onnx.to_onnx(estimator, rows[:1])
