"""Loads model packages. Every file is read once and verified before a runtime, or the fastest of several, gets it."""

from __future__ import annotations

import io
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.lib import format as npy

from schemas.records import Tensor
from workers import manifest as manifests
from workers.entry_point import require_within
from workers.errors import PackageError, WorkerError, refusing
from workers.packages import autotune as choices
from workers.packages import warm_up
from workers.packages.sealed import Opened, contents, sealed, verify
from workers.packages.signing.signed import require_signed
from workers.packages.variants import CONVERTERS, EXAMPLES_FILE, answers, apart, compiled, require_known, runtime_module
from workers.runtimes.contract import part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input
    from workers.manifest import Manifest, Pinned
    from workers.packages.autotune import Choice
    from workers.packages.disk_cache import DiskCache
    from workers.runtimes.contract import Files, Runtime

_log = logging.getLogger(__name__)

NAMING: Final = ("function", "architecture", "model")  # options of a manifest that name code


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A verified package, ready to answer."""

    manifest: Manifest
    runtime: Runtime
    digest: str
    choice: Choice | None = None  # if it has several forms, of which the fastest was chosen by measuring
    warm_up: tuple[Input, ...] = ()  # rows to be answered before it takes queries


def checked(folder: Path, *, code: Sequence[str] = (), keys: str = "", version: str = "") -> Pinned:
    """Return a package's manifest and digest after all checks that run no code of it; arguments as of `load_package`.

    Raises:
        PackageError: loading would refuse it.
    """
    found = manifests.pinned(folder)
    _require_trusted(folder, found, code, keys, version)
    require_known(found.manifest.runtime)
    verify(folder, found.manifest)
    if warm_up.FILE in found.manifest.files:
        warm_up.read(contents(folder, [warm_up.FILE]))
    if _has_forms(found.manifest):
        names = [EXAMPLES_FILE] if EXAMPLES_FILE in found.manifest.files else []
        stored_examples(found.manifest, contents(folder, names))
    return found


def load_package(
    folder: Path | str,
    *,
    allow_pickle: bool = False,
    digest: str | None = None,
    threads: int = 1,
    sizes: Sequence[int] = choices.SIZES,
    code: Sequence[str] = (),
    cache: DiskCache | None = None,
    root: str = "",
    keys: str = "",
    version: str = "",
) -> LoadedModel:
    """Verify every file of a package, then load it; its `runtime.predict_batch(rows)` answers a batch.

    Args:
        folder: the package.
        allow_pickle: load a pickled estimator; needs `digest` too, because a person who can change the pickle can
            change the manifest beside it.
        digest: what `manifest.digest` gave when the package was made, e.g. as the Model record carries it.
        threads: for the arithmetic of one batch; more than one pays off only where workers have cores to spare.
        sizes: of the batches by which several forms of one model are measured, rising.
        code: modules and packages that may be named as a function or an architecture; none = any, but with `keys` none.
        cache: has files of packages on a disk of this machine, and keeps those that are read; None = there is none.
        root: the folder that packages lie in, links resolved; empty = any.
        keys: the folder of public keys by one of which it has to be signed; empty = it need not be.
        version: MODEL@VERSION that a signed package has to be; empty = any.

    Raises:
        PackageError: anything does not fit, whatever it is; nothing of the model was loaded. The message says what to
            do.
    """
    folder = Path(folder)
    if not manifests.lies_below(root, folder):
        raise PackageError(f"{folder} is not below {root}, where packages lie here (`worker.packages`): copy it there")
    pinned = manifests.pinned(folder)
    manifest, found = pinned
    if digest is not None and found != digest:
        raise PackageError(
            f"{folder} is not the package that was deployed (digest {found}, not {digest}): add the model again"
        )
    if allow_pickle and digest is None and any(name.endswith(".pickle") for name in manifest.files):
        raise PackageError(f"{folder} holds a pickle: also give the digest that was noted when it was packaged")
    _require_trusted(folder, pinned, code, keys, version)
    with refusing(f"{folder} cannot be loaded", but=(WorkerError, MemoryError)):
        module = runtime_module(manifest.runtime)
        reads_late = getattr(module, "READS_WHAT_IT_LACKS", False)
        files: Files = Opened(folder, manifest, cache) if reads_late else sealed(folder, manifest, cache)
        runtime = module.load(manifest, files, allow_pickle=allow_pickle, threads=threads)
        model = LoadedModel(manifest, runtime, found, warm_up=_kept(manifest, files))
        return _fastest(model, files, threads, sizes) if _has_forms(manifest) else model


def code_of(manifest: Manifest) -> Iterator[str]:
    """Yield the code that a package names by a path."""
    told: Sequence[Mapping[str, Any]] = (manifest.options, manifest.options.get("trunk", {}))
    yield from (options[named] for named in NAMING for options in told if named in options)
    if "." in manifest.runtime:
        yield manifest.runtime


def _require_trusted(folder: Path, found: Pinned, code: Sequence[str], keys: str, version: str) -> None:
    """Refuse a package that is not signed where it has to be, or names code that may not be named."""
    if keys:
        require_signed(folder, found, keys, version)
    for path in code_of(found.manifest):
        require_within(path, code, is_strict=bool(keys))


def _kept(manifest: Manifest, files: Files) -> tuple[Input, ...]:
    """Return the rows that a package keeps to warm its model up; those that its forms are compared on, if no others."""
    rows = warm_up.read(files)
    if rows or EXAMPLES_FILE not in manifest.files:
        return rows
    return tuple([Tensor.of(row) for row in stored_examples(manifest, files)[: warm_up.MOST_ROWS]])


def _has_forms(manifest: Manifest) -> bool:
    """Tell whether a package has several forms of one model, of which loading picks the fastest."""
    return "conversion" in manifest.options and manifest.runtime not in CONVERTERS


def _fastest(model: LoadedModel, files: Files, threads: int, sizes: Sequence[int]) -> LoadedModel:
    """Give the model its fastest form for each size of a batch; a form that does not load here is left out."""
    manifest, rows = model.manifest, stored_examples(model.manifest, files)
    runtimes = {manifest.runtime: model.runtime}
    for name in manifest.options["conversion"].get("to", ("onnx",)):  # older manifests do not say it
        try:
            with refusing("it does not load or answer"):
                form = _form(name, model, files, rows.dtype, threads)
                apart(answers(model.runtime, rows), form, rows)
            runtimes[name] = form
        except PackageError as error:
            _log.warning("%s %s does not run under %s: %s", manifest.name, manifest.version, name, error)
    if len(runtimes) == 1:
        return model
    found = choices.measure(runtimes, rows, sizes)
    _log.info("%s %s runs under %s", manifest.name, manifest.version, found)
    runtime = runtimes[found.spans[0][1]] if len(found.spans) == 1 else choices.BySize(found, runtimes)
    return replace(model, runtime=runtime, choice=found)


def _form(name: str, model: LoadedModel, files: Files, dtype: np.dtype[np.generic], threads: int) -> Runtime:
    """Convert the model, or load what it was converted to when it was packaged."""
    if model.manifest.options["conversion"].get("at") == "load":
        return compiled(name, model.manifest, getattr(model.runtime, "estimator", None), dtype, threads)
    stored: Runtime = runtime_module(name).load(model.manifest, files, allow_pickle=False, threads=threads)
    return stored


def stored_examples(manifest: Manifest, files: Files) -> NDArray[np.generic]:
    """Return the example rows of a package.

    The header's count of rows reserves no memory: there are as many rows as there are bytes of them.

    Raises:
        PackageError: there are none, or they are not rows of this model.
    """
    with refusing(f"{EXAMPLES_FILE} holds no rows: package the model again"):
        rows = _array(part(files, EXAMPLES_FILE))
    if (
        not rows.ndim
        or not len(rows)
        or (rows.dtype.name, rows.shape[1:]) != (manifest.input.dtype, manifest.input.shape)
    ):
        raise PackageError(
            f"{EXAMPLES_FILE} holds {rows.dtype}{[*rows.shape]}, where the model takes rows of {manifest.input}: "
            "package the model again"
        )
    return rows.copy()  # writable, as torch requires


def _array(content: bytes) -> NDArray[np.generic]:
    """Read what `np.save` wrote; of objects there are none, as those are a pickle."""
    file = io.BytesIO(content)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("it is of another version of the format")
    shape, is_fortran, dtype = npy.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("it holds objects")
    rows = np.frombuffer(content, dtype=dtype, offset=file.tell())
    return rows.reshape(shape[::-1]).T if is_fortran else rows.reshape(shape)
