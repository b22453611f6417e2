"""Runs an ONNX model with ONNX Runtime, on the CPU: exported by whatever trained it, or converted from scikit-learn.

The graph has one input, the whole batch (n, *shape), or those that the signature names. If the package answers labels,
its outputs are (n, k) numbers as scores and n labels; if it answers values, the first output; if tensors, those of
these names. Its operators are compiled. A single row costs microseconds, where scikit-learn spends milliseconds in
Python before the first row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnxruntime

from workers.errors import OutputError, PackageError
from workers.runtimes.contract import Outputs, by_name, labels, part, scored, tensors, values
from workers.runtimes.function import is_float

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

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
        name = cast("Mapping[str, str]", manifest.options).get("graph_output")
        self._wanted = [form.name for form in manifest.outputs] or (None if name is None else [name])

    def predict_batch(self, rows: Rows) -> Outputs:
        """Run the graph once for the whole batch."""
        outputs: list[object] = self._session.run(self._wanted, _fed(self._session, rows))
        kind = self._manifest.output
        if kind == "tensors":
            return tensors(outputs, self._manifest.outputs, len(rows))
        if kind == "value":
            return values(outputs[0])
        answered = _of(outputs, 1)
        if kind == "label" and answered:  # beside them there may be a list, which ZipMap makes of the scores
            return Outputs(labels(answered[0]))
        return scored(_scores(outputs), self._manifest.classes, keep=kind == "scores")


def _fed(session: onnxruntime.InferenceSession, rows: Any) -> Any:
    """Return what a graph is given: one batch, or arrays by name."""
    found = by_name(rows)
    return found if isinstance(found, dict) else {session.get_inputs()[0].name: found}


def _of(outputs: Sequence[object], dimensions: int) -> list[NDArray[np.generic]]:
    return [output for output in outputs if isinstance(output, np.ndarray) and output.ndim == dimensions]


def _scores(outputs: Sequence[object]) -> NDArray[np.generic]:
    found = _of(outputs, 2)
    if not found:
        raise OutputError("the graph has no output of shape (n, k): export it without ZipMap, or with its scores")
    return found[0]


def original(graph: bytes, manifest: Manifest) -> Callable[[Any], Outputs]:
    """Return what asks a graph itself: where it has labels beside its scores, these are its answer.

    Raises:
        PackageError: ONNX Runtime cannot run it; when it is asked, several of its outputs could be meant.
    """
    session = _session(graph, 1)
    names = [output.name for output in session.get_outputs()]
    wanted = cast("Mapping[str, str]", manifest.options).get("graph_output")
    if wanted is not None and wanted not in names:
        raise PackageError(f"the graph has no output {wanted!r}: graph_output is one of {', '.join(names)}")

    first = session.get_inputs()[0]

    def run(rows: Any) -> list[object]:
        found: list[object] = session.run(None if wanted is None else [wanted], _fed(session, rows))
        return found

    def asked(rows: Any) -> Outputs:
        one_by_one = first.shape[:1] == [1]
        parts = [run(row) for row in np.split(rows, len(rows))] if one_by_one else [run(rows)]
        are_arrays = [isinstance(output, np.ndarray) for output in parts[0]]
        columns_of = zip(are_arrays, zip(*parts, strict=True), strict=True)
        outputs = [np.concatenate(each) if is_array else each[0] for is_array, each in columns_of]
        if manifest.output == "tensors":
            return tensors(dict(zip(names, outputs, strict=True)), manifest.outputs, len(rows))
        singles, columns = _of(outputs, 1), _of(outputs, 2)
        meant = {"value": outputs, "label": singles or columns, "scores": columns}[manifest.output]
        if len(meant) > 1:
            raise PackageError(
                f"several outputs of the graph can be meant, of {', '.join(names)}: name one by graph_output"
            )
        if manifest.output == "value":
            return values(outputs[0])
        if manifest.output == "label" and singles and is_float(singles[0]):
            raise PackageError("the graph answers floats, which can be labels or values: say output='value'")
        scores = scored(columns[0], manifest.classes) if len(columns) == 1 else None
        if len(singles) == 1 and not is_float(singles[0]):
            return Outputs(labels(singles[0]), None if scores is None else scores.scores)
        return scored(_scores(outputs), manifest.classes)

    return asked


def answered_by(graph: Path, names: Sequence[str], rows: Any) -> dict[str, object]:
    """Return what a graph itself answers, of the outputs that are named or of all."""
    session = _session(graph.read_bytes(), 1)
    wanted = [*names] or [output.name for output in session.get_outputs()]
    return dict(zip(wanted, session.run(wanted, _fed(session, rows)), strict=True))


def fixed_batch(graph: bytes) -> int:
    """Return the only size of batches that a graph takes; 0 = any."""
    shape = _session(graph, 1).get_inputs()[0].shape
    return shape[0] if shape and isinstance(shape[0], int) else 0


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> OnnxRuntime:  # noqa: ARG001 - the contract's
    """Load the graph of a verified package.

    Raises:
        PackageError: there is none, ONNX Runtime cannot run it, or it has more than one input.
    """
    session = _session(part(files, ONNX_FILE), threads)
    names = [found.name for found in session.get_inputs()]
    given = [form.name for form in manifest.input.inputs]
    if {*names} != {*given} if given else len(names) != 1:
        raise PackageError(f"{ONNX_FILE} has the inputs {', '.join(names)}: give the sample as arrays by these names")
    return OnnxRuntime(manifest, session)


def _session(graph: bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the cores to others
    try:
        # From bytes: a graph cannot name other files of this machine as its weights.
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except _REFUSALS as error:
        raise PackageError(
            f"ONNX Runtime cannot run {ONNX_FILE}; trees want float32 rows, and weights must be inside the "
            f"file: {error}"
        ) from error
