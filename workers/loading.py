"""Loads model packages: every file is verified before their runtime, or the fastest of several, reads any."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workers import choice as choices
from workers import manifest as manifests
from workers.errors import PackageError, WorkerError
from workers.forms import CONVERTERS, EXAMPLES_FILE, answers, apart, compiled, runtime_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from workers.choice import Choice
    from workers.manifest import Manifest
    from workers.runtimes.contract import Runtime

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A verified package, ready to answer."""

    manifest: Manifest
    runtime: Runtime
    digest: str
    choice: Choice | None = None  # where there are several forms of it, and the fastest was chosen by measuring


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
        sizes: of the batches by which several forms of one model are measured, rising.

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
    module = runtime_module(manifest.runtime)
    try:
        runtime = module.load(manifest, folder, allow_pickle=allow_pickle, threads=threads)
    except (WorkerError, MemoryError):
        raise
    except Exception as error:  # of a library, or of code that the package names
        raise PackageError(f"{folder} cannot be loaded: {type(error).__name__}: {error}") from error
    conversion = manifest.options.get("conversion")
    if conversion is None or manifest.runtime in CONVERTERS:
        return LoadedModel(manifest, runtime, found)
    rows = np.load(folder / EXAMPLES_FILE, allow_pickle=False)
    load = _converted if conversion.get("at") == "load" else _stored
    forms = load(manifest, folder, runtime, rows, threads)
    return _fastest(LoadedModel(manifest, runtime, found), {manifest.runtime: runtime} | forms, rows, sizes)


def _stored(
    manifest: Manifest, folder: Path, original: Runtime, rows: NDArray[Any], threads: int
) -> dict[str, Runtime]:
    """Load the forms that the package holds."""

    def load(name: str) -> Runtime:
        loaded: Runtime = runtime_module(name).load(manifest, folder, allow_pickle=False, threads=threads)
        return loaded

    names = manifest.options["conversion"].get("to", ("onnx",))  # not said before there were others
    return _agreeing(manifest, names, load, original, rows)


def _converted(
    manifest: Manifest, _folder: Path, original: Any, rows: NDArray[Any], _threads: int
) -> dict[str, Runtime]:
    """Convert the estimator to what agreed when it was packaged."""

    def convert(name: str) -> Runtime:
        return compiled(name, manifest, original.estimator, rows.dtype)

    return _agreeing(manifest, manifest.options["conversion"]["to"], convert, original, rows)


def _agreeing(
    manifest: Manifest, names: Sequence[str], make: Callable[[str], Runtime], original: Runtime, rows: NDArray[Any]
) -> dict[str, Runtime]:
    """Make the forms named; one that cannot be made or does not agree here is left out."""
    forms = {}
    for name in names:
        try:
            form = make(name)
            apart(answers(original, rows), form, rows)
            forms[name] = form
        except PackageError as error:
            _log.warning("%s %s does not run under %s: %s", manifest.name, manifest.version, name, error)
    return forms


def _fastest(
    model: LoadedModel, runtimes: Mapping[str, Runtime], rows: NDArray[Any], sizes: Sequence[int]
) -> LoadedModel:
    """Give the model the fastest of its runtimes, at each size of a batch."""
    if len(runtimes) == 1:
        return model
    found = choices.measure(runtimes, rows, sizes)
    _log.info("%s %s runs under %s", model.manifest.name, model.manifest.version, found)
    runtime = runtimes[found.spans[0][1]] if len(found.spans) == 1 else choices.BySize(found, runtimes)
    return replace(model, runtime=runtime, choice=found)
