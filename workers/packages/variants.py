"""The runtimes that a model can run under or be converted to. A converted form counts only if its answers agree."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple, Protocol

from workers.entry_point import imported
from workers.errors import PackageError, refusing
from workers.extras import EXTRAS, install
from workers.imports import library
from workers.packages import autotune as choices
from workers.packages.sealed import contents
from workers.runtimes.contract import own

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.manifest_form import NodeDocument
    from workers.runtimes.contract import Outputs, Rows, Runtime

# Runtime name -> its module. Imported only when a package asks for it, so that a worker loads torch for torch models
# alone: the only place in the project that imports by name on demand.
RUNTIMES: Mapping[str, str] = {
    "sklearn": "workers.runtimes.sklearn",
    "torch": "workers.runtimes.torch",
    "function": "workers.runtimes.function",
    "onnx": "workers.runtimes.onnx",
    "trees": "workers.runtimes.trees",
    "linear": "workers.runtimes.linear",
    "stages": "workers.runtimes.stages.plan",
    "container": "workers.runtimes.container",
    "xgboost": "workers.runtimes.xgboost",
    "lightgbm": "workers.runtimes.lightgbm",
}
# Runtimes from outside: entry points of installed packages, beside those that are named by a module's path.
GROUP = "skysail.runtimes"
# What an estimator can be converted to -> the module that does it.
CONVERTERS: Mapping[str, str] = {
    "onnx": "workers.runtimes.onnx_conversion",
    "trees": "workers.runtimes.trees_conversion",
    "linear": "workers.runtimes.linear_conversion",
    "hummingbird": "workers.runtimes.hummingbird",
}
# Forms that are made when a package is loaded and not stored. The first are made unasked, as they need no library.
AT_LOAD = ("trees", "linear")
ON_REQUEST = ("hummingbird",)
STAGES = "stages"  # a package of steps, which is no second form of an estimator that is packaged whole
_STEPS = "workers.runtimes.stages.conversion"
EXAMPLES_FILE = "examples.npy"


class PipelineSteps(Protocol):
    """A pipeline in steps: their files by name, and its graph."""

    files: Mapping[str, bytes]

    def documents(self) -> list[NodeDocument]:
        """Return the graph as a manifest holds it."""
        ...


class Form(NamedTuple):
    """What an estimator was converted to.

    Attributes:
        runtime: that runs it.
        difference: from the original's answers to the example rows, see `choice.difference`.
        file: that holds it; empty = none.
    """

    runtime: Runtime
    difference: float
    file: str = ""


def runtime_module(runtime: str) -> ModuleType:
    """Import a runtime's module; fulfils `runtimes.contract.RuntimeModule`."""
    require_known(runtime)
    if runtime in RUNTIMES:
        return _imported(RUNTIMES[runtime], runtime)
    module = imported(runtime) if "." in runtime else _entry(runtime)
    if not callable(getattr(module, "load", None)):
        raise PackageError(f"runtime {runtime!r} has no function `load`: see docs/extending.md")
    return module


def require_known(runtime: str) -> None:
    """Refuse the name of a runtime that there cannot be; nothing is imported.

    Raises:
        PackageError: it is none of Skysail's, no path of a module, and no entry point.
    """
    if runtime not in RUNTIMES and "." not in runtime and not entry_points(group=GROUP, name=runtime):
        raise PackageError(
            f"runtime {runtime!r} is unknown: use one of {', '.join(RUNTIMES)}, a module as my_pkg.my_runtime, or an"
            f" entry point of the group {GROUP}"
        )


def _entry(runtime: str) -> ModuleType:
    with refusing(f"runtime {runtime!r}, the entry point of an installed package, cannot be imported"):
        module: ModuleType = next(iter(entry_points(group=GROUP, name=runtime))).load()
    return module


def compiled(
    name: str, manifest: Manifest, estimator: object, dtype: np.dtype[np.generic], threads: int = 1
) -> Runtime:
    """Convert an estimator to one of the forms that are made at load, in memory.

    Args:
        name: of its runtime.
        manifest: of the estimator.
        estimator: fitted.
        dtype: of the rows that will come.
        threads: for the arithmetic of one batch, if the form can use more than one.

    Raises:
        PackageError: it cannot be converted so.
    """
    if name not in (*AT_LOAD, *ON_REQUEST):
        raise PackageError(f"models cannot be converted to {name!r} when they are loaded")
    with refusing(f"it is not converted to {name}"):
        runtime: Runtime = _imported(CONVERTERS[name], name).runtime(manifest, estimator, dtype, threads)
    return runtime


def stored(
    name: str, folder: Path, manifest: Manifest, estimator: object, expected: Outputs, rows: NDArray[np.generic]
) -> Form:
    """Convert an estimator to a runtime's form, in a file that is not left behind if it does not agree.

    Args:
        name: of the runtime.
        folder: for the file.
        manifest: of the estimator.
        estimator: fitted.
        expected: the original's answers.
        rows: to these.

    Raises:
        PackageError: it cannot be converted so, or the converted one answers otherwise.
    """
    with refusing(f"it is not converted to {name}"):
        file = _imported(CONVERTERS[name], name).convert(estimator, folder, rows)
    alone = replace(manifest, files={file: ""})
    try:
        with refusing(f"what it was converted to, {name}, cannot be loaded"):
            runtime = runtime_module(name).load(alone, contents(folder, [file]), allow_pickle=False, threads=1)
        return Form(runtime, apart(expected, runtime, rows), file)
    except PackageError:
        (folder / file).unlink()
        raise


def apart(expected: Outputs, form: Runtime, rows: Rows) -> float:
    """Return how far a converted model's answers to rows lie from those expected, see `choice.difference`.

    Raises:
        PackageError: They do not agree, or it does not answer.
    """
    try:
        found = answers(form, rows)
    except PackageError as error:
        raise PackageError(f"the converted model {error}: package it without conversion") from error
    return choices.difference(expected, found)


def answers(runtime: Runtime, rows: Rows) -> Outputs:
    """Return a model's answers.

    Raises:
        PackageError: it has none, whatever the reason.
    """
    with refusing("does not answer"):
        return runtime.predict_batch(own(rows))


def steps_of(pipeline: object, dtype: np.dtype[np.generic] | None) -> PipelineSteps:
    """Return the steps and the graph of a pipeline.

    Args:
        pipeline: fitted.
        dtype: of its rows; None = texts.

    Raises:
        PackageError: it has a step that cannot be read so.
    """
    found: PipelineSteps = _imported(_STEPS, STAGES).ConvertedSteps(pipeline, dtype)
    return found


def _imported(module: str, runtime: str) -> ModuleType:
    """Import the module of a runtime, which may need an extra of its name.

    Raises:
        PackageError: what it needs is not installed.
    """
    try:
        return library(module)
    except ModuleNotFoundError as error:
        extra = runtime if runtime in EXTRAS.values() else EXTRAS.get(error.name or "", "worker")
        raise PackageError(f"the {runtime} runtime needs {error.name}: {install(extra)}") from error
