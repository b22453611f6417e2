"""What a model can be run under, and converted to: another form of it counts only where its answers agree."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from workers import choice as choices
from workers.errors import OutputError, PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Runtime

# Runtime name -> its module. Imported only when a package asks for it, so that a worker loads torch for torch models
# alone: the only place in the project that imports by name on demand.
RUNTIMES: Mapping[str, str] = {
    "sklearn": "workers.runtimes.sklearn",
    "torch": "workers.runtimes.torch",
    "function": "workers.runtimes.function",
    "onnx": "workers.runtimes.onnx",
    "trees": "workers.runtimes.trees",
    "linear": "workers.runtimes.linear",
}
# What an estimator can be converted to -> the module that does it.
CONVERTERS: Mapping[str, str] = {
    "onnx": "workers.runtimes.onnx_conversion",
    "trees": "workers.runtimes.trees_conversion",
    "linear": "workers.runtimes.linear_conversion",
}
# What takes milliseconds and no library of its own, so that it need not be kept: skl2onnx takes seconds.
AT_LOAD = ("trees", "linear")
EXAMPLES_FILE = "examples.npy"


class Form(NamedTuple):
    """What an estimator was converted to.

    Attributes:
        file: that holds it.
        runtime: that has read it.
        difference: from the original's answers to the example rows, see `choice.difference`.
    """

    file: str
    runtime: Runtime
    difference: float


def runtime_module(runtime: str) -> Any:
    """Import a runtime's module; fulfils `runtimes.contract.RuntimeModule`."""
    if runtime not in RUNTIMES:
        raise PackageError(f"runtime {runtime!r} is unknown: use one of {', '.join(RUNTIMES)}")
    return _import_extra(RUNTIMES[runtime], runtime)


def converted(
    name: str, folder: Path, manifest: Manifest, estimator: Any, original: Runtime, rows: NDArray[Any], threads: int = 1
) -> Form:
    """Convert an estimator to a runtime's form, in a file that is not left behind if it does not agree.

    Args:
        name: of the runtime.
        folder: for the file.
        manifest: of the estimator.
        estimator: fitted.
        original: what the form is held against.
        rows: by which.
        threads: for the arithmetic of one batch.

    Raises:
        PackageError: it cannot be converted so, or the converted one answers otherwise.
    """
    file = _import_extra(CONVERTERS[name], name).convert(estimator, folder, rows)
    alone = replace(manifest, files={file: ""})
    try:
        runtime = runtime_module(name).load(alone, folder, allow_pickle=False, threads=threads)
        return Form(file, runtime, apart(original, runtime, rows))
    except PackageError:
        (folder / file).unlink()
        raise


def apart(original: Runtime, form: Runtime, rows: NDArray[Any]) -> float:
    """Return how far a converted model's answers lie from the original's, see `choice.difference`.

    Raises:
        PackageError: They do not agree, or it does not answer.
    """
    try:
        found = form.predict_batch(rows)
    except OutputError as error:
        raise PackageError(f"the converted model does not answer ({error}): package it without conversion") from error
    return choices.difference(original.predict_batch(rows), found)


def _import_extra(module: str, extra: str) -> Any:
    """Import a module that needs an extra of the project.

    Raises:
        PackageError: The extra is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise PackageError(f"the {extra} runtime needs {error.name}: pip install 'skysail[{extra}]'") from error
