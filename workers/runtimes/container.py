"""Runs a class named by a dotted path: `Model(folder)`, then `model.predict_batch(rows)`, as Clipper's containers did.

The class gets a folder with the files of its package, which stays as long as the model is loaded: copies of what has
been verified. `predict_batch` gets the whole batch, and answers as a function does (`function`). One thread at a time
calls it.
"""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from weakref import finalize

from workers.entry_point import resolve
from workers.errors import PackageError
from workers.runtimes.function import FunctionRuntime

if TYPE_CHECKING:
    from workers.manifest import Manifest
    from workers.runtimes.contract import Files


class ContainerRuntime(FunctionRuntime):
    """An object of a stranger's class as a model."""

    def __init__(self, manifest: Manifest, model: Any) -> None:
        super().__init__(manifest, model.predict_batch)
        self.leaves_lock = bool(getattr(model, "leaves_lock", False))


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> ContainerRuntime:  # noqa: ARG001 - the contract's
    """Import the class, write its files into a folder of their own, and make the model.

    Raises:
        PackageError: it cannot be imported, or is no class with `predict_batch`.
    """
    path = str(manifest.options.get("model", ""))
    maker = resolve(path)
    if not isinstance(maker, type) or not callable(getattr(maker, "predict_batch", None)):
        raise PackageError(f"{path!r} is no class with a method predict_batch: name one")
    folder = Path(mkdtemp(prefix="skysail-"))
    try:
        for name in manifest.files:
            (folder / name).write_bytes(files[name])
        runtime = ContainerRuntime(manifest, maker(folder))
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    finalize(runtime, rmtree, folder, ignore_errors=True)  # when the model is unloaded, or the process ends
    return runtime
