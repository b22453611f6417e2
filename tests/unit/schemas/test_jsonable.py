"""Records as JSON for people, and queries and feedback from JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.codec import Codec
from schemas.definitions import field_names
from schemas.errors import SchemaError
from schemas.jsonable import feedback_from_json, query_from_json, to_json
from schemas.records import Feedback, Query, Tensor
from tests.samples import ALL, FULL, name_of

if TYPE_CHECKING:
    from schemas.avsc import Json


@pytest.mark.parametrize("record", ALL, ids=name_of)
def test_every_record_becomes_json(record: object) -> None:
    """Whatever is in a record, `json.dumps` takes it, strictly."""
    text = json.dumps(to_json(record), allow_nan=False)
    assert json.loads(text).keys() == set(field_names(type(record)))


def test_a_query_shows_the_start_of_its_tensor() -> None:
    """Dtype, shape and a few elements say which input it was."""
    assert to_json(FULL[0], shown=3)["input"] == {"dtype": "float32", "shape": [64], "values": [0.0, 1.0, 2.0]}


def test_enumerations_and_nested_records_are_shown() -> None:
    """A prediction reads as what it means."""
    shown = to_json(FULL[3])
    assert shown["status"] == "partial"
    assert shown["decision"]["arms"] == ["good", "bad"]  # type: ignore[index,call-overload]
    assert shown["outputs"][1]["outcome"] == "missing"  # type: ignore[index,call-overload]


def test_elements_that_are_not_finite_become_text() -> None:
    """JSON has no number for them."""
    tensor = Tensor.of(np.array([np.nan, np.inf, -np.inf, 1.0]))
    assert to_json(Feedback("q", tensor))["label"]["values"] == ["nan", "inf", "-inf", 1.0]  # type: ignore[index,call-overload]


def test_bytes_are_shown_as_base64() -> None:
    """The start of them, and how many there are."""
    assert to_json(Query("q", "a", b"\0" * 100), shown=1)["input"] == {"base64": "AAAA", "bytes": 100}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 2.5], Tensor.of(np.array([1, 2.5], np.float32))),
        ([[1, 2], [3, 4]], Tensor.of(np.array([[1, 2], [3, 4]], np.float32))),
        (3, Tensor.of(np.array(3, np.float32))),
        ("some text", "some text"),
        ({"values": [1, 2], "dtype": "int64"}, Tensor.of(np.array([1, 2]))),
        ({"base64": "AP8="}, b"\x00\xff"),
    ],
)
def test_inputs_are_read(value: Json, expected: object) -> None:
    """Lists are float32 tensors unless a dtype is given; text and bytes stay what they are."""
    query = query_from_json({"query_id": "q", "application": "digits", "input": value, "slo_ms": 20})
    assert query.input == expected
    assert Codec().decode(Query, Codec().encode(query)) == query


def test_candidates_are_read_as_ids_or_as_rows() -> None:
    """A list of texts, or of lists of numbers."""
    given: dict[str, Json] = {"query_id": "q", "application": "a", "input": 1}
    assert query_from_json({**given, "candidates": ["film-1", "film-2"]}).candidates == ("film-1", "film-2")
    rows = query_from_json({**given, "candidates": [[0.5, 1], [2, 3]]}).candidates
    assert isinstance(rows, Tensor)
    assert rows.numpy().tolist() == [[0.5, 1.0], [2.0, 3.0]]
    assert query_from_json({**given, "candidates": None}).candidates is None


@pytest.mark.parametrize(
    ("candidates", "fault"),
    [
        (["b", "a", "a"], "texts of at most 128 bytes that differ: 'a' is there 2 times"),
        (["a", 1], "texts of at most 128 bytes that differ"),
        (["x" * 129], "1 to 4096 texts"),
        ([], "1 to 4096 rows of finite numbers"),
        ([1, 2], "1 to 4096 rows of finite numbers"),
        ("film-1", "1 to 4096 rows of finite numbers"),
        ([{"a": 1}], "candidates: an input is"),
        ([[1], [1, 2]], "candidates: an input is"),
    ],
)
def test_candidates_that_are_none_are_refused(candidates: Json, fault: str) -> None:
    """With what they may be."""
    with pytest.raises(SchemaError, match=fault):
        query_from_json({"query_id": "q", "application": "a", "input": 1, "candidates": candidates})


def test_features_are_read_as_numbers() -> None:
    """Whole numbers are numbers."""
    query = query_from_json({"query_id": "q", "application": "a", "input": 1, "features": [1, 0.5]})
    assert query.features == (1.0, 0.5)
    assert Codec().decode(Query, Codec().encode(query)) == query


@pytest.mark.parametrize("label", [7, 0.5, "seven", None])
def test_labels_are_read(label: Json) -> None:
    """A label is a number, a text or nothing."""
    assert feedback_from_json({"query_id": "q", "label": label, "loss": 0.5}) == Feedback("q", label, 0.5)  # type: ignore[arg-type]


def test_scores_are_read() -> None:
    """A list as the label is a vector of scores."""
    label = feedback_from_json({"query_id": "q", "label": [0.25, 0.75]}).label
    assert label == Tensor.of(np.array([0.25, 0.75], np.float32))


def test_named_tensors_are_objects() -> None:
    """Of lists (float32) or of arrays that say their type, as an input and a label, and back."""
    document: dict[str, Json] = {"a": [1, 2], "b": {"values": [3], "dtype": "int8"}}
    query = query_from_json({"query_id": "q", "application": "a", "input": document})
    assert query.input == feedback_from_json({"query_id": "q", "label": document}).label
    assert to_json(query)["input"] == {
        "a": {"dtype": "float32", "shape": [2], "values": [1.0, 2.0]},
        "b": {"dtype": "int8", "shape": [1], "values": [3]},
    }
    with pytest.raises(SchemaError, match=r"input\.b: a string, numbers"):
        query_from_json({"query_id": "q", "application": "a", "input": {"a": [1], "b": None}})
    with pytest.raises(SchemaError, match="beside the other tensors"):
        query_from_json({"query_id": "q", "application": "a", "input": {"a": [1], "b": "x"}})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"application": "a", "input": 1}, "Query.query_id: missing"),
        ({"query_id": "q", "aplication": "a", "input": 1}, "did you mean 'application'"),
        ({"query_id": "q", "application": "a", "input": 1, "zzz": 1}, "known are query_id"),
        ({"query_id": "q", "application": "a", "input": ["x"]}, "input: not an array of float32"),
        ({"query_id": "q", "application": "a", "input": [[1], [1, 2]]}, "input: not an array"),
        ({"query_id": "q", "application": "a", "input": {"values": [1], "dtype": "float16"}}, "dtype one of float32"),
        ({"query_id": "q", "application": "a", "input": {"values": [300], "dtype": "uint8"}}, "input: not an array"),
        ({"query_id": "q", "application": "a", "input": {"base64": "!"}}, "input: not base64"),
        ({"query_id": "q", "application": "a", "input": None}, "input: a string"),
        ({"query_id": "q", "application": "a", "input": 1, "features": 0.5}, "features: a list of numbers"),
        ({"query_id": "q", "application": "a", "input": 1, "features": ["x"]}, "features: a list of numbers"),
        ({"query_id": "q", "application": "a", "input": 1, "features": [float("nan")]}, "not finite"),
        ({"query_id": "q", "application": "a", "input": 1, "features": [0] * 257}, "a query may have 256"),
    ],
)
def test_what_cannot_be_read_is_named(document: dict[str, Json], message: str) -> None:
    """The error says which field, and what would do."""
    with pytest.raises(SchemaError, match=message):
        query_from_json(document)
