"""Records of named tensors: what several inputs become, and what answers that are JSON objects become."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from schemas.records import Application, NamedTensors, Status, TensorForm
from streams.gateway.protocol import described, rows
from streams.gateway.protocol.values import InputForm, RequestRefusedError
from streams.gateway.routes import Router
from tests.unit.streams.gateway.requests import IRIS, predicted
from tests.unit.streams.gateway.test_open_inference import answered, parsed, tensor

TEXTS = InputForm(None)
SIMPLE = {"inputs": [tensor([1, 2, 3, 4], [2, 2], "INT32", "INPUT0"), tensor([5, 6, 7, 8], [2, 2], "INT32", "INPUT1")]}


def outputs(reply: Any) -> dict[str, Any]:
    """Return a reply's outputs by name."""
    return {one["name"]: one for one in orjson.loads(reply.body)["outputs"]}


def test_several_tensors_are_a_record_a_row() -> None:
    """Each row is an object with a member for each input; a tensor of three dimensions is nested."""
    rows = [orjson.loads(one) for one in parsed(SIMPLE, takes=TEXTS).ask.rows]
    assert rows == [{"INPUT0": [1, 2], "INPUT1": [5, 6]}, {"INPUT0": [3, 4], "INPUT1": [7, 8]}]
    deep = {"inputs": [tensor(list("abcdefgh"), [2, 2, 2], "BYTES", "a"), tensor([0.5, 1.5], [2], "FP64", "b")]}
    first, second = [orjson.loads(one) for one in parsed(deep, takes=TEXTS).ask.rows]
    assert first == {"a": [["a", "b"], ["c", "d"]], "b": 0.5}
    assert second == {"a": [["e", "f"], ["g", "h"]], "b": 1.5}


def test_several_texts_a_row_are_a_record_too() -> None:
    """Of one input, as JSON and as bytes."""
    given = {"inputs": [tensor(["a", "b"], [1, 2], "BYTES", "INPUT0")]}
    assert orjson.loads(parsed(given, takes=TEXTS).ask.rows[0]) == {"INPUT0": ["a", "b"]}
    raw = b"".join(struct.pack("<I", len(one)) + one for one in (b"x\0y", b"z"))
    binary = {"name": "INPUT0", "datatype": "BYTES", "shape": [1, 2], "parameters": {"binary_data_size": len(raw)}}
    assert orjson.loads(parsed({"inputs": [binary]}, raw, TEXTS).ask.rows[0]) == {"INPUT0": ["x\0y", "z"]}


def test_what_is_no_record_stays_what_it_is() -> None:
    """One tensor of numbers is a tensor where nothing is known of the models; columns stay a table."""
    (row,) = parsed({"inputs": [tensor([1, 2], [1, 2])]}, takes=None).ask.rows
    assert row.shape == (2,)
    table = {"inputs": [tensor([1], [1, 1], name="a"), tensor([2], [1], name="b")]}
    assert parsed(table, takes=TEXTS).ask.rows == ('{"a": 1.0, "b": 2.0}',)


@pytest.mark.parametrize(
    ("given", "raw", "takes"),
    [
        (SIMPLE, b"", InputForm("float32", (2,))),
        ({"inputs": [tensor([1, 2], [1, 2], name="a"), tensor([1, 2], [2], name="b")]}, b"", TEXTS),
        (
            {
                "inputs": [
                    {"name": "a", "datatype": "BYTES", "shape": [1, 2], "parameters": {"binary_data_size": 10}},
                ]
            },
            b"\1\0\0\0\xff\1\0\0\0\xfe",
            TEXTS,
        ),
    ],
)
def test_what_is_no_row_is_refused(given: Any, raw: bytes, takes: InputForm) -> None:
    """Several tensors for a model of numbers; different numbers of rows; texts that are none."""
    with pytest.raises(RequestRefusedError) as refused:
        parsed(given, raw, takes)
    assert refused.value.status == 400


