"""What an application takes and answers, as Open Inference v2 and TensorFlow Serving describe models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas.records import TensorForm
from streams.gateway.protocol import tensors
from streams.gateway.protocol.values import InputForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Application, Model

EXTENSIONS: Final = ("binary_tensor_data", "feedback")
_OUTPUTS: Final = {
    "confidence": "FP64", "status": "BYTES", "reason": "BYTES", "probability": "FP64", "decision": "BYTES",
    "query_id": "BYTES",
}  # fmt: skip
_DTYPES: Final = {
    "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE", "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32",
    "INT64": "DT_INT64", "UINT8": "DT_UINT8", "UINT16": "DT_UINT16", "UINT32": "DT_UINT32", "UINT64": "DT_UINT64",
    "BOOL": "DT_BOOL", "BYTES": "DT_STRING",
}  # fmt: skip


def takes(application: Application, models: Sequence[Model]) -> InputForm | None:
    """Return what an application takes, as its models do; None = that is not known, or not the same for all."""
    if application.stages or not models:
        return None
    found = {InputForm(model.takes, tuple(model.shape), model.outputs) for model in models}
    forms = {(one.dtype is None, one.inputs, tuple([size for size in one.shape if size != 1])) for one in found}
    outputs = models[0].outputs if len({one.outputs for one in found}) == 1 else ()
    return InputForm(models[0].takes, tuple(models[0].shape), outputs) if len(forms) == 1 else None


def open_inference(application: Application, models: Sequence[Model]) -> dict[str, object]:
    """Return a model's metadata in Open Inference v2."""
    known, kinds = takes(application, models), {model.output for model in models}
    forms = ((), ()) if known is None else (known.inputs, known.outputs)
    inputs = [*map(_told, forms[0])]
    if known is not None and isinstance(known.dtype, str):
        inputs = [_told(TensorForm("input", known.dtype, known.shape))]
    inputs = inputs or [{"name": "input", "datatype": "BYTES", "shape": [-1]}]
    whole = all(label.lstrip("-").isdigit() for model in models for label in model.classes)
    answer = "FP64" if kinds == {"value"} else "INT64" if whole and kinds else "BYTES"
    outputs = [*map(_told, forms[1])] or [{"name": "answer", "datatype": answer, "shape": [-1]}]
    outputs += [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in _OUTPUTS.items()]
    return {
        "name": application.name, "versions": versions(models), "platform": "skysail", "inputs": inputs,
        "outputs": outputs, "parameters": {"policy": application.policy, "models": ",".join(application.models)},
    }  # fmt: skip


def _told(form: TensorForm) -> dict[str, object]:
    return {"name": form.name, "datatype": tensors.NAMES[form.dtype], "shape": [-1, *form.shape]}


def versions(models: Sequence[Model]) -> list[str]:
    """Return the versions that can be named."""
    found = {version: None for model in models for version in (model.version, *model.shares, *model.standby)}
    return list(found)


def inference_counts(application: Application, models: Sequence[Model], rows: int, requests: int) -> dict[str, object]:
    """Return a model's counts since the gateway started."""
    version = models[0].version if models else ""
    return {
        "model_stats": [
            {
                "name": application.name, "version": version, "inference_count": rows, "execution_count": requests,
            }
        ]
    }  # fmt: skip


def tensorflow(application: Application, models: Sequence[Model]) -> dict[str, object]:
    """Return a model's metadata in TensorFlow Serving's form."""
    about = open_inference(application, models)
    signature = {
        "inputs": {one["name"]: _info(one) for one in about["inputs"]},  # type: ignore[attr-defined]
        "outputs": {one["name"]: _info(one) for one in about["outputs"]},  # type: ignore[attr-defined]
        "method_name": "tensorflow/serving/predict",
    }
    version = models[0].version if models else ""
    definition = {"signature_def": {"serving_default": signature}}
    return {
        "model_spec": {"name": application.name, "signature_name": "", "version": version},
        "metadata": {"signature_def": definition},
    }


def status(models: Sequence[Model]) -> dict[str, object]:
    """Return the state of a model's versions in TensorFlow Serving's form."""
    fine = {"error_code": "OK", "error_message": ""}
    told = [{"version": version, "state": "AVAILABLE", "status": fine} for version in versions(models)]
    return {"model_version_status": told}


def _info(one: dict[str, object]) -> dict[str, object]:
    shape = [{"size": str(size), "name": ""} for size in one["shape"]]  # type: ignore[attr-defined]
    return {
        "dtype": _DTYPES[str(one["datatype"])], "name": one["name"],
        "tensor_shape": {"dim": shape, "unknown_rank": False},
    }  # fmt: skip
