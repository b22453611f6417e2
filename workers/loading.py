"""Loads model packages: every file is verified before their runtime, or the faster one of two, reads any."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workers import choice as choices
from workers import manifest as manifests
from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
}
EXAMPLES_FILE = "examples.npy"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A verified package, ready to answer."""

    manifest: Manifest
    runtime: Runtime
    digest: str
    choice: Choice | None = None  # where the package has two runtimes, and the faster was chosen by measuring


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
        sizes: of the batches by which a package with two runtimes is measured, rising.

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
    if "conversion" not in manifest.options or manifest.runtime == "onnx":
        return LoadedModel(manifest, runtime, found)
    return _faster(LoadedModel(manifest, runtime, found), folder, threads, sizes)


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


def _faster(model: LoadedModel, folder: Path, threads: int, sizes: Sequence[int]) -> LoadedModel:
    """Give the model the faster of its two runtimes; the original one where the other does not load or agree here."""
    manifest, rows = model.manifest, np.load(folder / EXAMPLES_FILE, allow_pickle=False)
    try:
        converted = runtime_module("onnx").load(manifest, folder, allow_pickle=False, threads=threads)
        runtimes = {manifest.runtime: model.runtime, "onnx": converted}
        choices.difference(*(runtime.predict_batch(rows) for runtime in runtimes.values()))
    except PackageError as error:
        _log.warning("%s %s runs under %s only: %s", manifest.name, manifest.version, manifest.runtime, error)
        return model
    found = choices.measure(runtimes, rows, sizes)
    _log.info("%s %s runs under %s", manifest.name, manifest.version, found)
    return replace(model, runtime=runtimes[found.runtime], choice=found)
