"""Makes model packages.

    package_sklearn(forest, folder, "digits-forest", "1", X[:5])      a fitted estimator
    package_torch(network, folder, "mnist", "1", x[:5], architecture="my_package.nets:make_mlp")
    package_torch(head, folder, "cats", "1", x[:5], architecture="my_package.nets:make_head",
                  trunk=trunk, trunk_architecture="my_package.nets:make_trunk")
    package_sklearn(pipeline, folder, "churn", "1", frame.head())     a pipeline fitted on a data frame of pandas
    package_linear(weights, intercept, folder, "ads", "1")            coefficients of log-odds, for `two_speed`
    package_function("my_package.rules:predict_batch", folder, "rules", "1", x[:5])
    package_onnx("model.onnx", folder, "mnist", "2", x[:5])           a graph that something else has exported
    package_xgboost(booster, folder, "mnist", "3", x[:5])             a booster of XGBoost or LightGBM
    package_container("my_package.mine:Model", "trained/", folder, "mnist", "4", x[:5])      a class and its files
    package_files(["trained/weights.npy"], folder, "mnist", "5", x[:5], runtime="my_package.matrix")

`sample_input` is always a small batch, (n, ...), as the model's own predict takes it: rows get its dtype and shape. Of
several inputs it is arrays by name: {"image": (n, 28, 28), "age": (n,)}. A package never changes once it is written; a
new model is a new version in a new folder.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from schemas.records import Outcome
from workers import manifest as manifests
from workers.entry_point import path_of, resolve
from workers.errors import PackageError, refusing
from workers.inputs.rows import predict_rows
from workers.manifest import TENSORS, Manifest
from workers.packages import samples
from workers.packages import warm_up as keeping
from workers.packages.conversion import converted, convertible
from workers.packages.example_columns import usual_rows
from workers.packages.loading import load_package
from workers.packages.originals import HALVES, TOLERANCE, Original, expected_of, probes, require_same
from workers.packages.variants import EXAMPLES_FILE, ON_REQUEST, STAGES, runtime_module, steps_of
from workers.runtimes.contract import by_name, forms_answered, labels, own
from workers.runtimes.estimators import ask
from workers.runtimes.tables import PandasFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Input, TensorForm
    from streams.operators.contract import Predicted
    from workers.manifest_form import Options, Parity, TrunkDocument
    from workers.packages.loading import LoadedModel
    from workers.runtimes.contract import Rows


_log = logging.getLogger(__name__)


def package_sklearn(
    estimator: object,
    folder: Path | str,
    name: str,
    version: str | int,
    sample_input: Rows | PandasFrame,
    *,
    output: str | None = None,
    outputs: Sequence[str] = (),
    allow_nan: bool = False,
    allow_pickle: bool = False,
    convert: str = "load",
    warm_up: Rows | PandasFrame | None = None,
) -> Manifest:
    """Package a fitted scikit-learn estimator.

    Args:
        estimator: any fitted estimator or pipeline with `predict`; `predict_proba` for the output `scores`.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch such as `X[:5]`, a list of strings for a text pipeline, or rows of a data frame for what
            was fitted on one.
        output: `label` (a class), `scores` (a class and its probabilities), `value` (a number) or `tensors` (several
            numbers); None = `value` or `tensors` of a regressor, `scores` of a classifier with 2 to 32 classes that
            answers its most probable one, else `label`.
        outputs: names of several tensors that it answers, the output `tensors`; empty = as it calls them itself.
        allow_nan: rows may hold NaN.
        allow_pickle: store a pickle; loading it may need any type and run any code.
        convert: `load` = whoever loads it converts trees and linear models to arrays, measures both, and keeps the
            fastest; `hummingbird` = to tensor operations of torch as well, or it is not packaged; `none` = it always
            runs under scikit-learn; `stages` = a pipeline as one file a step, of which models of one process share the
            equal ones, and without the original. Converted now, the form kept in the package: `onnx` =
            workers run it under ONNX Runtime and load no scikit-learn; `trees` and `linear` = so as arrays; `auto` =
            each worker measures the original and all that it can be converted to, and keeps the fastest. The original
            stays in the package whatever is said, and what it is converted to must agree with it on the sample and on
            rows mixed from it, which are kept, too: give a sample of some hundred rows.
        warm_up: up to 1,000 rows, kept in the package, that a process has answered before it takes queries; None = the
            sample, an empty list = no rows.

    Raises:
        PackageError: the estimator cannot be stored or converted, does not answer the sample, or the converted one
            answers otherwise.
    """
    module = runtime_module("sklearn")
    sample_input = _fitting(estimator, samples.batch(sample_input))
    signature = samples.signature(sample_input, allow_nan=allow_nan, unused=module.unused(estimator))
    output = TENSORS if outputs else _output(module, estimator, output, sample_input, allow_nan=allow_nan)
    classes = () if output in {"value", TENSORS} else module.classes_of(estimator)
    forms = _forms(partial(module.answered_by, estimator), sample_input, outputs, output)
    manifest = Manifest(name, _text(version), "sklearn", signature, output, classes=classes, outputs=forms)
    original = Original("the estimator", ask(estimator, manifest))
    if convert == STAGES:
        return _package_steps(estimator, Path(folder), manifest, sample_input, warm_up, original)
    with _new_folder(folder) as path:
        manifest = replace(manifest, files={module.save(estimator, path, allow_pickle=allow_pickle): ""})
        if forms and convert not in {"load", "none"}:
            raise PackageError("what answers several numbers runs as it is: package it without conversion")
        if not forms and convert in {"load", *ON_REQUEST}:
            manifest = convertible(path, manifest, estimator, sample_input, convert)
        elif not forms and convert != "none":
            manifest = converted(path, manifest, estimator, sample_input, convert)
        return _finish(path, manifest, sample_input, warm_up, original, allow_pickle=allow_pickle)


def _forms(ask_it: Callable[[Any], object], sample: Any, names: Sequence[str], output: str) -> tuple[TensorForm, ...]:
    """Return the tensors of the answers to a sample; none where the output is another.

    Raises:
        PackageError: it is given none, or not a number or array of numbers for each row.
    """
    if not names and output != TENSORS:
        return ()
    with refusing("the sample input gets no answer that can be packaged"):
        return forms_answered(ask_it(own(sample)), names, len(sample))


def _output(module: Any, estimator: object, output: str | None, sample: Rows | PandasFrame, *, allow_nan: bool) -> str:
    """Return the output of an estimator.

    Raises:
        PackageError: it has no such scores, or answers otherwise than its highest one.
    """
    mixed = probes(sample, allow_nan=allow_nan)
    if output is None:
        with refusing("the estimator cannot be packaged"):
            found: str = module.output_of(estimator, own(sample if mixed is None else mixed))
        return found
    if output != "scores":
        return output
    if not hasattr(estimator, "predict_proba"):
        raise PackageError(
            "the estimator has no predict_proba: use output='label', or wrap it in CalibratedClassifierCV"
        )
    with refusing("the estimator gives the sample input no answer that can be packaged"):
        if not module.answers_best(estimator, own(sample)):
            raise PackageError(
                "the estimator's predict does not answer its most probable class, but goes by a threshold or a vote of"
                " its own: package it with output='label'"
            )
    return output


def _package_steps(
    pipeline: object,
    folder: Path,
    manifest: Manifest,
    sample: Rows | PandasFrame,
    warm_up: Rows | PandasFrame | None,
    original: Original,
) -> Manifest:
    """Package a pipeline step by step.

    Raises:
        PackageError: it has a step that cannot be packaged so, or what was packaged answers otherwise.
    """
    if manifest.input.kind not in {"string", "tensor"} or isinstance(sample, PandasFrame):
        raise PackageError("a pipeline of texts or of arrays is packaged step by step: give such a sample")
    dtype = sample.dtype if isinstance(sample, np.ndarray) else None
    with refusing("it is not packaged step by step"):
        found = steps_of(pipeline, dtype)
    options: Options = {**manifest.options, "graph": found.documents()}
    with _new_folder(folder) as path:
        for name, content in found.files.items():
            (path / name).write_bytes(content)
        manifest = replace(manifest, runtime="stages", files=dict.fromkeys(found.files, ""), options=options)
        return _finish(path, manifest, sample, warm_up, original)


def package_torch(
    module: object,
    folder: Path | str,
    name: str,
    version: str | int,
    sample_input: Rows | PandasFrame,
    *,
    architecture: str,
    arguments: Mapping[str, object] | None = None,
    output: str = "label",
    outputs: Sequence[str] = (),
    classes: Sequence[int | str] = (),
    allow_nan: bool = False,
    by_reference: bool = False,
    min_rows: int | None = None,
    compile: bool = False,  # noqa: A002 - torch's own word
    parity: Parity | None = None,
    trunk: object = None,
    trunk_architecture: str | None = None,
    trunk_arguments: Mapping[str, object] | None = None,
    warm_up: Rows | PandasFrame | None = None,
) -> Manifest:
    """Package a torch module: its state as safetensors, its architecture as a dotted path.

    With a trunk, `module` is the head: the model is `head(trunk(rows))`. Models of one host whose trunks are equal hold
    it once, and their rows go through it together.

    Args:
        module: the trained network, or the file that holds its state (`.safetensors`, or what `torch.save` made of its
            `state_dict()`); answers (n, k) scores, or (n,) or (n, 1) numbers for the output `value`.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch such as `x[:5].numpy()`.
        architecture: factory of the untrained network, `package.module:name`; must be importable in the worker.
        arguments: keyword arguments of the factory; JSON values.
        output: `label`, `scores` (raw: end the network with a softmax for probabilities), `value` or `tensors`.
        outputs: names of several tensors that it answers, the output `tensors`; empty = as it calls them itself.
        classes: label of each output; empty = its index.
        allow_nan: rows may hold NaN.
        by_reference: a text is the address of a row, which the worker reads (`worker.references`).
        min_rows: smaller batches are filled up; with 16, scores do not depend on the batch by even the last bit, at the
            cost of 16 rows for one (see `runtimes.torch.MIN_ROWS`).
        compile: run it through `torch.compile`, here and in workers; where that fails it runs as it is.
        parity: whose outputs it answers the sum of; None = it is no parity model.
        trunk: what comes before the head, a network or the file of its state, as `module`; None = nothing does.
        trunk_architecture: factory of the trunk, as `architecture`.
        trunk_arguments: of that factory.
        warm_up: up to 1,000 rows, kept in the package, that a process has answered before it takes queries; None = the
            sample, an empty list = no rows.

    Raises:
        PackageError: the network cannot be rebuilt from what was stored, or does not answer the sample.
    """
    options: Options = {"architecture": architecture, "arguments": dict(arguments or {})}
    if min_rows is not None:
        options["min_rows"] = min_rows
    if compile:
        options["compile"] = True
    if parity is not None:
        options["parity"] = parity
    if (trunk is None) != (trunk_architecture is None) or (compile and trunk is not None):
        raise PackageError("a trunk needs what builds it (trunk_architecture), and is not compiled")
    sample_input = samples.batch(sample_input)
    signature = samples.signature(sample_input, allow_nan=allow_nan, by_reference=by_reference)
    if signature.kind != "tensor":
        raise PackageError("a network takes tensors: give an array, or arrays by name, as sample input")
    runtime = runtime_module("torch")
    if isinstance(module, str | Path):
        module = runtime.rebuild(Path(module), architecture, arguments or {})
    forms = _forms(partial(runtime.answered_by, module), sample_input, outputs, output)
    if (forms or signature.inputs) and (compile or trunk is not None):
        raise PackageError("a network of named tensors is neither compiled nor packaged as trunk and head")
    known, kind = _classes(classes), TENSORS if forms else output
    manifest = Manifest(name, _text(version), "torch", signature, kind, known, options=options, outputs=forms)
    if isinstance(trunk, str | Path):
        trunk = runtime.rebuild(Path(trunk), trunk_architecture, trunk_arguments or {})
    with _new_folder(folder) as path:
        files = {runtime.save(module, path): ""}
        if trunk is not None and trunk_architecture is not None:
            name = runtime.save_trunk(trunk, path)
            its: TrunkDocument = {
                "file": name,
                "architecture": trunk_architecture,
                "arguments": dict(trunk_arguments or {}),
            }
            manifest, files[name] = replace(manifest, options={**options, "trunk": its}), ""
        tolerance = HALVES if runtime.is_short(module) else TOLERANCE
        original = Original("the network", runtime.original(module, trunk, manifest), tolerance=tolerance)
        return _finish(path, replace(manifest, files=files), sample_input, warm_up, original)


def package_function(
    function: str | Callable[..., object],
    folder: Path | str,
    name: str,
    version: str | int,
    sample_input: Rows | PandasFrame,
    *,
    output: str = "label",
    outputs: Sequence[str] = (),
    classes: Sequence[int | str] = (),
    allow_nan: bool = False,
    by_reference: bool = False,
    warm_up: Rows | PandasFrame | None = None,
) -> Manifest:
    """Package a Python function by its dotted path; the function itself is not copied.

    Args:
        function: `package.module:name`, or the function itself; takes a whole batch (see `runtimes.function`). Its
            module must be importable here and in the worker: installed, beside the script that is run, or on
            PYTHONPATH; `skysail` looks in the folder where it is started, too.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch: an array (n, ...), or a list of strings or of byte strings.
        output: `label`, `scores`, `value` or `tensors`.
        outputs: names of several tensors that it answers, the output `tensors`; empty = as it calls them itself.
        classes: label of each score; empty = its index.
        allow_nan: rows may hold NaN.
        by_reference: a text is the address of a row, which the worker reads (`worker.references`).
        warm_up: up to 1,000 rows, kept in the package, that a process has answered before it takes queries; None = the
            sample, an empty list = no rows.

    Raises:
        PackageError: the function cannot be imported, or does not answer the sample.
    """
    named = function if isinstance(function, str) else path_of(function)
    found = resolve(named)
    sample_input = samples.batch(sample_input)
    signature = samples.signature(sample_input, allow_nan=allow_nan, by_reference=by_reference)
    forms = _forms(lambda rows: found(by_name(rows)), sample_input, outputs, output)
    known, kind = _classes(classes), TENSORS if forms else output
    options = cast("Options", {"function": named})
    manifest = Manifest(name, _text(version), "function", signature, kind, known, options=options, outputs=forms)
    ask_it = runtime_module("function").original(found if isinstance(function, str) else function, manifest)
    with _new_folder(folder) as path:
        return _finish(path, manifest, sample_input, warm_up, Original("the function", ask_it, is_mixed=False))


def package_onnx(
    graph: Path | str,
    folder: Path | str,
    name: str,
    version: str | int,
    sample_input: Rows | PandasFrame,
    *,
    output: str = "label",
    outputs: Sequence[str] = (),
    classes: Sequence[int | str] = (),
    graph_output: str | None = None,
    allow_nan: bool = False,
    by_reference: bool = False,
    warm_up: Rows | PandasFrame | None = None,
) -> Manifest:
    """Package an ONNX graph; the file is copied.

    Args:
        graph: the file; weights outside of it are not copied. One input, the batch, or those that the sample names.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch: an array (n, ...).
        output: `label` (its n labels, or the class of its highest score), `scores` (its (n, k) output), `value` or
            `tensors`.
        outputs: names of the graph's outputs that answer, as the output `tensors`; empty = all of them.
        classes: label of each score; empty = its index.
        graph_output: name of the graph's output that answers, where it has several that could be meant.
        allow_nan: rows may hold NaN.
        by_reference: a text is the address of a row, which the worker reads (`worker.references`).
        warm_up: up to 1,000 rows, kept in the package, that a process has answered before it takes queries; None = the
            sample, an empty list = no rows.

    Raises:
        PackageError: ONNX Runtime cannot run it, or it does not answer the sample.
    """
    sample_input = samples.batch(sample_input)
    signature = samples.signature(sample_input, allow_nan=allow_nan, by_reference=by_reference)
    if signature.kind != "tensor":
        raise PackageError("an ONNX model takes tensors: give an array, or arrays by name, as sample input")
    options = cast("Options", {} if graph_output is None else {"graph_output": graph_output})
    runtime = runtime_module("onnx")
    forms = _forms(partial(runtime.answered_by, Path(graph), outputs), sample_input, outputs, output)
    known, kind = _classes(classes), TENSORS if forms else output
    manifest = Manifest(name, _text(version), "onnx", signature, kind, known, options=options, outputs=forms)
    with _new_folder(folder) as path:
        shutil.copyfile(graph, path / runtime.ONNX_FILE)
        content = (path / runtime.ONNX_FILE).read_bytes()
        _check_batch(runtime.fixed_batch(content), name)
        original = Original("the graph", runtime.original(content, manifest), is_mixed=not by_reference)
        return _finish(path, replace(manifest, files={runtime.ONNX_FILE: ""}), sample_input, warm_up, original)


def _check_batch(rows: int, name: str) -> None:
    """Say what it means that a graph was exported for batches of one size.

    Raises:
        PackageError: of several rows.
    """
    if rows > 1:
        raise PackageError(
            f"the graph takes batches of exactly {rows} rows: export it with a free first dimension (dynamic_axes)"
        )
    if rows == 1:
        _log.warning(
            "%s takes one row at a time, so batches cost time: export it with a free first dimension (dynamic_axes), or"
            " set worker.allowed_batch_sizes.%s to [1]",
            name,
            name,
        )


def package_files(
    files: Sequence[Path | str],
    folder: Path | str,
    name: str,
    version: str | int,
    sample_input: Rows | PandasFrame,
    *,
    runtime: str,
    output: str = "label",
    outputs: Sequence[TensorForm] = (),
    classes: Sequence[int | str] = (),
    options: Mapping[str, object] | None = None,
    allow_nan: bool = False,
    by_reference: bool = False,
    warm_up: Rows | PandasFrame | None = None,
    original: Callable[[Manifest], Original] | None = None,
) -> Manifest:
    """Package files for a runtime of your own, or one of those that read such files.

    Args:
        files: of the model; they are copied under their own names.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch: an array (n, ...), or a list of strings or of byte strings.
        runtime: a module as `my_pkg.my_runtime`, an entry point of the group `skysail.runtimes`, or one of Skysail's.
        output: `label`, `scores`, `value` or `tensors`.
        outputs: of the output `tensors`: what the answer to one row is made of.
        classes: label of each score; empty = its index.
        options: what the runtime needs besides; JSON values.
        allow_nan: rows may hold NaN.
        by_reference: a text is the address of a row, which the worker reads (`worker.references`).
        warm_up: up to 1,000 rows, kept in the package, that a process has answered before it takes queries; None = the
            sample, an empty list = no rows.
        original: makes what the files were made of, which must answer as the package does; None = nothing is known.

    Raises:
        PackageError: the runtime cannot be imported or does not load them, or the model does not answer the sample.
    """
    runtime_module(runtime)
    sample_input = samples.batch(sample_input)
    signature = samples.signature(sample_input, allow_nan=allow_nan, by_reference=by_reference)
    given = cast("Options", dict(options or {}))
    known, forms = _classes(classes), tuple(outputs)
    manifest = Manifest(name, _text(version), runtime, signature, output, classes=known, options=given, outputs=forms)
    with _new_folder(folder) as path:
        for file in files:
            shutil.copyfile(file, path / Path(file).name)
        manifest = replace(manifest, files={Path(file).name: "" for file in files})
        return _finish(path, manifest, sample_input, warm_up, None if original is None else original(manifest))


def package_container(
    model: str,
    files: Path | str,
    folder: Path | str,
    name: str,
    version: str | int,
    sample_input: Rows | PandasFrame,
    **more: Any,
) -> Manifest:
    """Package a model class by its dotted path, with the files that it reads.

    Args:
        model: `package.module:Class`, with `__init__(folder)` and `predict_batch(rows)`; must be importable here and in
            the worker.
        files: a folder; its files travel in the package, and the class is given a folder with copies of them.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch: an array (n, ...), or a list of strings or of byte strings.
        more: `output`, `outputs`, `classes`, `allow_nan`, `by_reference`, `warm_up`, as `package_function` takes them.

    Raises:
        PackageError: the class cannot be imported, or does not answer the sample.
    """
    maker = resolve(model)
    found = sorted(file for file in Path(files).iterdir() if file.is_file())

    @cache
    def made() -> Any:
        return maker(Path(files))

    def original(manifest: Manifest) -> Original:
        ask_it = runtime_module("function").original(lambda rows: made().predict_batch(rows), manifest)
        return Original("the model", ask_it, is_mixed=False)

    given = {"runtime": "container", "options": {"model": model}, "original": original, **more}
    if more.get("outputs") or more.get("output") == TENSORS:
        batch = samples.batch(sample_input)
        named = _forms(lambda rows: made().predict_batch(by_name(rows)), batch, more.get("outputs", ()), TENSORS)
        given |= {"output": TENSORS, "outputs": named}
    return package_files(found, folder, name, version, sample_input, **given)


def package_linear(
    weights: NDArray[np.floating],
    intercept: NDArray[np.floating],
    folder: Path | str,
    name: str,
    version: str | int,
    *,
    classes: Sequence[str] = (),
    **more: Any,
) -> Manifest:
    """Package coefficients: the model answers `row @ weights + intercept`, such as log-odds of items for `two_speed`.

    Args:
        weights: (f, k) of k outputs, at least two; rows have f numbers.
        intercept: (k,).
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        classes: names of the outputs; empty = their indices.
        more: `warm_up`, as `package_files` takes it.

    Raises:
        PackageError: the arrays do not fit each other, or are not finite.
    """
    if not all(np.can_cast(np.asarray(each).dtype, np.float64, "same_kind") for each in (weights, intercept)):
        raise PackageError("weights and intercept must be real numbers")
    weights, intercept = np.asarray(weights, np.float64), np.asarray(intercept, np.float64)
    if weights.ndim != 2 or weights.shape[1] < 2 or intercept.shape != weights.shape[1:]:
        raise PackageError(
            f"weights (f, k) and an intercept (k,) are needed, not {weights.shape} and {intercept.shape}"
        )
    module = runtime_module("linear")
    linear = module.Linear(weights, intercept, "log_odds", np.dtype(np.float64))
    names: tuple[str | int, ...] = tuple(classes) or tuple(range(len(intercept)))
    with TemporaryDirectory() as place:
        file, sample = module.save(linear, Path(place)), np.zeros((1, len(weights)))
        given = {"runtime": "linear", "output": "scores", "classes": names, **more}
        return package_files([Path(place) / file], folder, name, version, sample, **given)


def package_xgboost(
    booster: object, folder: Path | str, name: str, version: str | int, sample_input: Rows, **more: Any
) -> Manifest:
    """Package a trained `xgboost.Booster`, or an estimator of XGBoost's.

    Args:
        booster: trained; an estimator's labels are kept as classes.
        folder: created; must be empty.
        name: of the model, as applications name it.
        version: of the model.
        sample_input: a batch such as `X[:5]`.
        more: `output` (`label`, `scores` or `value`; by default what its objective says), `classes`, `allow_nan`,
            `warm_up`, as `package_files` takes them.

    Raises:
        PackageError: it cannot be stored, or does not answer the sample.
    """
    return _package_booster("xgboost", booster, folder, name, version, sample_input, more)


def package_lightgbm(
    booster: object, folder: Path | str, name: str, version: str | int, sample_input: Rows, **more: Any
) -> Manifest:
    """Package a trained `lightgbm.Booster`, or an estimator of LightGBM's; arguments as of `package_xgboost`.

    Raises:
        PackageError: it cannot be stored, or does not answer the sample.
    """
    return _package_booster("lightgbm", booster, folder, name, version, sample_input, more)


def _package_booster(
    runtime: str,
    booster: object,
    folder: Path | str,
    name: str,
    version: str | int,
    sample: Rows,
    more: Mapping[str, Any],
) -> Manifest:
    module = runtime_module(runtime)
    with TemporaryDirectory() as place, refusing("it cannot be packaged"):
        file, found = module.save(booster, Path(place))
        if found["output"] == "value" != more.get("output", "value"):
            raise PackageError(
                "its objective gives numbers, not probabilities of classes: package it with output='value'"
            )
        if more.get("output") == "value" != found["output"]:
            raise PackageError("it classifies: package its probabilities with output='scores'")
        given = {**found, **more, "options": {**found.get("options", {}), **more.get("options", {})}}

        def original(manifest: Manifest) -> Original:
            what = "the booster" if type(booster).__name__ == "Booster" else "the estimator"
            return Original(what, module.original(booster, manifest))

        return package_files([file], folder, name, version, sample, runtime=runtime, original=original, **given)


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


def _fitting(estimator: object, sample: Rows | PandasFrame) -> Rows | PandasFrame:
    """Return the sample as the estimator takes it: a data frame if it was fitted on one, and only then.

    Raises:
        PackageError: it was fitted on something else.
    """
    names = [*map(str, getattr(estimator, "feature_names_in_", ()))]
    has_names = bool(names) and names != [f"Column_{at}" for at in range(len(names))]  # as LightGBM names an array's
    if isinstance(sample, PandasFrame):
        return sample if has_names else samples.numbers_of(sample)
    if has_names:
        raise PackageError(
            "the estimator was fitted on a data frame: give the sample input as one, too, such as X.head(), "
            "or fit it on X.to_numpy()"
        )
    return sample


def _classes(given: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return classes as they travel: of booleans, and of numbers of numpy, whole numbers."""
    with refusing("classes cannot travel"):
        found = labels([*given])
    return found if isinstance(found, tuple) else tuple(found.tolist())


