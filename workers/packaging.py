"""Makes and loads model packages.

    package_sklearn(forest, folder, "digits-forest", "1", X[:5])      a fitted estimator
    package_torch(network, folder, "mnist", "1", x[:5], architecture="my_package.nets:make_mlp")
    package_function("my_package.rules:predict_batch", folder, "rules", "1", x[:5])
    package_onnx("model.onnx", folder, "mnist", "2", x[:5])           a graph that something else has exported
    load_package(folder)                                              verified first, then loaded

`sample_input` is always a small batch, (n, ...), as the model's own predict takes it: rows get its dtype and shape. A
package never changes once it is written; a new model is a new version in a new folder.
"""

from __future__ import annotations

import importlib
import logging
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from schemas.records import Outcome, Tensor
from workers import choice as choices
from workers import manifest as manifests
from workers.dotted import resolve
from workers.errors import PackageError
from workers.manifest import Manifest, Signature
from workers.rows import predict_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input
    from workers.choice import Choice
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
CONVERSIONS = ("none", "onnx", "auto")
EXAMPLES_FILE = "examples.npy"

Sample: TypeAlias = "NDArray[np.generic] | Sequence[str] | Sequence[bytes]"


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
    runtime = _module(manifest.runtime).load(manifest, folder, allow_pickle=allow_pickle, threads=threads)
    if "conversion" not in manifest.options or manifest.runtime == "onnx":
        return LoadedModel(manifest, runtime, found)
    return _faster(LoadedModel(manifest, runtime, found), folder, threads, sizes)


def package_sklearn(
    estimator: Any,
    folder: Path | str,
    name: str,
    version: str,
    sample_input: Sample,
    *,
    output: str = "label",
    allow_nan: bool = False,
    allow_pickle: bool = False,
    convert: str = "none",
) -> Manifest:
    """Package a fitted scikit-learn estimator.

    Args:
        estimator: any fitted estimator or pipeline with `predict`; `predict_proba` for the output `scores`.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch such as `X[:5]`, or a list of strings for a text pipeline.
        output: `label` (a class), `scores` (a class and its probabilities) or `value` (a number).
        allow_nan: rows may hold NaN.
        allow_pickle: store a pickle, which may need any type and whose loading may run any code.
        convert: `onnx` = workers run it under ONNX Runtime and load no scikit-learn; `auto` = each worker measures
            both and keeps the faster. Either way the original stays in the package, and the two must agree on the
            sample and on rows mixed from it: give a sample of some hundred rows.

    Raises:
        PackageError: the estimator cannot be stored or converted, does not answer the sample, or the converted one
            answers otherwise.
    """
    if output == "scores" and not hasattr(estimator, "predict_proba"):
        raise PackageError(
            "the estimator has no predict_proba: use output='label', or wrap it in CalibratedClassifierCV"
        )
    module = _module("sklearn")
    manifest = Manifest(
        name,
        version,
        "sklearn",
        _signature(sample_input, allow_nan=allow_nan),
        output,
        classes=() if output == "value" else module.classes_of(estimator),
    )
    with _new_folder(folder) as path:
        manifest = replace(manifest, files={module.save(estimator, path, allow_pickle=allow_pickle): ""})
        if convert != "none":
            manifest = _converted(path, manifest, estimator, sample_input, convert)
        return _finish(path, manifest, sample_input, allow_pickle=allow_pickle)


