"""Open Inference v2: what a request asks, what a reply says, and what is refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Query, Status, Tensor
from streams.control.page.advice import REASONS
from streams.gateway.protocol import answers, open_inference, tensors
from streams.gateway.protocol.values import HttpRequest, InputForm, RequestRefusedError
from tests.unit.streams.gateway.requests import predicted, row

TAKES = InputForm("float32", (4,))


def parsed(given: object, raw: bytes = b"", takes: InputForm | None = TAKES) -> Any:
    """Parse a request."""
    head = orjson.dumps(given)
    return open_inference.parse(HttpRequest("iris", head + raw, takes=takes, json_bytes=len(head) if raw else None))


def tensor(data: object, shape: list[int], datatype: str = "FP32", name: str = "input") -> dict[str, object]:
    """Return a tensor as JSON has it."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def answered(asked: Any, *answers: object) -> Any:
    """Return the reply for answers."""
    queries = [Query(f"q{at}", "iris", "x") for at in range(len(answers))]
    return asked.render([predicted(query, answer) for query, answer in zip(queries, answers, strict=True)])


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6, 7, 8], [[1, 2, 3, 4], [5, 6, 7, 8]]])
def test_a_row_a_query_flat_or_nested(data: list[Any]) -> None:
    """The first dimension counts rows; each row is a tensor of the rest."""
    ask = parsed({"id": "a", "inputs": [tensor(data, [2, 4])]}).ask
    assert [row(one) for one in ask.rows] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert [(one.dtype, one.shape) for one in ask.rows] == [("float32", (4,))] * 2
    assert ask.id == "a"


def test_binary_tensors_are_read_in_their_order() -> None:
    """JSON and binary tensors may be mixed; bytes belong to inputs one after the other."""
    numbers, features = np.arange(8, dtype="<f4"), np.array([0.5, 0.25], "<f8")
    binary = {"name": "x", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": 32}}
    more = {"name": "features", "datatype": "FP64", "shape": [2, 1], "parameters": {"binary_data_size": 16}}
    ask = parsed({"inputs": [binary, more]}, numbers.tobytes() + features.tobytes()).ask
    assert [row(one) for one in ask.rows] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert ask.features == ((0.5,), (0.25,))


def test_texts_come_as_json_and_as_bytes() -> None:
    """BYTES are texts with the length before each; what is no UTF-8 stays bytes."""
    takes = InputForm(None)
    assert parsed({"inputs": [tensor(["a", "ü"], [2, 1], "BYTES")]}, takes=takes).ask.rows == ("a", "ü")
    raw = b"".join(struct.pack("<I", len(one)) + one for one in (b"a", b"\xff\x00"))
    binary = {"name": "x", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(raw)}}
    assert parsed({"inputs": [binary]}, raw, takes).ask.rows == ("a", b"\xff\x00")


def test_several_inputs_are_the_columns_of_a_table() -> None:
    """Named tensors of one value a row become rows by name."""
    given = {"inputs": [tensor([41, 7], [2], "INT64", "age"), tensor(["nurse", "child"], [2, 1], "BYTES", "job")]}
    rows = [orjson.loads(one) for one in parsed(given, takes=InputForm(None)).ask.rows]
    assert rows == [{"age": 41, "job": "nurse"}, {"age": 7, "job": "child"}]


def test_parameters_are_those_of_a_query() -> None:
    """Context, objective, priority, version."""
    more = {"context": "ann", "slo_ms": 20, "priority": 3, "version": "canary", "sequence_id": 7}
    ask = parsed({"inputs": [tensor([1, 2, 3, 4], [1, 4])], "parameters": more}).ask
    assert (ask.context, ask.slo_ms, ask.priority, ask.version) == ("ann", 20, 3, "canary")


def test_candidates_are_ranked() -> None:
    """Ids in a tensor of their own; no input is needed."""
    given = {"inputs": [tensor(["a", "b", "c"], [3], "BYTES", "candidates")], "parameters": {"top": 2}}
    ask = parsed(given).ask
    assert (ask.candidates, ask.top, ask.rows) == (("a", "b", "c"), 2, ("",))


def test_a_reply_tells_the_decision_with_its_probability() -> None:
    """Beside the answer: confidence, status, probability, decision, and the ids that feedback names."""
    asked = parsed({"id": "a", "inputs": [tensor([1] * 8, [2, 4])]})
    told = orjson.loads(answered(asked, 1, 2).body)
    outputs = {one["name"]: one for one in told["outputs"]}
    assert (told["id"], told["model_name"], told["model_version"]) == ("a", "iris", "3")
    assert outputs["answer"] == {"name": "answer", "datatype": "INT64", "shape": [2], "data": [1, 2]}
    assert outputs["probability"]["data"] == [0.75, 0.75]
    assert outputs["decision"]["data"] == ["forest", "forest"]
    assert outputs["status"]["data"] == ["complete", "complete"]
    assert outputs["query_id"]["data"] == ["q0", "q1"]


