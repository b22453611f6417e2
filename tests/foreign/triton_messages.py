"""Whether a table of messages agrees with those of Triton's client; `python triton_messages.py JSON`.

The table has `MESSAGE: [[field, number, type, is repeated], ...]`; Triton's may have further fields.
"""

import json
import sys

from tritonclient.grpc import model_config_pb2, service_pb2

NESTED = {
    "InferInputTensor": "ModelInferRequest",
    "InferRequestedOutputTensor": "ModelInferRequest",
    "InferOutputTensor": "ModelInferResponse",
    "TensorMetadata": "ModelMetadataResponse",
}
KNOWN = {**model_config_pb2.DESCRIPTOR.message_types_by_name, **service_pb2.DESCRIPTOR.message_types_by_name}
table = json.loads(sys.argv[1])
for name, fields in table.items():
    theirs = KNOWN[NESTED[name]].nested_types_by_name[name] if name in NESTED else KNOWN[name]
    for field, number, kind, is_repeated in fields:
        found = theirs.fields_by_name[field]
        is_list = getattr(found, "is_repeated", None)
        is_list = found.label == found.LABEL_REPEATED if is_list is None else is_list
        assert (found.number, found.type, is_list) == (number, kind, is_repeated), (name, field)
assert "ModelInferRequest" in table