def test_answers_that_are_records_are_outputs() -> None:
    """Each member by its name, before the usual outputs, in the type that holds it."""
    told = outputs(answered(parsed(SIMPLE, takes=TEXTS), '{"sum":[1,2],"name":"a"}', '{"sum":[3,4],"name":"b"}'))
    assert [*told][:3] == ["sum", "name", "answer"]
    assert told["sum"] == {"name": "sum", "datatype": "INT64", "shape": [2, 2], "data": [1, 2, 3, 4]}
    assert told["name"] == {"name": "name", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}


def test_members_are_asked_for_by_name_as_json_and_as_bytes() -> None:
    """As any output."""
    wanted = [{"name": "sum", "parameters": {"binary_data": True}}, {"name": "mean"}]
    reply = answered(parsed({**SIMPLE, "outputs": wanted}, takes=TEXTS), *['{"sum":[1,2],"mean":[0.5]}'] * 2)
    head, raw = reply.body[: int(dict(reply.headers)[b"inference-header-content-length"])], reply.body
    told = {one["name"]: one for one in orjson.loads(head)["outputs"]}
    assert np.frombuffer(raw[len(head) :], "<i8").tolist() == [1, 2, 1, 2]
    assert told["mean"] == {"name": "mean", "datatype": "FP64", "shape": [2, 1], "data": [0.5, 0.5]}


@pytest.mark.parametrize("answers", [('{"a":1}', '{"b":1}'), ('{"a":1}', None), ('{"a":', "x"), ("[1]", "[1]")])
def test_answers_that_are_not_alike_are_texts(answers: tuple[str | None, ...]) -> None:
    """They have no members; who asks for one is told that `answer` is there."""
    assert next(iter(outputs(answered(parsed(SIMPLE, takes=TEXTS), *answers)))) == "answer"
    with pytest.raises(RequestRefusedError, match="no output 'a'") as refused:
        answered(parsed({**SIMPLE, "outputs": [{"name": "a"}]}, takes=TEXTS), *answers)
    assert refused.value.status == 502


def test_an_underscore_in_a_path_is_a_hyphen() -> None:
    """Names of models elsewhere have underscores, those of applications none."""
    assert Router().find("POST", "/v2/models/simple_string/versions/a_1/infer")[2:4] == ("simple-string", "a_1")


def test_names_in_capitals_are_known() -> None:
    """Flink writes them so; the reply has the name that was asked for."""
    told = outputs(answered(parsed({**SIMPLE, "outputs": [{"name": "ANSWER"}]}, takes=TEXTS), "a", "b"))
    assert told == {"ANSWER": {"name": "ANSWER", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}}


def test_a_default_output_may_be_a_record() -> None:
    """An application's default answers as its models do."""
    asked = parsed({"inputs": SIMPLE["inputs"]}, takes=TEXTS)
    queries = [predicted(one, '{"a":1}', status=Status.DEFAULT) for one in (_query(0), _query(1))]
    assert outputs(asked.render(queries))["a"]["data"] == [1, 1]


def _query(at: int) -> Any:
    from schemas.records import Query

    return Query(f"q{at}", "iris", "x")


FORMS = (TensorForm("INPUT0", "int32", (2,)), TensorForm("INPUT1", "float32", (2,)))
OUTPUTS = (TensorForm("sum", "float32", (2,)), TensorForm("mean", "float64"))
TENSORS = InputForm(FORMS, (), OUTPUTS)


def answer(*numbers: float) -> NamedTensors:
    """Return an answer of both outputs."""
    return NamedTensors.named({"sum": np.array(numbers, np.float32), "mean": np.array(np.mean(numbers))})


