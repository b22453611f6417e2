"""Packages functions, networks and estimators from files. From Python: `workers.packages.packaging`.

A pickle is read only if its digest is given. The digest proves that the user trusts exactly this file.
"""

from __future__ import annotations

import importlib
import json
from collections import deque
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Final, TypedDict

import numpy as np

from deploy.errors import UsageError
from deploy.mlflow import folder as mlflow
from policies.graph import QUERY
from schemas import topics
from schemas.codec import Codec
from schemas.errors import DecodeError, SchemaError
from schemas.jsonable import query_from_json
from schemas.records import DENSE, Application, Input, NamedTensors, Query, Tensor
from streams.trace.reader import Trace
from workers.extras import install
from workers.manifest import sha256
from workers.packages import samples, warm_up
from workers.packages.packaging import (
    package_function,
    package_lightgbm,
    package_onnx,
    package_sklearn,
    package_torch,
    package_xgboost,
)
from workers.packages.variants import runtime_module
from workers.runtimes.tables import PandasFrame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.mlflow.folder import MlflowModel
    from workers.manifest import Manifest
    from workers.runtimes.contract import Rows

SAFETENSORS, ONNX = ".safetensors", ".onnx"


class _PackageFacts(TypedDict):
    """What every package is told."""

    name: str
    version: str
    sample_input: Rows | PandasFrame
    allow_nan: bool
    warm_up: Rows | PandasFrame | None


class _FunctionForm(TypedDict):
    """What a function, network or graph takes and answers; an estimator knows it by itself."""

    output: str
    classes: tuple[int | str, ...]
    by_reference: bool


def package(
    source: str,
    folder: Path,
    rows: Rows | PandasFrame,
    *,
    classes: str | None,
    architecture: str | None,
    arguments: Sequence[str],
    trust_pickle: str | None,
    allow_pickle: bool,
    convert: str = "load",
    name: str,
    version: str,
    output: str | None,
    allow_nan: bool,
    by_reference: bool = False,
    trunk: Path | None = None,
    trunk_architecture: str | None = None,
    trunk_arguments: Sequence[str] = (),
    warm_up: str | None = None,
) -> Manifest:
    """Package a function, the state of a network, or a fitted estimator, whichever `source` is.

    Args:
        source: `module:name`, or a file.
        folder: of the package; created.
        rows: a batch that the model answers.
        classes: labels of the scores, separated by commas; of networks and functions.
        architecture: factory of the network, `module:name`.
        arguments: of the factory, each NAME=JSON.
        trust_pickle: SHA-256 of the source if that is a pickle.
        allow_pickle: store an estimator as a pickle.
        convert: of an estimator, see `package_sklearn`.
        name: of the model.
        version: of the model.
        output: `label`, `scores`, `value` or `tensors`; None = as `package_sklearn` finds, `label` of anything else.
        allow_nan: rows may hold NaN.
        by_reference: a text is the address of a row.
        trunk: the state of what comes before the network, which is then a head (.safetensors).
        trunk_architecture: factory of the trunk, `module:name`.
        trunk_arguments: of that factory, each NAME=JSON.
        warm_up: rows that a process has answered before it takes queries: a file as for a sample, or the folder of a
            recorded trace; None = the sample.

    Raises:
        UsageError: these do not go together.
        PackageError: no package can be made of it.
    """
    file = Path(source)
    _check_trunk(architecture, trunk, trunk_architecture)
    warm = None if warm_up is None else warm_up_rows(warm_up, name, rows, allow_nan=allow_nan)
    known: _PackageFacts = {
        "name": name,
        "version": version,
        "sample_input": rows,
        "allow_nan": allow_nan,
        "warm_up": warm,
    }
    answers: _FunctionForm = {"output": output or "label", "classes": labels(classes), "by_reference": by_reference}
    if not file.exists():
        if ":" not in source:
            raise UsageError(f"{source} is neither a file nor a function, module:name")
        return package_function(source, folder, **known, **answers)
    if convert not in {"load", "none"} and (architecture is not None or file.suffix in {SAFETENSORS, ONNX}):
        raise UsageError(
            "--convert is for scikit-learn estimators; export a network to .onnx yourself and package that"
        )
    if file.suffix == ONNX:
        return package_onnx(file, folder, **known, **answers)
    if file.suffix != SAFETENSORS:
        _check(file, trust_pickle)
    if architecture is None:
        if file.suffix == SAFETENSORS:
            raise UsageError("the state of a network needs what builds the network: add --architecture module:factory")
        if by_reference:
            raise UsageError("--by-reference is for functions, networks and graphs: make the estimator a function")
        return package_sklearn(_read(file), folder, **known, output=output, allow_pickle=allow_pickle, convert=convert)
    return package_torch(
        file,
        folder,
        **known,
        **answers,
        architecture=architecture,
        arguments=dict(map(argument, arguments)),
        trunk=trunk,
        trunk_architecture=trunk_architecture,
        trunk_arguments=dict(map(argument, trunk_arguments)),
    )