def package_torch(
    module: Any,
    folder: Path | str,
    name: str,
    version: str,
    sample_input: Sample,
    *,
    architecture: str,
    arguments: Mapping[str, Any] | None = None,
    output: str = "label",
    classes: Sequence[int | str] = (),
    allow_nan: bool = False,
    min_rows: int | None = None,
) -> Manifest:
    """Package a torch module: its state as safetensors, its architecture as a dotted path.

    Args:
        module: the trained network, or the file that holds its state (`.safetensors`, or what `torch.save` made of its
            `state_dict()`); answers (n, k) scores, or (n,) or (n, 1) numbers for the output `value`.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch such as `x[:5].numpy()`.
        architecture: factory of the untrained network, `package.module:name`; must be importable in the worker.
        arguments: keyword arguments of the factory; JSON values.
        output: `label`, `scores` (the raw outputs: end the network with a softmax for probabilities) or `value`.
        classes: label of each output; empty = its index.
        allow_nan: rows may hold NaN.
        min_rows: smaller batches are filled up, which makes answers equal to the bit (see `runtimes.torch.MIN_ROWS`);
            1 for a network so large that four rows take visibly longer than one.

    Raises:
        PackageError: the network cannot be rebuilt from what was stored, or does not answer the sample.
    """
    options: dict[str, Any] = {"architecture": architecture, "arguments": dict(arguments or {})}
    if min_rows is not None:
        options["min_rows"] = min_rows
    signature = _signature(sample_input, allow_nan=allow_nan)
    manifest = Manifest(name, version, "torch", signature, output, classes=tuple(classes), options=options)
    runtime = _module("torch")
    if isinstance(module, str | Path):
        module = runtime.rebuild(Path(module), architecture, arguments or {})
    with _new_folder(folder) as path:
        return _finish(path, replace(manifest, files={runtime.save(module, path): ""}), sample_input)


def package_function(
    function: str,
    folder: Path | str,
    name: str,
    version: str,
    sample_input: Sample,
    *,
    output: str = "label",
    classes: Sequence[int | str] = (),
    allow_nan: bool = False,
) -> Manifest:
    """Package a Python function by its dotted path; the function itself is not copied.

    Args:
        function: `package.module:name`, importable in the worker; takes a whole batch (see `runtimes.function`).
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch: an array (n, ...), or a list of strings or of byte strings.
        output: `label`, `scores` or `value`.
        classes: label of each score; empty = its index.
        allow_nan: rows may hold NaN.

    Raises:
        PackageError: the function cannot be imported, or does not answer the sample.
    """
    resolve(function)
    signature = _signature(sample_input, allow_nan=allow_nan)
    manifest = Manifest(
        name, version, "function", signature, output, classes=tuple(classes), options={"function": function}
    )
    with _new_folder(folder) as path:
        return _finish(path, manifest, sample_input)


def package_onnx(
    graph: Path | str,
    folder: Path | str,
    name: str,
    version: str,
    sample_input: Sample,
    *,
    output: str = "label",
    classes: Sequence[int | str] = (),
    allow_nan: bool = False,
) -> Manifest:
    """Package an ONNX graph; the file is copied.

    Args:
        graph: the file; weights outside of it are not copied. One input, the batch.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch: an array (n, ...).
        output: `label` (its n labels, or the class of its highest score), `scores` (its (n, k) output) or `value`.
        classes: label of each score; empty = its index.
        allow_nan: rows may hold NaN.

    Raises:
        PackageError: ONNX Runtime cannot run it, or it does not answer the sample.
    """
    signature = _signature(sample_input, allow_nan=allow_nan)
    if signature.kind != "tensor":
        raise PackageError("an ONNX model takes tensors: give an array as sample input")
    manifest = Manifest(name, version, "onnx", signature, output, classes=tuple(classes))
    file = _module("onnx").ONNX_FILE
    with _new_folder(folder) as path:
        shutil.copyfile(graph, path / file)
        return _finish(path, replace(manifest, files={file: ""}), sample_input)


