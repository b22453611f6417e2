"""TensorFlow Serving's REST: `:predict` with `instances` (rows) or `inputs` (columns)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from streams.gateway.protocol import answers, rows
from streams.gateway.protocol.values import (
    HttpQuestion,
    HttpReply,
    ParsedRequest,
    RequestRefusedError,
    document,
    dumped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Input, Prediction
    from streams.gateway.protocol.values import HttpRequest, InputForm


def parse(request: HttpRequest) -> ParsedRequest:
    """Return what a `:predict` request asks.

    Raises:
        RequestRefusedError: it has not exactly one of the two forms, or its rows are none.
    """
    given = document(request.body)
    if ("instances" in given) == ("inputs" in given):
        raise RequestRefusedError(400, "give either instances (a list of rows) or inputs (columns)")
    is_rows = "instances" in given
    found = (
        rows.of_list(given["instances"], request.takes, "instances")
        if is_rows
        else of_inputs(given["inputs"], request.takes)
    )
    ask = HttpQuestion(request.application, found, request.id, version=request.version)
    return ParsedRequest(ask, partial(render, "predictions" if is_rows else "outputs"))


def render(name: str, predictions: Sequence[Prediction]) -> HttpReply:
    """Write answers under this name; `details` beside them tells the rest, which other clients pass over.

    Raises:
        RequestRefusedError: no row has an answer.
    """
    answers.check(predictions)
    found = [answers.plain(prediction.answer) for prediction in predictions]
    return HttpReply(dumped({name: found, "details": answers.details(predictions)}))


def of_inputs(given: object, takes: InputForm | None) -> tuple[Input, ...]:
    """Return rows of columns: a tensor with its rows first, or several by name.

    Raises:
        RequestRefusedError: columns differ in length.
    """
    if not isinstance(given, dict):
        return rows.of_list(given, takes, "inputs")
    if len(given) == 1:
        return rows.of_list(next(iter(given.values())), takes, "inputs")
    return rows.of_columns(tuple(given), _turned(given), takes)


def _turned(given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    columns = list(given.values())
    if not columns or not all(isinstance(column, list) for column in columns):
        raise RequestRefusedError(400, "inputs has a list for each column")
    if len({len(column) for column in columns}) != 1:
        raise RequestRefusedError(400, "inputs: all columns have the same number of rows")
    return list(zip(*columns, strict=True))