def package_mlflow(
    source: Path,
    folder: Path,
    rows: Rows | PandasFrame | None,
    *,
    trust_pickle: str | None,
    architecture: str | None,
    arguments: Sequence[str],
    classes: str | None,
    name: str,
    version: str,
    output: str | None,
    allow_nan: bool,
    allow_pickle: bool,
    convert: str,
    warm_up: str | None,
    by_reference: bool = False,
    **others: object,
) -> Manifest:
    """Package a model folder of MLflow: by the library that made it, without a pickle where it has saved none.

    Args:
        source: the folder.
        folder: of the package.
        rows: a batch that the model answers; None = the example in the folder.
        trust_pickle: digest of a pickle that may be read.
        architecture: builds a network, module:factory.
        arguments: of the architecture, NAME=JSON.
        classes: labels by position, with commas between them.
        name: of the model.
        version: of the model.
        output: what the model answers; None = by its kind.
        allow_nan: whether rows may hold NaN.
        allow_pickle: whether the package may hold a pickle.
        convert: what an estimator is turned into.
        warm_up: rows that are kept in the package.
        by_reference: whether rows name what they are about.
        others: options that such a model does not take.

    Raises:
        UsageError: these do not go together, or it holds a pickle that nobody has vouched for.
        PackageError: no package can be made of it.
    """
    found = mlflow.read(source)
    strange = [option for option, value in others.items() if value]
    if strange:
        raise UsageError(f"--{strange[0].replace('_', '-')} does not go with --mlflow")
    if rows is None and not found.example:
        raise UsageError(f"{source} was saved without an input example: add --sample with a few rows")
    rows = sample(found.example, f"the example in {source}") if rows is None else rows
    warm = None if warm_up is None else warm_up_rows(warm_up, name, rows, allow_nan=allow_nan)
    known: _PackageFacts = {
        "name": name, "version": version, "sample_input": rows, "allow_nan": allow_nan, "warm_up": warm,
    }  # fmt: skip
    if found.is_pickle:
        _check(found.file, trust_pickle)
    if found.flavour == "onnx":
        its: _FunctionForm = {"output": output or "label", "classes": labels(classes), "by_reference": by_reference}
        return package_onnx(found.file, folder, **known, **its)
    if found.flavour == "pytorch":
        return _package_network(found, folder, known, output, classes, architecture, arguments)
    if found.flavour == "xgboost" or (found.flavour == "lightgbm" and not found.is_pickle and not _is_skops(found)):
        return _package_booster(found, folder, known, output)
    estimator = runtime_module("sklearn").read(found.file) if _is_skops(found) else _read(found.file)
    return package_sklearn(estimator, folder, **known, output=output, allow_pickle=allow_pickle, convert=convert)


