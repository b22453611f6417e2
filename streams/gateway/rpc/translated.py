"""Calls as requests of HTTP, and replies of HTTP as messages.

Every rule (tokens, bounds, ids, errors) is the application's, and stands there once. Tensors stay bytes both ways.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import orjson
from grpc import StatusCode

from streams.gateway.protocol import open_inference, tensors
from streams.gateway.protocol.values import RequestRefusedError, dumped
from streams.gateway.rpc.messages import MESSAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LENGTH: Final = b"content-length"
_HEADERS: Final = frozenset({"authorization", "ocp-apim-subscription-key", "api-key", "idempotency-key", "traceparent"})
CODES: Final[Mapping[int, StatusCode]] = {
    400: StatusCode.INVALID_ARGUMENT, 401: StatusCode.UNAUTHENTICATED, 403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND, 408: StatusCode.DEADLINE_EXCEEDED, 409: StatusCode.ALREADY_EXISTS,
    413: StatusCode.RESOURCE_EXHAUSTED, 503: StatusCode.UNAVAILABLE, 504: StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip
# Where the values of a tensor stand that are not bytes; FP16 has no such place.
_CONTENTS: Final[Mapping[str, str]] = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


class HttpCall(NamedTuple):
    """A request of HTTP."""

    method: str
    path: str
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""


class Answered(NamedTuple):
    """A reply of HTTP."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


def headers(metadata: Iterable[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    """Return those of a call's metadata that count as headers."""
    return [(name.encode(), value.encode()) for name, value in metadata if name in _HEADERS and isinstance(value, str)]


def model_path(name: str, version: str, what: str = "") -> str:
    """Return the path of a model, or of something of it.

    Raises:
        RequestRefusedError: the call names none, or writes a path.
    """
    if not name or "/" in name or "/" in version:
        raise RequestRefusedError(400, "give the application as the model's name; neither it nor a version has a slash")
    return f"/v2/models/{name}{f'/versions/{version}' if version else ''}{what}"


def infer(request: Any, given: Sequence[tuple[bytes, bytes]]) -> HttpCall:
    """Return the request that a `ModelInferRequest` stands for.

    Raises:
        RequestRefusedError: its tensors and bytes do not fit each other.
    """
    inputs, raw = _inputs(request)
    parameters = {name: _parameter(one) for name, one in request.parameters.items()}
    head = dumped(
        {
            "id": request.id or None,
            "parameters": {**parameters, "binary_data_output": True},
            "inputs": inputs,
            "outputs": [{"name": one.name} for one in request.outputs],
        }
    )
    body = b"".join([head, *raw])
    lengths = ((open_inference.LENGTH, b"%d" % len(head)), (_LENGTH, b"%d" % len(body)))
    path = model_path(request.model_name, request.model_version, "/infer")
    return HttpCall("POST", path, [*given, *lengths], body)


def inferred(reply: Answered) -> Any:
    """Return a reply as a `ModelInferResponse`."""
    cut = int(reply.headers.get(open_inference.LENGTH, b"%d" % len(reply.body)))
    told, at = orjson.loads(reply.body[:cut]), cut
    made = MESSAGES["ModelInferResponse"](
        model_name=told["model_name"], model_version=told["model_version"], id=told.get("id", "")
    )
    for one in told["outputs"]:
        size = one["parameters"]["binary_data_size"]
        made.outputs.add(name=one["name"], datatype=one["datatype"], shape=one["shape"])
        made.raw_output_contents.append(reply.body[at : at + size])
        at += size
    return made


def refusal(reply: Answered) -> tuple[StatusCode, str]:
    """Return a reply that is none of 200 as a status of gRPC, with what to do."""
    code = CODES.get(reply.status, StatusCode.INTERNAL)
    try:
        said = orjson.loads(reply.body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        said = HTTPStatus(reply.status).phrase
    return code, str(said)


def _inputs(request: Any) -> tuple[list[dict[str, object]], list[bytes]]:
    """Return the inputs of a request as JSON has them, and the bytes behind."""
    given, told, raw = request.raw_input_contents, [], list[bytes]()
    if given and len(given) != len(request.inputs):
        raise RequestRefusedError(
            400, f"{len(given)} raw_input_contents for {len(request.inputs)} inputs: give one each"
        )
    for at, one in enumerate(request.inputs):
        entry: dict[str, object] = {"name": one.name, "datatype": one.datatype, "shape": list(one.shape)}
        found = given[at] if given else _packed(one)
        if found is None:
            entry["data"] = list(getattr(one.contents, _CONTENTS[one.datatype]))
        else:
            raw.append(found)
            entry["parameters"] = {"binary_data_size": len(found)}
        told.append(entry)
    return told, raw


def _packed(tensor: Any) -> bytes | None:
    """Return the values of a tensor as bytes; None where they are whole numbers, which JSON holds."""
    place = _CONTENTS.get(tensor.datatype)
    if place is None:
        raise RequestRefusedError(400, f"input {tensor.name}: {tensor.datatype!r:.40} comes in raw_input_contents")
    values = getattr(tensor.contents, place)
    if tensor.datatype == tensors.BYTES:
        return b"".join([part for one in values for part in (len(one).to_bytes(4, "little"), one)])
    if tensor.datatype in {"FP32", "FP64"}:
        return np.array(values, np.dtype(tensors.TYPES[tensor.datatype]).newbyteorder("<")).tobytes()
    return None


def _parameter(one: Any) -> object:
    chosen = one.WhichOneof("parameter_choice")
    return None if chosen is None else getattr(one, chosen)
