"""Runs a Python function named by a dotted path: `predict_batch(rows)`.

The function gets the whole batch, as `Rows` says; a table comes as a data frame, named tensors as arrays by name. It
returns n labels (`label`), (n, k) scores (`scores`), n numbers (`value`), or arrays by name (`tensors`), as the output
kind says. It is called from one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workers.entry_point import resolve
from workers.errors import OutputError, PackageError
from workers.runtimes.contract import Outputs, by_name, labels, scored, tensors, values
from workers.runtimes.tables import shaper

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Rows
    from workers.runtimes.tables import PandasFrame


class FunctionRuntime:
    """A dotted path as a model.

    Attributes:
        leaves_lock: it computes without Python's lock, as its attribute of that name says.
    """

    def __init__(self, manifest: Manifest, function: Callable[[Rows | PandasFrame], object]) -> None:
        self._manifest = manifest
        self._function = function
        self._shaped = shaper(manifest.input)
        self.leaves_lock = bool(getattr(function, "leaves_lock", False))

    def predict_batch(self, rows: Rows) -> Outputs:
        """Call the function and check the form of what it returns."""
        return answered(self._manifest, self._function(self._shaped(rows)), len(rows))


def answered(manifest: Manifest, raw: object, count: int) -> Outputs:
    """Check the form of what a function returned about so many rows."""
    if manifest.output == "tensors":
        return tensors(raw, manifest.outputs, count)
    if manifest.output == "label":
        return Outputs(labels(raw))
    return scored(raw, manifest.classes) if manifest.output == "scores" else values(raw)


def original(function: Callable[[Any], object], manifest: Manifest) -> Callable[[Any], Outputs]:
    """Return what asks a function itself; floats may be labels or values, so a function has to say which.

    Raises:
        OutputError: when it is asked, and answers floats as labels.
    """

    def asked(rows: Any) -> Outputs:
        raw = function(by_name(rows))
        if manifest.output == "label" and is_float(raw):
            raise OutputError(
                "floats can be labels or values: package it with output='value', or answer whole numbers (astype(int))"
            )
        return answered(manifest, raw, len(rows))

    return asked


def is_float(raw: object) -> bool:
    """Tell whether answers are one float a row."""
    if isinstance(raw, list | tuple):
        return any(isinstance(each, float) for each in raw)
    found = np.asarray(raw)
    return found.dtype.kind == "f" and found.ndim == 1


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
