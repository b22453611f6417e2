"""Finds other forms of an estimator that agree with it when it is packaged: an ONNX graph, or its numbers as arrays.

They are added to the package, or made again when it is loaded.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workers.errors import PackageError
from workers.packages import autotune as choices
from workers.packages.sealed import contents
from workers.packages.variants import (
    AT_LOAD,
    CONVERTERS,
    EXAMPLES_FILE,
    ON_REQUEST,
    STAGES,
    Form,
    answers,
    apart,
    compiled,
    runtime_module,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.manifest_form import Conversion
    from workers.runtimes.contract import Rows, Runtime
    from workers.runtimes.tables import PandasFrame

_log = logging.getLogger(__name__)
CONVERSIONS = ("load", "none", *CONVERTERS, "auto", STAGES)
_STORED = tuple(name for name in CONVERTERS if name not in ON_REQUEST)


def converted(path: Path, manifest: Manifest, estimator: object, sample: Rows | PandasFrame, convert: str) -> Manifest:
    """Add other forms of the estimator, checked for agreement, and the rows that this was checked with.

    The times of each form for batches of these rows go into the manifest, for people to read.

    Raises:
        PackageError: there is no such conversion, or none of those asked for works.
    """
    if convert not in CONVERSIONS:
        raise PackageError(f"conversion {convert!r} is unknown: use one of {', '.join(CONVERSIONS)}")
    rows, original = _examples(manifest, sample), _original(path, manifest)
    expected = answers(original, rows)
    forms, refused = {}, {}
    for name in _STORED if convert == "auto" else (convert,):
        try:
            forms[name] = stored(name, path, manifest, estimator, expected, rows)
        except PackageError as error:
            refused[name] = str(error)
    if not forms:
        raise PackageError("; ".join(refused.values()))
    found = choices.measure({manifest.runtime: original} | {name: form.runtime for name, form in forms.items()}, rows)
    more: Conversion = {"refused": refused, "batch_us": found.batch_us}
    return replace(
        _noted(path, manifest, forms, rows, more), runtime=manifest.runtime if convert == "auto" else convert
    )


def convertible(
    path: Path, manifest: Manifest, estimator: object, sample: Rows | PandasFrame, convert: str
) -> Manifest:
    """Note the forms that are made when the package is loaded, and keep the rows to check them with.

    An estimator without a conversion, or without tensors as input, stays as it is, unless a form was asked for.

    Raises:
        PackageError: the form that was asked for, one of `ON_REQUEST`, cannot be made, or answers otherwise.
    """
    if convert == "load" and not isinstance(sample, np.ndarray):
        return manifest
    rows, found = _examples(manifest, sample), {}
    for name in AT_LOAD:
        with suppress(PackageError):  # it is neither of trees nor linear
            found[name] = compiled(name, manifest, estimator, rows.dtype)
    if convert in ON_REQUEST:
        found[convert] = compiled(convert, manifest, estimator, rows.dtype)
    if not found:
        return manifest
    original, expected, forms = _original(path, manifest), None, {}
    for name, runtime in found.items():
        try:
            expected = answers(original, rows) if expected is None else expected
            forms[name] = Form(runtime, apart(expected, runtime, rows))
        except PackageError as error:
            if name == convert:
                raise
            _log.warning("%s %s will not be converted to %s: %s", manifest.name, manifest.version, name, error)
    return _noted(path, manifest, forms, rows, {"at": "load"}) if forms else manifest


def _examples(manifest: Manifest, sample: Rows | PandasFrame) -> NDArray[np.generic]:
    if not isinstance(sample, np.ndarray):
        raise PackageError("only models of tensors can be converted: package this one without conversion")
    return choices.examples(sample, allow_nan=manifest.input.allow_nan)


def _original(path: Path, manifest: Manifest) -> Runtime:
    files = contents(path, manifest.files)
    loaded: Runtime = runtime_module(manifest.runtime).load(manifest, files, allow_pickle=True, threads=1)
    return loaded


def _noted(
    path: Path, manifest: Manifest, forms: Mapping[str, Form], rows: NDArray[np.generic], more: Conversion
) -> Manifest:
    """Keep the rows, and write down what was found."""
    np.save(path / EXAMPLES_FILE, rows, allow_pickle=False)
    conversion: Conversion = {
        "from": manifest.runtime,
        "to": list(forms),
        "rows": len(rows),
        "difference": max(form.difference for form in forms.values()),
        **more,
    }
    files = [*filter(None, (form.file for form in forms.values())), EXAMPLES_FILE]
    return replace(
        manifest,
        files={**manifest.files, **dict.fromkeys(files, "")},
        options={**manifest.options, "conversion": conversion},
    )
