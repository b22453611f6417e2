"""Runs a Python function named by a dotted path: `predict_batch(rows)`.

The function gets the whole batch, as `Rows` says; a table comes as a data frame. It returns n labels (`label`), (n, k)
scores (`scores`), or n numbers (`value`), as the output kind says. It is called from one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers.entry_point import resolve
from workers.errors import PackageError
from workers.runtimes.contract import Outputs, labels, scored, values
from workers.runtimes.tables import shaper

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Rows
    from workers.runtimes.tables import Frame


class FunctionRuntime:
    """A dotted path as a model.

    Attributes:
        leaves_lock: it computes without Python's lock, as its attribute of that name says.
    """

    def __init__(self, manifest: Manifest, function: Callable[[Rows | Frame], object]) -> None:
        self._manifest = manifest
        self._function = function
        self._shaped = shaper(manifest.input)
        self.leaves_lock = bool(getattr(function, "leaves_lock", False))

    def predict_batch(self, rows: Rows) -> Outputs:
        """Call the function and check the form of what it returns."""
        raw = self._function(self._shaped(rows))
        if self._manifest.output == "label":
            return Outputs(labels(raw))
        if self._manifest.output == "scores":
            return scored(raw, self._manifest.classes)
        return values(raw)


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> FunctionRuntime:  # noqa: ARG001 - the contract's
    """Import the function; the package holds nothing but the manifest.

    Raises:
        PackageError: it cannot be imported, or is a class: calling that with rows makes an object, not answers.
    """
    path = str(manifest.options.get("function", ""))
    function = resolve(path)
    if isinstance(function, type):
        raise PackageError(f"{path!r} is a class: name a function, or an object that can be called")
    return FunctionRuntime(manifest, function)