def _is_skops(found: MlflowModel) -> bool:
    return found.file.suffix == ".skops"


def _package_booster(found: MlflowModel, folder: Path, known: _PackageFacts, output: str | None) -> Manifest:
    """Package a booster that its library has saved in its own format."""
    rows = known["sample_input"]
    given: dict[str, Any] = {**known}
    if isinstance(rows, PandasFrame):
        given["sample_input"] = samples.numbers_of(rows)
    if output is not None:
        given["output"] = output
    if found.flavour == "xgboost":
        return package_xgboost(runtime_module("xgboost").read(found.file, found.kind), folder, **given)
    return package_lightgbm(runtime_module("lightgbm").read(found.file), folder, **given)


def _package_network(
    found: MlflowModel,
    folder: Path,
    known: _PackageFacts,
    output: str | None,
    classes: str | None,
    architecture: str | None,
    arguments: Sequence[str],
) -> Manifest:
    """Package a network of PyTorch by what builds it: an exported program, or a pickle that somebody has vouched for.

    Raises:
        UsageError: nothing builds it.
    """
    if architecture is None:
        raise UsageError(
            "a network is rebuilt from what builds it and its weights: add --architecture module:factory, or export it"
            " to ONNX (torch.onnx.export) and package that"
        )
    network = runtime_module("torch").unpickled(found.file) if found.is_pickle else found.file
    answers: _FunctionForm = {"output": output or "label", "classes": labels(classes), "by_reference": False}
    return package_torch(
        network, folder, **known, **answers, architecture=architecture, arguments=dict(map(argument, arguments))
    )


def warm_up_rows(text: str, name: str, rows: Rows | PandasFrame, *, allow_nan: bool = False) -> Rows | PandasFrame:
    """Return the rows in a file or a JSON text, or those that a model was asked in a recorded trace, the last ones.

    Args:
        text: names the file, or the trace's folder; `none` = no rows.
        name: of the model.
        rows: of the sample: the model takes such.
        allow_nan: whether rows may hold NaN.

    Raises:
        UsageError: there are no such rows.
    """
    if text == "none":
        return ()
    if not Path(text).is_dir():
        return sample(text, "--warm-up")

    signature = samples.signature(samples.batch(rows), allow_nan=allow_nan)
    found = warm_up.fitting(signature, asked_rows(Path(text), name))[-warm_up.MOST_ROWS :]
    if not found:
        raise UsageError(f"--warm-up: no query in {text} has an input that {name} takes")
    tensors = [row.numpy() for row in found if isinstance(row, DENSE)]
    return np.stack(tensors) if tensors else found  # type: ignore[return-value] # texts, or byte strings


def sample(text: str, option: str = "--sample") -> Rows | PandasFrame:
    """Return the rows in a file or a JSON text: strings, or numbers, which are float32 unless they say otherwise.

    An object of arrays, and an .npz file, are tensors by name. Objects, and a .csv file, are the rows of a data frame.

    Raises:
        UsageError: it is neither.
    """
    try:
        if text.endswith((".npy", ".npz")):
            array: Any = np.load(text, allow_pickle=False)
            return samples.batch({**array} if text.endswith(".npz") else array)
        if text.endswith(".csv"):
            return _frame("read_csv", text)
        rows = json.loads(text)
        if isinstance(rows, list) and rows and isinstance(rows[0], str):
            return rows
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            return _frame("DataFrame", rows)
        found = query_from_json({"query_id": "", "application": "", "input": rows}).input
    except (OSError, ValueError, SchemaError) as error:
        raise UsageError(f"{option}: {text} is neither a readable .npy or .csv file nor JSON: {error}") from error
    if isinstance(found, NamedTensors):
        return samples.batch(found.arrays())
    if not isinstance(found, Tensor):
        raise UsageError(f"{option}: a list of rows is needed, such as [[0.0, 1.0]]")
    return found.numpy()