@pytest.mark.parametrize(
    ("answers", "datatype", "data"),
    [
        ((1, 0.5), "FP64", [1.0, 0.5]),
        (("cat", "dog"), "BYTES", ["cat", "dog"]),
        ((Tensor.of(np.array([1, 2], np.int32)), Tensor.of(np.array([3, 4], np.int32))), "INT32", [1, 2, 3, 4]),
        ((1, None), "FP64", [1.0, None]),
    ],
)
def test_answers_have_the_type_that_holds_them(answers: Any, datatype: str, data: list[object]) -> None:
    """Whole numbers, numbers, texts, vectors; a missing number is null."""
    asked = parsed({"inputs": [tensor([1] * 8, [2, 4])], "outputs": [{"name": "answer"}]})
    (output,) = orjson.loads(answered(asked, *answers).body)["outputs"]
    assert (output["datatype"], output["data"]) == (datatype, data)


def test_outputs_come_as_bytes_where_wanted() -> None:
    """The JSON's length stands in a header; bytes follow in the order of the outputs."""
    wanted = [
        {"name": "answer", "parameters": {"binary_data": True}},
        {"name": "confidence"},
        {"name": "decision", "parameters": {"binary_data": True}},
    ]
    reply = answered(parsed({"inputs": [tensor([1] * 8, [2, 4])], "outputs": wanted}), 5, 6)
    cut = int(dict(reply.headers)[b"inference-header-content-length"])
    head, raw = orjson.loads(reply.body[:cut]), reply.body[cut:]
    assert [one["name"] for one in head["outputs"]] == ["answer", "confidence", "decision"]
    assert np.frombuffer(raw[:16], "<i8").tolist() == [5, 6]
    assert raw[16:] == (struct.pack("<I", 6) + b"forest") * 2
    assert head["outputs"][1]["data"] == [0.5, 0.5]


WHY = {
    400: {"invalid_input", "not_ranked", "too_many_features"},
    404: {"unknown_application", "unknown_version"},
    502: {"model_failed", "oversized_outputs", "policy_failed", "unknown_model"},
    503: {"expired_in_queue", "over_limit", "overloaded"},
    504: {"deadline", "expired", "no_model_in_time"},
}


@pytest.mark.parametrize("status", WHY)
def test_no_answer_at_all_is_an_error(status: int) -> None:
    """Where no row has an answer, not even a default output; overload says when to come again."""
    asked = parsed({"inputs": [tensor([1] * 4, [1, 4])]})
    for reason in WHY[status]:
        lost = predicted(Query("q", "iris", "x"), None, status=Status.DEFAULT, reason=reason, message="because")
        with pytest.raises(RequestRefusedError, match="because") as caught:
            asked.render([lost])
        assert (caught.value.status, bool(caught.value.retry_s)) == (status, status == 503), reason
        assert ("more time" in str(caught.value)) == (status == 504), reason
        found = predicted(Query("q", "iris", "x"), 7, status=Status.DEFAULT, reason=reason)
        if reason != "unknown_version":
            assert asked.render([found]).status == 200  # the application's default output is an answer


def test_every_reason_that_is_answered_has_a_status() -> None:
    """The live page explains each reason that selection gives; each has its place here, too."""
    assert set().union(*WHY.values()) == {*REASONS} - {"low_confidence"}  # which an application asks for


