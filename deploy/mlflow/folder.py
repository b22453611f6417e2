"""What lies in a model folder of MLflow: which library made it, the file of the model, rows that it answers.

folder/
├── MLmodel                which flavours there are, and where their files lie (YAML)
├── model.xgb, model.lgb, model.onnx, model.skops     formats that run no code when they are read
├── model.pkl, data/model.pth                         pickles, which may
└── input_example.json     rows, where they were saved

MLflow itself is not needed. Nothing outside of the folder is read, and none of the code in it is imported.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from deploy.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MLMODEL: Final = "MLmodel"
# Flavours by preference: those that need no pickle first; and the key under which each names its file.
_FILES: Final[Mapping[str, str]] = {
    "onnx": "data", "xgboost": "data", "lightgbm": "data", "sklearn": "pickled_model", "pytorch": "model_data",
}  # fmt: skip
_NETWORKS: Final = ("model.pth", "model.pt2")  # in the folder that the flavour `pytorch` names
_PICKLES: Final = (".pkl", ".pickle", ".pth", ".joblib")
_MOST_BYTES: Final = 64 << 20  # of an example


class MlflowModel(NamedTuple):
    """A model of MLflow.

    Attributes:
        flavour: onnx, xgboost, lightgbm, sklearn, pytorch.
        file: of the model.
        kind: the class that wrote it, as XGBoost and LightGBM name it; "" = not said.
        is_pickle: whether reading the file may run code.
        example: rows as JSON, as `--sample` takes them; "" = the folder has none.
    """

    flavour: str
    file: Path
    kind: str
    is_pickle: bool
    example: str


def read(folder: Path) -> MlflowModel:
    """Return what lies in a folder.

    Raises:
        UsageError: it is no model of MLflow, or one of a library that is not known here.
    """
    document = _document(folder)
    flavours = document.get("flavors")
    known = [name for name in _FILES if isinstance(flavours, dict) and isinstance(flavours.get(name), dict)]
    if not isinstance(flavours, dict) or not known:
        there = ", ".join(map(str, flavours or ())) or "none"
        raise UsageError(
            f"{folder} has the flavours {there}; there are loaders for {', '.join(_FILES)}. A model of another library"
            " is packaged as a function or a class (`skysail.package_container`)"
        )
    name = known[0]
    flavour = flavours[name]
    file = _inside(folder, flavour.get(_FILES[name]))
    if name == "pytorch":
        file = next((file / each for each in _NETWORKS if (file / each).is_file()), file)
    if not file.is_file():
        raise UsageError(f"{folder / MLMODEL} names {file}, which is no file: copy the whole folder")
    is_pickle = file.suffix in _PICKLES
    example = _example(folder, document, as_frame=name in ("sklearn", "lightgbm"))
    return MlflowModel(name, file, str(flavour.get("model_class", "")), is_pickle, example)


def _document(folder: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load((folder / MLMODEL).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{folder} is no model folder of MLflow: {MLMODEL} cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise UsageError(f"{folder / MLMODEL} is an object with keys and values, not {type(found).__name__}")
    return found


def _inside(folder: Path, name: object) -> Path:
    """Return a file of the folder; links out of it are refused."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"{folder / MLMODEL} does not say where the model's file lies")
    found = (folder / name).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise UsageError(f"{folder / MLMODEL} names {name}, which lies outside of the folder")
    return found


def _example(folder: Path, document: Mapping[str, Any], *, as_frame: bool) -> str:
    """Return the rows that were saved beside a model, as JSON: with names where a model may go by them."""
    info = document.get("saved_input_example_info")
    if not isinstance(info, dict) or not isinstance(info.get("artifact_path"), str):
        return ""
    path = _inside(folder, info["artifact_path"])
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} has more than {_MOST_BYTES >> 20} MiB: give a few rows by --sample")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}): give a few rows by --sample") from error
    if isinstance(found, dict) and "params" in found and "inputs" in found:
        found = found["inputs"]  # arguments of a call beside the rows
    if isinstance(found, dict) and isinstance(found.get("data"), list):
        names = found.get("columns")
        if as_frame and names:
            return json.dumps([dict(zip(map(str, names), row, strict=False)) for row in found["data"]])
        return json.dumps(found["data"])
    rows = found.get("inputs") if isinstance(found, dict) else found
    dtype = _dtype(document)
    return "" if not isinstance(rows, list) else json.dumps({"values": rows, "dtype": dtype} if dtype else rows)


def _dtype(document: Mapping[str, Any]) -> str:
    """Return the type of a model's only tensor, as its signature says it; "" = it does not."""
    signature = document.get("signature")
    try:
        inputs = json.loads(signature["inputs"]) if isinstance(signature, dict) else []
        (only,) = inputs
        return str(only["tensor-spec"]["dtype"])
    except (ValueError, KeyError, TypeError):
        return ""
