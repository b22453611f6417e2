"""Adds other forms of an estimator to its package, each agreeing with it: an ONNX graph, or its numbers as arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workers import choice as choices
from workers.errors import PackageError
from workers.loading import CONVERTERS, EXAMPLES_FILE, apart, import_extra, runtime_module

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Rows, Runtime

CONVERSIONS = ("none", *CONVERTERS, "auto")


class _Form(NamedTuple):
    """What an estimator was converted to."""

    file: str
    runtime: Runtime
    difference: float  # from the original's answers to the example rows


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
    original = runtime_module(manifest.runtime).load(manifest, path, allow_pickle=True, threads=1)
    forms, refused = {}, {}
    for name in CONVERTERS if convert == "auto" else (convert,):
        try:
            forms[name] = _form(name, path, manifest, estimator, original, rows)
        except PackageError as error:
            refused[name] = str(error)
    if not forms:
        raise PackageError("; ".join(refused.values()))
    np.save(path / EXAMPLES_FILE, rows, allow_pickle=False)
    found = choices.measure({manifest.runtime: original} | {name: form.runtime for name, form in forms.items()}, rows)
    conversion = {
        "from": manifest.runtime,
        "to": list(forms),
        "refused": refused,
        "rows": len(rows),
        "difference": max(form.difference for form in forms.values()),
        "batch_us": found.batch_us,
    }
    return replace(
        manifest,
        runtime=manifest.runtime if convert == "auto" else convert,
        files={**manifest.files, **{form.file: "" for form in forms.values()}, EXAMPLES_FILE: ""},
        options={**manifest.options, "conversion": conversion},
    )


def _form(
    name: str, path: Path, manifest: Manifest, estimator: Any, original: Runtime, rows: NDArray[np.generic]
) -> _Form:
    """Convert the estimator to a runtime's form; leaves no file of one that does not agree."""
    file = import_extra(CONVERTERS[name], name).convert(estimator, path, rows)
    try:
        runtime = runtime_module(name).load(replace(manifest, files={file: ""}), path, allow_pickle=False, threads=1)
        return _Form(file, runtime, apart(original, runtime, rows))
    except PackageError:
        (path / file).unlink()
        raise