def _frame(make: str, source: object) -> PandasFrame:
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise UsageError(f"a sample of a data frame needs pandas: {install('pandas')}") from error
    frame: PandasFrame = getattr(pandas, make)(source)
    return frame


def labels(text: str | None) -> tuple[int | str, ...]:
    """Return the labels in a list separated by commas: numbers if all are."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if all(name.removeprefix("-").isdecimal() for name in names):
        return tuple(map(int, names))
    return tuple(names)


def _check_trunk(architecture: str | None, trunk: Path | None, builds: str | None) -> None:
    """Refuse a trunk without a head or without what builds it, and one whose state may be a pickle."""
    if trunk is None and builds is None:
        return
    if architecture is None or trunk is None or builds is None:
        raise UsageError("a trunk is a network's: give --architecture, --trunk and --trunk-architecture")
    if trunk.suffix != SAFETENSORS:
        raise UsageError(f"--trunk: {trunk} is no {SAFETENSORS} file; save the state with safetensors.torch.save_file")


def _check(file: Path, digest: str | None) -> None:
    """Refuse a pickle that nobody has vouched for."""
    found = sha256(file)
    if digest is None:
        raise UsageError(
            f"{file} may be a pickle, and reading one runs the code in it. If it is yours and unchanged, add:"
            f" --trust-pickle {found}"
        )
    if digest.lower() != found:
        raise UsageError(f"{file} is not the file that you trust: its SHA-256 is {found}, not {digest}")


def _read(file: Path) -> object:
    """Read a fitted estimator.

    Raises:
        UsageError: it holds none.
    """
    import joblib

    try:
        found = joblib.load(file)
    except (ValueError, TypeError, EOFError, LookupError, ImportError, AttributeError, UnpicklingError) as error:
        message = f"{file} cannot be read as joblib or pickle ({error}); a network needs --architecture"
        raise UsageError(message) from error
    if not hasattr(found, "predict"):
        raise UsageError(f"{file} holds a {type(found).__name__}, which cannot predict: save the fitted estimator")
    return found


def argument(text: str) -> tuple[str, object]:
    """Return the name and the value of an argument, NAME=JSON.

    Raises:
        UsageError: the value is no JSON.
    """
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError as error:
        raise UsageError(f"--argument {text}: write NAME=JSON, such as hidden=[16]") from error


# The last ones: ten times what a package keeps, as some may not fit the model.
_MOST_ROWS: Final = 10_000


def asked_rows(folder: Path, model: str) -> list[Input]:
    """Return the inputs of the last queries to applications that ask a model, in order of time.

    If the trace knows no such application, those of all queries.

    Raises:
        TraceError: there is no trace, or it is damaged.
    """
    trace, codec = Trace.open(folder), Codec(max_bytes=1 << 24)
    asking = _asking(trace, codec, model)
    found: deque[Input] = deque(maxlen=_MOST_ROWS)
    for record in trace.records(topics.QUERIES) if topics.QUERIES in trace.topics() else ():
        with suppress(DecodeError):
            query = codec.decode(Query, record.value)
            if not asking or query.application in asking:
                found.append(query.input)
    return list(found)


def _asking(trace: Trace, codec: Codec, model: str) -> set[str]:
    """Return the applications that ask a model."""
    found = set()
    for record in trace.records(topics.APPLICATIONS) if topics.APPLICATIONS in trace.topics() else ():
        with suppress(DecodeError):
            if record.value is not None and model in _asked_as_they_are(codec.decode(Application, record.value)):
                found.add((record.key or b"").decode(errors="replace"))
    return found


def _asked_as_they_are(application: Application) -> set[str]:
    """Return the models that are given the queries' inputs, and no parts or answers."""
    if not application.stages:
        return {*application.models}
    given = [stage for stage in application.stages if stage.input == QUERY and not stage.crop]
    return {name for stage in given for name in ((stage.model,) if stage.model else application.models)}