def _converted(path: Path, manifest: Manifest, estimator: Any, sample: Sample, convert: str) -> Manifest:
    """Add the estimator as an ONNX graph, its agreement checked, and the rows by which that was done.

    What either took for batches of these rows here goes into the manifest, for people to read.
    """
    if convert not in CONVERSIONS:
        raise PackageError(f"conversion {convert!r} is unknown: use one of {', '.join(CONVERSIONS)}")
    if not isinstance(sample, np.ndarray):
        raise PackageError("only models of tensors can be converted: package this one without conversion")
    rows = choices.examples(sample)
    file = _import("workers.runtimes.onnx_conversion", "onnx").convert(estimator, path, rows)
    np.save(path / EXAMPLES_FILE, rows, allow_pickle=False)
    both = replace(manifest, files={**manifest.files, file: "", EXAMPLES_FILE: ""})
    runtimes = {name: _module(name).load(both, path, allow_pickle=True, threads=1) for name in (both.runtime, "onnx")}
    apart = _apart(runtimes, rows)
    found = choices.measure(runtimes, rows)
    conversion = {"from": manifest.runtime, "rows": len(rows), "difference": apart, "batch_us": found.batch_us}
    runtime = "onnx" if convert == "onnx" else both.runtime
    return replace(both, runtime=runtime, options={**both.options, "conversion": conversion})


def _apart(runtimes: Mapping[str, Runtime], rows: NDArray[np.generic]) -> float:
    original, converted = (runtime.predict_batch(rows) for runtime in runtimes.values())
    return choices.difference(original, converted)


def _faster(model: LoadedModel, folder: Path, threads: int, sizes: Sequence[int]) -> LoadedModel:
    """Give the model the faster of its two runtimes; the original one where the other does not load or agree here."""
    manifest, rows = model.manifest, np.load(folder / EXAMPLES_FILE, allow_pickle=False)
    try:
        converted = _module("onnx").load(manifest, folder, allow_pickle=False, threads=threads)
        runtimes = {manifest.runtime: model.runtime, "onnx": converted}
        _apart(runtimes, rows)
    except PackageError as error:
        _log.warning("%s %s runs under %s only: %s", manifest.name, manifest.version, manifest.runtime, error)
        return model
    found = choices.measure(runtimes, rows, sizes)
    _log.info("%s %s runs under %s", manifest.name, manifest.version, found)
    return replace(model, runtime=runtimes[found.runtime], choice=found)


def _module(runtime: str) -> Any:
    """Import a runtime's module; fulfils `runtimes.contract.RuntimeModule`."""
    if runtime not in RUNTIMES:
        raise PackageError(f"runtime {runtime!r} is unknown: use one of {', '.join(RUNTIMES)}")
    return _import(RUNTIMES[runtime], runtime)


def _import(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise PackageError(f"the {extra} runtime needs {error.name}: pip install 'skysail[{extra}]'") from error


@contextmanager
def _new_folder(folder: Path | str) -> Iterator[Path]:
    """Create the folder; if packaging fails, leave nothing of it behind."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise PackageError(f"{path} is not empty: packages do not change, use a new folder for a new version")
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, path)
        yield path
        undo.pop_all()


def _signature(sample: Sample, *, allow_nan: bool) -> Signature:
    if isinstance(sample, np.ndarray):
        if sample.ndim == 0 or len(sample) == 0:
            raise PackageError("the sample input must be a batch of at least one row, such as X[:5]")
        return Signature("tensor", sample.dtype.name, sample.shape[1:], allow_nan)
    rows = sample if isinstance(sample, list | tuple) else ()
    for kind, cls in (("string", str), ("bytes", bytes)):
        if rows and all(isinstance(row, cls) for row in rows):
            return Signature(kind)
    raise PackageError("the sample input must be an array (n, ...), or a list of strings or of byte strings")


def _finish(path: Path, manifest: Manifest, sample: Sample, *, allow_pickle: bool = False) -> Manifest:
    """Write the manifest, load the package as a worker would, and let it answer the sample."""
    manifests.write(path, manifest)
    model = load_package(path, allow_pickle=allow_pickle, digest=manifests.digest(path))
    rows: list[Input] = [Tensor.of(row) for row in sample] if isinstance(sample, np.ndarray) else [*sample]
    predicted = predict_rows(model.runtime, model.manifest, rows)
    if set(predicted.outcomes) != {Outcome.OK}:
        why = predicted.fault or predicted.reasons or "its answers are not finite"
        raise PackageError(f"{path}: the packaged model does not answer the sample input: {why}")
    return model.manifest