def _text(version: str | int) -> str:
    """Return a version as it is written."""
    if isinstance(version, str) or type(version) is int:
        return str(version)
    raise PackageError(f"a version is a text such as '1', or a whole number, not {version!r}")


def _finish(
    path: Path,
    manifest: Manifest,
    sample: Rows | PandasFrame,
    warm_up: Rows | PandasFrame | None,
    original: Original | None = None,
    *,
    allow_pickle: bool = False,
) -> Manifest:
    """Write the manifest, load the package as a worker would, let it answer the sample, and keep rows to warm it up.

    What the package was made of has to answer the same. Where the package keeps example rows already, the sample is not
    kept a second time.
    """
    manifests.write(path, manifest)
    model = load_package(path, allow_pickle=allow_pickle, digest=manifests.digest(path), sizes=(1,))
    given = samples.inputs(samples.kept(sample, manifest.input))
    has_addresses = manifest.input.by_reference and any(isinstance(row, str) for row in given)
    expected = None if original is None or has_addresses else expected_of(original, sample)
    found = predict_rows(model.runtime, model.manifest, given)
    rows = _answered(path, model, given, found, "the sample input", are_all=True)
    _check_form(path, model, rows, found)
    if original is not None and expected is not None:
        require_same(original, expected, found, model, sample)
    if usual := usual_rows(manifest, given, found):
        manifest = replace(manifest, options={**manifest.options, "usual": usual})
        manifests.write(path, manifest)
    if warm_up is not None and not len(warm_up):
        return manifests.read(path)
    if warm_up is not None:
        given = keeping.inputs(manifest.input, warm_up)
        found = predict_rows(model.runtime, model.manifest, given)
        rows = _answered(path, model, given, found, "the rows to warm up with", are_all=False)
    elif EXAMPLES_FILE in manifest.files:
        return manifests.read(path)
    name = keeping.write(path, keeping.bounded(rows))
    manifests.write(path, replace(manifest, files={**manifest.files, name: ""}))
    return manifests.read(path)


