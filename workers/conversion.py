"""Adds other forms of an estimator to its package, each agreeing with it: an ONNX graph, or its numbers as arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from workers import choice as choices
from workers.errors import PackageError
from workers.forms import AT_LOAD, CONVERTERS, EXAMPLES_FILE, Form, runtime_module
from workers.forms import converted as converted_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Rows, Runtime

CONVERSIONS = ("load", "none", *CONVERTERS, "auto")


def converted(path: Path, manifest: Manifest, estimator: Any, sample: Rows, convert: str) -> Manifest:
    """Add the estimator in other forms, their agreement checked, and the rows by which that was done.

    What each took for batches of these rows here goes into the manifest, for people to read.

    Raises:
        PackageError: there is no such conversion, or none of those asked for works.
    """
    if convert not in CONVERSIONS:
        raise PackageError(f"conversion {convert!r} is unknown: use one of {', '.join(CONVERSIONS)}")
    if not isinstance(sample, np.ndarray):
        raise PackageError("only models of tensors can be converted: package this one without conversion")
    rows = choices.examples(sample)
    original = _original(path, manifest)
    forms, refused = _forms(CONVERTERS if convert == "auto" else (convert,), path, manifest, estimator, original, rows)
    if not forms:
        raise PackageError("; ".join(refused.values()))
    found = choices.measure({manifest.runtime: original} | {name: form.runtime for name, form in forms.items()}, rows)
    return replace(
        _noted(path, manifest, forms, refused, rows, {"batch_us": found.batch_us}),
        runtime=manifest.runtime if convert == "auto" else convert,
    )


def convertible(path: Path, manifest: Manifest, estimator: Any, sample: Rows) -> Manifest:
    """Have whoever loads the package convert the estimator: note to what, and keep the rows to check that by.

    What nothing can be converted to, and what takes no tensors, stays as it is.
    """
    if not isinstance(sample, np.ndarray):
        return manifest
    rows = choices.examples(sample)
    with TemporaryDirectory(prefix="skysail-") as scratch:
        original = _original(path, manifest)
        forms, refused = _forms(AT_LOAD, Path(scratch), manifest, estimator, original, rows)
    if not forms:
        return manifest
    noted = _noted(path, manifest, forms, refused, rows, {"at": "load"})
    return replace(noted, files={**manifest.files, EXAMPLES_FILE: ""})


def _original(path: Path, manifest: Manifest) -> Runtime:
    loaded: Runtime = runtime_module(manifest.runtime).load(manifest, path, allow_pickle=True, threads=1)
    return loaded


def _forms(
    names: Iterable[str], path: Path, manifest: Manifest, estimator: Any, original: Runtime, rows: NDArray[np.generic]
) -> tuple[dict[str, Form], dict[str, str]]:
    """Convert to each that works; returns the forms, and why there are no others."""
    forms, refused = {}, {}
    for name in names:
        try:
            forms[name] = converted_to(name, path, manifest, estimator, original, rows)
        except PackageError as error:
            refused[name] = str(error)
    return forms, refused


def _noted(
    path: Path,
    manifest: Manifest,
    forms: Mapping[str, Form],
    refused: Mapping[str, str],
    rows: NDArray[np.generic],
    more: Mapping[str, Any],
) -> Manifest:
    """Keep the rows, and write down what was found."""
    np.save(path / EXAMPLES_FILE, rows, allow_pickle=False)
    conversion = {
        "from": manifest.runtime,
        "to": list(forms),
        "refused": refused,
        "rows": len(rows),
        "difference": max(form.difference for form in forms.values()),
        **more,
    }
    return replace(
        manifest,
        files={**manifest.files, **{form.file: "" for form in forms.values()}, EXAMPLES_FILE: ""},
        options={**manifest.options, "conversion": conversion},
    )
