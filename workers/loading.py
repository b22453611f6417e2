"""Loads model packages: every file is verified before their runtime, or the fastest of several, reads any."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workers import choice as choices
from workers import manifest as manifests
from workers.errors import OutputError, PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from workers.choice import Choice
    from workers.manifest import Manifest
    from workers.runtimes.contract import Runtime

_log = logging.getLogger(__name__)

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
# What an estimator can be converted to -> the module that does it, where models are packaged.
CONVERTERS: Mapping[str, str] = {
    "onnx": "workers.runtimes.onnx_conversion",
    "trees": "workers.runtimes.trees_conversion",
    "linear": "workers.runtimes.linear_conversion",
}
EXAMPLES_FILE = "examples.npy"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A verified package, ready to answer."""

    manifest: Manifest
    runtime: Runtime
    digest: str
    choice: Choice | None = None  # where the package has several runtimes, and the fastest was chosen by measuring


def load_package(
    folder: Path | str,
    *,
    allow_pickle: bool = False,
    digest: str | None = None,
    threads: int = 1,
    sizes: Sequence[int] = choices.SIZES,
) -> LoadedModel:
    """Verify every file of a package, then load it.

    Args:
        folder: the package.
        allow_pickle: load a pickled estimator; needs `digest` too, because whoever can change the pickle can change
            the manifest beside it.
        digest: what `manifest.digest` gave when the package was made, e.g. as the Model record carries it.
        threads: for the arithmetic of one batch; more than one pays off only where workers have cores to spare.
        sizes: of the batches by which a package with several runtimes is measured, rising.

    Raises:
        PackageError: anything does not fit; nothing of the model was loaded. The message says what to do.
    """
    folder = Path(folder)
    found = manifests.digest(folder)
    if digest is not None and found != digest:
        raise PackageError(
            f"{folder} is not the package that was deployed (digest {found}, not {digest}): add the model again"
        )
    manifest = manifests.read(folder)
    manifests.verify(folder, manifest)
    if allow_pickle and digest is None and any(name.endswith(".pickle") for name in manifest.files):
        raise PackageError(f"{folder} holds a pickle: give the digest that was noted when it was packaged, too")
    runtime = runtime_module(manifest.runtime).load(manifest, folder, allow_pickle=allow_pickle, threads=threads)
    if "conversion" not in manifest.options or manifest.runtime in CONVERTERS:
        return LoadedModel(manifest, runtime, found)
    return _fastest(LoadedModel(manifest, runtime, found), folder, threads, sizes)


def runtime_module(runtime: str) -> Any:
    """Import a runtime's module; fulfils `runtimes.contract.RuntimeModule`."""
    if runtime not in RUNTIMES:
        raise PackageError(f"runtime {runtime!r} is unknown: use one of {', '.join(RUNTIMES)}")
    return import_extra(RUNTIMES[runtime], runtime)


def import_extra(module: str, extra: str) -> Any:
    """Import a module that needs an extra of the project.

    Raises:
        PackageError: The extra is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise PackageError(f"the {extra} runtime needs {error.name}: pip install 'skysail[{extra}]'") from error


def apart(original: Runtime, converted: Runtime, rows: NDArray[np.generic]) -> float:
    """Return how far a converted model's answers lie from the original's, see `choice.difference`.

    Raises:
        PackageError: They do not agree, or it does not answer.
    """
    try:
        found = converted.predict_batch(rows)
    except OutputError as error:
        raise PackageError(f"the converted model does not answer ({error}): package it without conversion") from error
    return choices.difference(original.predict_batch(rows), found)


def _fastest(model: LoadedModel, folder: Path, threads: int, sizes: Sequence[int]) -> LoadedModel:
    """Give the model the fastest of its runtimes; one that does not load or agree here is left out."""
    manifest, rows = model.manifest, np.load(folder / EXAMPLES_FILE, allow_pickle=False)
    runtimes = {manifest.runtime: model.runtime}
    for name in manifest.options["conversion"].get("to", ("onnx",)):  # not said before there were others
        try:
            converted = runtime_module(name).load(manifest, folder, allow_pickle=False, threads=threads)
            apart(model.runtime, converted, rows)
            runtimes[name] = converted
        except PackageError as error:
            _log.warning("%s %s does not run under %s: %s", manifest.name, manifest.version, name, error)
    if len(runtimes) == 1:
        return model
    found = choices.measure(runtimes, rows, sizes)
    _log.info("%s %s runs under %s", manifest.name, manifest.version, found)
    runtime = runtimes[found.spans[0][1]] if len(found.spans) == 1 else choices.BySize(found, runtimes)
    return replace(model, runtime=runtime, choice=found)