def _check_form(path: Path, model: LoadedModel, rows: list[Input], found: Predicted) -> None:
    """Look for answers that have the right form by chance, or whose labels are not those that were named.

    Where there are as many rows as scores, only a batch of another size tells columns and rows apart.

    Raises:
        PackageError: the scores are (k, n), or a label is none of the classes.
    """
    classes = model.manifest.classes
    strangers = {*np.asarray(found.answers).tolist()} - {*classes} if classes else set()
    if strangers and Outcome.OK in found.outcomes and not model.manifest.input.by_reference:
        raise PackageError(
            f"{path}: the model answers {next(iter(strangers))!s:.40}, which is none of its classes: answer a label of"
            " these, or scores in their order, or leave classes out"
        )
    if found.scores is None or len(rows) < 2 or found.scores.shape != (len(rows), len(rows)):
        return
    fewer = predict_rows(model.runtime, model.manifest, rows[1:])
    if any(outcome is not Outcome.OK for outcome in fewer.outcomes):
        raise PackageError(
            f"{path}: scores must be (n, k), a row for each row, but these seem to be (k, n): {fewer.fault}"
        )


def _answered(
    path: Path, model: LoadedModel, rows: list[Input], predicted: Predicted, what: str, *, are_all: bool
) -> list[Input]:
    """Return the rows that a packaged model has answered; addresses are taken as they are.

    Raises:
        PackageError: it answers none, or not all of them.
    """
    is_read = model.manifest.input.by_reference
    good = [
        row
        for row, outcome in zip(rows, predicted.outcomes, strict=True)
        if outcome is Outcome.OK or (is_read and isinstance(row, str))
    ]
    if len(good) < (len(rows) if are_all else 1):
        why = predicted.fault or next(iter(predicted.messages.values()), "its answers are not finite")
        raise PackageError(f"{path}: the packaged model does not answer {what}: {why}")
    return good
