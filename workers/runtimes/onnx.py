"""Runs an ONNX model with ONNX Runtime, on the CPU: exported by whatever trained it, or converted from scikit-learn.

The graph has one input, the whole batch (n, *shape). If the package answers labels, its outputs are (n, k) numbers as
scores and n labels; if it answers values, the first output. Its operators are compiled. A single row costs
microseconds, where scikit-learn spends milliseconds in Python before the first row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

from workers.errors import OutputError, PackageError
from workers.runtimes.contract import Outputs, labels, part, scored, values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Rows

ONNX_FILE = "model.onnx"
_state = onnxruntime.capi.onnxruntime_pybind11_state
_REFUSALS = (_state.Fail, _state.InvalidArgument, _state.InvalidGraph, _state.InvalidProtobuf, _state.NotImplemented)


class OnnxRuntime:
    """A session as a model.

    Attributes:
        leaves_lock: it computes without Python's lock.
    """

    leaves_lock = True

    def __init__(self, manifest: Manifest, session: onnxruntime.InferenceSession) -> None:
        self._manifest = manifest
        self._session = session
        self._input = session.get_inputs()[0].name

    def predict_batch(self, rows: Rows) -> Outputs:
        """Run the graph once for the whole batch."""
        outputs: list[object] = self._session.run(None, {self._input: rows})
        kind = self._manifest.output
        if kind == "value":
            return values(outputs[0])
        answered = [output for output in outputs if isinstance(output, np.ndarray) and output.ndim == 1]
        if kind == "label" and answered:  # beside them there may be a list, which ZipMap makes of the scores
            return Outputs(labels(answered[0]))
        return scored(_scores(outputs), self._manifest.classes, keep=kind == "scores")


def _scores(outputs: Sequence[object]) -> NDArray[np.generic]:
    found = [output for output in outputs if isinstance(output, np.ndarray) and output.ndim == 2]
    if not found:
        raise OutputError("the graph has no output of shape (n, k): export it without ZipMap, or with its scores")
    return found[0]


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> OnnxRuntime:  # noqa: ARG001 - the contract's
    """Load the graph of a verified package.

    Raises:
        PackageError: there is none, ONNX Runtime cannot run it, or it has more than one input.
    """
    graph = part(files, ONNX_FILE)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the cores to others
    try:
        # From bytes: a graph cannot name other files of this machine as its weights.
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except _REFUSALS as error:
        raise PackageError(
            f"ONNX Runtime cannot run {ONNX_FILE}; trees want float32 rows, and weights must be inside the "
            f"file: {error}"
        ) from error
    if len(session.get_inputs()) != 1:
        names = ", ".join(found.name for found in session.get_inputs())
        raise PackageError(f"{ONNX_FILE} has the inputs {names}: export it with one, the batch of rows")
    return OnnxRuntime(manifest, session)
