"""Open Inference v2 (Triton, KServe, MLServer): `infer` with JSON and binary tensors.

A request has one tensor with a row a query, under any name, or those that the models' signature names. Beside it may be
`features` (a row of numbers a query) and, for one query, `candidates`. Several tensors of one value a row are the
columns of a table.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from schemas.errors import SchemaError
from schemas.inputs import as_candidates, as_features, row_text
from schemas.records import NamedTensors
from streams.gateway.protocol import answers, named, tensors
from streams.gateway.protocol.values import (
    HttpQuestion,
    HttpReply,
    ParsedRequest,
    RequestRefusedError,
    document,
    dumped,
    few,
    few_named,
    number,
    shown,
    text,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Input, Prediction, Tensor
    from streams.gateway.protocol.answers import OutputColumn
    from streams.gateway.protocol.tensors import Array
    from streams.gateway.protocol.values import HttpRequest, InputForm

LENGTH: Final = b"inference-header-content-length"
_OCTETS: Final = b"application/octet-stream"
FEATURES, CANDIDATES = "features", "candidates"


def parse(request: HttpRequest) -> ParsedRequest:
    """Return what an `infer` request asks.

    Raises:
        RequestRefusedError: it does not fit the protocol, or the application.
    """
    cut = len(request.body) if request.json_bytes is None else request.json_bytes
    if cut > len(request.body):
        raise RequestRefusedError(400, f"{LENGTH.decode()} is {cut}, the body has {len(request.body)} bytes")
    given = document(request.body[:cut])
    inputs = _inputs(given, request.body[cut:])
    features, candidates = inputs.pop(FEATURES, None), inputs.pop(CANDIDATES, None)
    rows = _rows(inputs, request.takes) if inputs else (("",) if candidates else ())
    more = {} if given.get("parameters") is None else given["parameters"]
    if not isinstance(more, dict):
        raise RequestRefusedError(400, "parameters is an object")
    top = whole(more, "top", 1)
    if top < 1:
        raise RequestRefusedError(400, f"top is 1 or more, not {top}")
    ask = HttpQuestion(
        request.application,
        rows[: few(len(rows))],
        text(given, "id") or request.id,
        text(more, "context"),
        _features(features, len(rows)),
        number(more, "slo_ms"),
        whole(more, "priority", 0),
        text(more, "version") or request.version,
        _candidates(candidates, len(rows)),
        top,
    )
    return ParsedRequest(ask, partial(render, ask.id, request.application, _wanted(given, more, request.takes)))


def render(
    name: str, application: str, wanted: Mapping[str, bool] | bool, predictions: Sequence[Prediction]
) -> HttpReply:
    """Write answers.

    Args:
        name: the request's id.
        application: that was asked.
        wanted: outputs by name, and whether each is binary; or whether all are.
        predictions: one a row.

    Raises:
        RequestRefusedError: no row has an answer.
    """
    answers.check(predictions)
    members = named.columns([prediction.answer for prediction in predictions])
    if isinstance(wanted, bool):
        is_named = any(isinstance(prediction.answer, NamedTensors) for prediction in predictions)
        wanted = dict.fromkeys((*members, *answers.OUTPUTS[is_named:]), wanted)  # as one answer they are JSON
    told, raw = [], []
    for output, is_binary in wanted.items():
        datatype, shape, values = members.get(output) or _column(output, predictions)
        entry: dict[str, object] = {"name": output, "datatype": datatype, "shape": shape}
        if is_binary:
            raw.append(tensors.to_bytes(datatype, values))
            entry["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            entry["data"] = values
        told.append(entry)
    versions = {output.version for output in predictions[0].outputs if output.version}
    head: dict[str, object] = {"model_name": application, "model_version": ",".join(sorted(versions))}
    body = dumped({**head, **({"id": name} if name else {}), "outputs": told})
    if not raw:
        return HttpReply(body)
    return HttpReply(b"".join([body, *raw]), 200, _OCTETS, ((LENGTH, b"%d" % len(body)),))


def _column(output: str, predictions: Sequence[Prediction]) -> OutputColumn:
    name = output.lower()  # Flink 2.3 writes names in capitals
    if name not in answers.OUTPUTS:
        raise RequestRefusedError(502, f"no output {output!r:.40} is in each row's answer; there is `answer`")
    return answers.column(name, predictions)


def _wanted(given: Mapping[str, Any], more: Mapping[str, Any], takes: InputForm | None) -> dict[str, bool] | bool:
    """Return which outputs are wanted and which of them as bytes; those of a record are known when there is one."""
    otherwise = more.get("binary_data_output") is True
    outputs = given.get("outputs")
    if outputs is None or outputs == []:
        return otherwise
    if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
        raise RequestRefusedError(400, 'outputs is a list of objects such as {"name": "answer"}')
    found: dict[str, bool] = {}
    for one in outputs:
        parameters = one.get("parameters") or {}
        is_binary = parameters.get("binary_data", otherwise) if isinstance(parameters, dict) else otherwise
        name, is_record = text(one, "name") or "", takes is None or (takes.dtype is None and not takes.outputs)
        known = (*([form.name for form in takes.outputs] if takes else ()), *answers.OUTPUTS)
        if not is_record and name not in known and name.lower() not in known:
            raise RequestRefusedError(400, f"no output {shown(name)}: there are {', '.join(known)}")
        found[name] = is_binary is True
    return found


def _inputs(given: Mapping[str, Any], raw: bytes) -> dict[str, tuple[tuple[int, ...], Array | list[str | bytes]]]:
    """Return all input tensors by name; bytes behind the JSON belong to them in their order."""
    listed = given.get("inputs")
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise RequestRefusedError(
            400, 'inputs is a list such as [{"name": "input", "datatype": "FP32", "shape": [1, 4], ...}]'
        )
    found: dict[str, tuple[tuple[int, ...], Array | list[str | bytes]]] = {}
    at = 0
    for one in listed:
        name, datatype = text(one, "name") or "", text(one, "datatype") or ""
        shape, parameters = tensors.shape_of(one, name), one.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if name in found:
            raise RequestRefusedError(400, f"input {name} is there twice")
        if size is None:
            found[name] = shape, tensors.of_json(name, datatype, shape, one.get("data"))
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(raw) - at:
            raise RequestRefusedError(
                400, f"input {name}: binary_data_size is {shown(size)}, {len(raw) - at} bytes are left"
            )
        found[name] = shape, tensors.of_bytes(name, datatype, shape, raw[at : at + size])
        at += size
    if at != len(raw):
        raise RequestRefusedError(400, f"{len(raw) - at} bytes behind the JSON belong to no input")
    return found


def _rows(
    inputs: Mapping[str, tuple[tuple[int, ...], Array | list[str | bytes]]], takes: InputForm | None
) -> tuple[Input, ...]:
    if takes is not None and takes.inputs:
        return named.packed(inputs, takes.inputs)
    if (takes is None or takes.dtype is None) and any(_is_record(*one, len(inputs)) for one in inputs.values()):
        return named.rows(inputs)
    if len(inputs) > 1:
        return _table(inputs)
    ((name, (shape, found)),) = inputs.items()
    rows = tensors.rows_of(name, found, shape)
    tensors.check(rows, takes, f"input {name}")
    return rows


def _is_record(shape: tuple[int, ...], found: Array | list[str | bytes], inputs: int) -> bool:
    """Return whether a row has several values, as no column has; numbers alone are a tensor."""
    if isinstance(found, np.ndarray):
        return inputs > 1 and found.size > shape[0] > 0
    return len(found) > shape[0] > 0


def _table(inputs: Mapping[str, tuple[tuple[int, ...], Array | list[str | bytes]]]) -> tuple[Input, ...]:
    """Return rows of a table, each the JSON text that a model of columns takes."""
    lists: dict[str, list[Any]] = {}
    for name, (shape, found) in inputs.items():
        values = found.ravel().tolist() if isinstance(found, np.ndarray) else found
        if len(values) != shape[0]:
            raise RequestRefusedError(400, f"input {name}: of several inputs each is a column, with one value a row")
        lists[name] = values
    if len({len(values) for values in lists.values()}) != 1:
        raise RequestRefusedError(400, "all inputs have the same number of rows")
    few_named(len(next(iter(lists.values()))), [*lists])
    return tuple([row_text(dict(zip(lists, row, strict=True))) for row in zip(*lists.values(), strict=True)])


def _features(
    given: tuple[tuple[int, ...], Array | list[str | bytes]] | None, rows: int
) -> tuple[tuple[float, ...], ...]:
    if given is None:
        return ()
    shape, found = given
    if isinstance(found, list) or shape[0] != rows:
        raise RequestRefusedError(400, f"input {FEATURES}: a row of numbers for each of the {rows} rows")
    try:
        return tuple([as_features(row) for row in found.reshape(rows, -1).tolist()])
    except SchemaError as error:
        raise RequestRefusedError(400, str(error)) from error


def _candidates(
    given: tuple[tuple[int, ...], Array | list[str | bytes]] | None, rows: int
) -> Tensor | tuple[str, ...] | None:
    if given is None:
        return None
    if rows != 1:
        raise RequestRefusedError(400, f"input {CANDIDATES}: one query a request can have them, not {rows}")
    found = given[1]
    if isinstance(found, list) and not all(isinstance(one, str) for one in found):
        raise RequestRefusedError(400, f"input {CANDIDATES}: ids are texts in UTF-8")
    try:
        return as_candidates(found)
    except (SchemaError, TypeError) as error:
        raise RequestRefusedError(400, str(error)) from error
