"""The messages of Open Inference's gRPC service, as a table: fields in the order of their numbers, which begin at 1.

Only numbers and types travel, so no `.proto` is carried and nothing is generated: a generated module would tie the
gateway to one release of protobuf. Messages that Triton adds (statistics, configuration) have the fields that are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE: Final = "inference"
SERVICE: Final = f"{PACKAGE}.GRPCInferenceService"
# `*` = repeated; `{}` = a map from texts to `InferParameter`; a name in capitals = a message of this table.
FIELDS: Final[Mapping[str, str]] = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live:bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready:bool",
    "ModelReadyRequest": "name:string version:string",
    "ModelReadyResponse": "ready:bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name:string version:string extensions:*string",
    "ModelMetadataRequest": "name:string version:string",
    "TensorMetadata": "name:string datatype:string shape:*int64",
    "ModelMetadataResponse": (
        "name:string versions:*string platform:string inputs:*TensorMetadata outputs:*TensorMetadata"
    ),
    "InferParameter": (
        "bool_param:bool int64_param:int64 string_param:string double_param:double uint64_param:uint64"
    ),
    "InferTensorContents": (
        "bool_contents:*bool int_contents:*int32 int64_contents:*int64 uint_contents:*uint32 uint64_contents:*uint64"
        " fp32_contents:*float fp64_contents:*double bytes_contents:*bytes"
    ),
    "InferInputTensor": (
        "name:string datatype:string shape:*int64 parameters:{} contents:InferTensorContents"
    ),
    "InferRequestedOutputTensor": "name:string parameters:{}",
    "ModelInferRequest": (
        "model_name:string model_version:string id:string parameters:{} inputs:*InferInputTensor"
        " outputs:*InferRequestedOutputTensor raw_input_contents:*bytes"
    ),
    "InferOutputTensor": (
        "name:string datatype:string shape:*int64 parameters:{} contents:InferTensorContents"
    ),
    "ModelInferResponse": (
        "model_name:string model_version:string id:string parameters:{} outputs:*InferOutputTensor"
        " raw_output_contents:*bytes"
    ),
    "ModelStatisticsRequest": "name:string version:string",
    "ModelStatistics": (
        "name:string version:string last_inference:uint64 inference_count:uint64 execution_count:uint64"
    ),
    "ModelStatisticsResponse": "model_stats:*ModelStatistics",
    "ModelConfigRequest": "name:string version:string",
    "ModelConfig": "name:string platform:string",
    "ModelConfigResponse": "config:ModelConfig",
}  # fmt: skip
_ONE_OF: Final = {"InferParameter": "parameter_choice"}  # of whose fields one is set
_ENTRY: Final = "ParametersEntry"
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "bool": _Field.TYPE_BOOL, "bytes": _Field.TYPE_BYTES, "double": _Field.TYPE_DOUBLE, "float": _Field.TYPE_FLOAT,
    "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64, "string": _Field.TYPE_STRING, "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}  # fmt: skip


def _file() -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(name="skysail_open_inference.proto", package=PACKAGE, syntax="proto3")
    for name, fields in FIELDS.items():
        _add_message(made, name, fields)
    return made


def _add_message(made: descriptor_pb2.FileDescriptorProto, name: str, fields: str) -> None:
    message = made.message_type.add(name=name)
    if name in _ONE_OF:
        message.oneof_decl.add(name=_ONE_OF[name])
    for number, field in enumerate(fields.split(), 1):
        called, _, kind = field.partition(":")
        if kind == "{}":
            _add_entry(message)
            _add_field(message, called, number, f"*{name}.{_ENTRY}")
            continue
        added = _add_field(message, called, number, kind)
        if name in _ONE_OF:
            added.oneof_index = 0


def _add_entry(message: descriptor_pb2.DescriptorProto) -> None:
    entry = message.nested_type.add(name=_ENTRY)
    entry.options.map_entry = True
    _add_field(entry, "key", 1, "string")
    _add_field(entry, "value", 2, "InferParameter")


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> Any:
    label = _Field.LABEL_REPEATED if kind.startswith("*") else _Field.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    added = message.field.add(name=name, number=number, label=label, type=_TYPES.get(kind, _Field.TYPE_MESSAGE))
    if kind not in _TYPES:
        added.type_name = f".{PACKAGE}.{kind}"
    return added


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()  # of our own: a client in the same process has these names, too
    pool.AddSerializedFile(_file().SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in FIELDS}


MESSAGES: Final = _classes()