def test_a_version_that_does_not_run_is_refused_although_there_is_a_default_output() -> None:
    """Who asked named the version; another row's answer is still told."""
    asked = parsed({"inputs": [tensor([1] * 8, [2, 4])]})
    none = predicted(Query("q", "iris", "x"), -1, status=Status.DEFAULT, reason="unknown_version")
    with pytest.raises(RequestRefusedError, match="model list") as caught:
        asked.render([none, none])
    assert caught.value.status == 404
    assert asked.render([none, predicted(Query("q", "iris", "x"), 3)]).status == 200


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "inputs is a list"),
        ({"inputs": [tensor([1, 2, 3], [1, 4])]}, "do not fit shape"),
        ({"inputs": [tensor([1, 2, 3], [1, 3])]}, r"FP32\[-1, 4\] is taken"),
        ({"inputs": [tensor([1, 2, 3, 4], [4])]}, r"FP32\[-1, 4\] is taken"),
        ({"inputs": [tensor([], [0, 4])]}, "0 rows"),
        ({"inputs": [tensor([1.5, 1, 1, 1], [1, 4], "INT32")]}, "does not hold"),
        ({"inputs": [tensor([300, 1, 1, 1], [1, 4], "UINT8")]}, "does not hold"),
        ({"inputs": [tensor(["1", "2", "3", "4"], [1, 4])]}, "are numbers"),
        ({"inputs": [tensor([1, 2, 3, 4], [1, 4], "BF16")]}, "BF16"),
        ({"inputs": [tensor([1, 2, 3, 4], [-1, 4])]}, "shape"),
        ({"inputs": [tensor([1, 2, 3, 4], [True, 4])]}, "shape"),
        ({"inputs": [tensor([1] * 4, [1, 4])], "parameters": {"context": 3}}, "context is a text"),
        ({"inputs": [tensor([1] * 4, [1, 4])], "parameters": {"priority": 0.5}}, "whole number"),
        ({"inputs": [tensor([1] * 4, [1, 4])], "parameters": {"slo_ms": True}}, "slo_ms is a number"),
        ({"inputs": [tensor([1] * 4, [1, 4]), tensor([1] * 4, [1, 4])]}, "twice"),
        ({"id": 3, "inputs": [tensor([1] * 4, [1, 4])]}, "id is a text"),
        ({"inputs": [tensor([1] * 8, [2, 4]), tensor(["a"], [1], "BYTES", "candidates")]}, "one query a request"),
        ({"inputs": [tensor(["a", "a"], [2], "BYTES", "candidates")]}, "ids"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_cause(given: object, why: str) -> None:
    """All of these are the asker's to mend: 400."""
    with pytest.raises(RequestRefusedError, match=why) as caught:
        parsed(given)
    assert caught.value.status == 400


def test_lists_in_more_levels_than_a_shape_has_are_refused() -> None:
    """However deep: nothing recurses."""
    for datatype, leaf, why in (("BYTES", b'"a"', "texts are needed"), ("FP32", b"1", "are numbers")):
        deep = b"[" * 900 + leaf + b"]" * 900
        body = b'{"inputs":[{"name":"x","datatype":"%s","shape":[2],"data":[%s,%s]}]}'
        with pytest.raises(RequestRefusedError, match=why):
            open_inference.parse(HttpRequest("iris", body % (datatype.encode(), leaf, deep)))


def test_an_output_that_does_not_exist_is_refused_before_anything_is_asked() -> None:
    """With the names of those that do: these are all that a reply has."""
    with pytest.raises(RequestRefusedError, match="answer, confidence"):
        parsed({"inputs": [tensor([1] * 4, [1, 4])], "outputs": [{"name": "OUTPUT0"}]})
    told = orjson.loads(answered(parsed({"inputs": [tensor([1] * 4, [1, 4])]}), 1).body)
    assert tuple(one["name"] for one in told["outputs"]) == answers.OUTPUTS


@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_are_a_request_or_refused(body: bytes, cut: int) -> None:
    """Nothing else is ever raised."""
    try:
        open_inference.parse(HttpRequest("iris", body, json_bytes=cut, takes=TAKES))
    except RequestRefusedError as fault:
        assert fault.status == 400  # noqa: PT017


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(_JSON, _JSON, st.sampled_from([*tensors.TYPES, "BYTES", "x"]), _JSON)
def test_any_json_is_a_request_or_refused(shape: object, data: object, datatype: str, more: object) -> None:
    """Members of any type, in the places where tensors are expected."""
    one = {"name": "a", "datatype": datatype, "shape": shape, "data": data}
    try:
        body = orjson.dumps({"inputs": [one], "parameters": more})
    except TypeError:
        return  # integers that orjson does not write
    try:
        open_inference.parse(HttpRequest("iris", body, takes=None))
    except RequestRefusedError as fault:
        assert fault.status == 400  # noqa: PT017


@given(
    st.sampled_from(sorted(tensors.TYPES)),
    st.integers(1, 5),
    st.integers(0, 4),
    st.binary(min_size=160, max_size=160),
)
def test_raw_bytes_travel_unchanged(datatype: str, rows: int, width: int, data: bytes) -> None:
    """Of each type that travels as it is, rows have the very bytes that came."""
    size = np.dtype(tensors.TYPES[datatype]).itemsize
    raw = data[: rows * width * size]
    found = tensors.of_bytes("a", datatype, (rows, width), raw)
    made = tensors.rows_of("a", found, (rows, width))
    assert len(made) == rows
    if datatype != "FP16":
        assert b"".join(one.data for one in made if isinstance(one, Tensor)) == raw