def test_a_model_of_named_tensors_gets_them() -> None:
    """In the order of its signature, in the types that came; the worker casts."""
    swapped = {"inputs": SIMPLE["inputs"][::-1]}
    for given in (SIMPLE, swapped):
        first, second = parsed(given, takes=TENSORS).ask.rows
        assert [(form.name, form.dtype, form.shape) for form in first.dtype] == [
            ("INPUT0", "int32", (2,)),
            ("INPUT1", "int32", (2,)),
        ]
        assert first.lists() == {"INPUT0": [1, 2], "INPUT1": [5, 6]}
        assert second.lists() == {"INPUT0": [3, 4], "INPUT1": [7, 8]}


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (SIMPLE["inputs"][:1], "the inputs INPUT0, INPUT1 are taken, not 'INPUT0'"),
        ([*SIMPLE["inputs"], tensor([1, 2], [2], name="more")], "not 'INPUT0', 'INPUT1', 'more'"),
        ([SIMPLE["inputs"][0], tensor([5, 6], [1, 2], name="INPUT1")], "the same number of rows"),
        ([SIMPLE["inputs"][0], tensor([5, 6], [2, 1], name="INPUT1")], r"FP32\[-1, 2\] is taken"),
        ([SIMPLE["inputs"][0], tensor(["a"] * 4, [2, 2], "BYTES", "INPUT1")], "numbers are taken, not BYTES"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(inputs: Any, said: str) -> None:
    """Too few, too many, other rows, other shapes, texts."""
    with pytest.raises(RequestRefusedError, match=said) as refused:
        parsed({"inputs": inputs}, takes=TENSORS)
    assert refused.value.status == 400


def test_tensors_of_answers_are_outputs() -> None:
    """In their own types, with NaN where a row has no answer; as one answer they are JSON, on request."""
    reply = answered(parsed(SIMPLE, takes=TENSORS), answer(1, 2), None)
    told = outputs(reply)
    assert [*told][:3] == ["sum", "mean", "confidence"]
    assert told["sum"] == {"name": "sum", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, None, None]}
    assert told["mean"] == {"name": "mean", "datatype": "FP64", "shape": [2], "data": [1.5, None]}
    wanted = [{"name": "answer"}, {"name": "mean", "parameters": {"binary_data": True}}]
    reply = answered(parsed({**SIMPLE, "outputs": wanted}, takes=TENSORS), *[answer(1, 2)] * 2)
    head = reply.body[: int(dict(reply.headers)[b"inference-header-content-length"])]
    assert orjson.loads(orjson.loads(head)["outputs"][0]["data"][0]) == {"sum": [1.0, 2.0], "mean": 1.5}
    assert np.frombuffer(reply.body[len(head) :], "<f8").tolist() == [1.5, 1.5]
    with pytest.raises(RequestRefusedError, match="no output 'none': there are sum, mean"):
        parsed({**SIMPLE, "outputs": [{"name": "none"}]}, takes=TENSORS)


def test_metadata_lists_named_tensors() -> None:
    """Those of the inputs, and those of the outputs before the usual ones."""
    model = replace(IRIS, dtype=None, shape=(), output="tensors", inputs=FORMS, outputs=OUTPUTS)
    application = Application("iris", ("forest",))
    assert described.takes(application, [model]) == TENSORS
    about: Any = described.open_inference(application, [model])
    assert about["inputs"] == [
        {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 2]},
        {"name": "INPUT1", "datatype": "FP32", "shape": [-1, 2]},
    ]
    assert about["outputs"][:3] == [
        {"name": "sum", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "mean", "datatype": "FP64", "shape": [-1]},
        {"name": "confidence", "datatype": "FP64", "shape": [-1]},
    ]
    assert described.tensorflow(application, [model])


def test_rows_as_objects_are_named_tensors_where_these_are_taken() -> None:
    """At TensorFlow Serving's and MLflow's doors; lists of texts are refused before they are an array."""
    row = {"INPUT0": [1, 2], "INPUT1": [0.5, 1.5]}
    (found,) = rows.of_list([row], TENSORS, "instances")
    assert isinstance(found, NamedTensors)
    assert found.lists() == row
    assert rows.of_columns([*row], [[*row.values()]], TENSORS) == (found,)
    with pytest.raises(RequestRefusedError, match="more than numbers"):
        rows.of_list([{"INPUT0": ["x" * 99], "INPUT1": [1]}], TENSORS, "instances")
