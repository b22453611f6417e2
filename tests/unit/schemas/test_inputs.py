"""What a client gives becomes what travels: the same value, or an error."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.resources import files
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from schemas.errors import SchemaError
from schemas.inputs import MAX_CANDIDATES, are_rankable, as_features, as_input, as_label, row_text
from schemas.records import NamedTensors, Tensor
from schemas.rows import each_input


@pytest.mark.parametrize(
    ("given", "label"),
    [
        *[(one, 3) for one in (3, [3], np.array([3]), np.array(3), np.array([[3]], np.uint8), np.int64(3))],
        *[(one, 0.5) for one in (0.5, np.float16(0.5), np.longdouble(0.5), np.array([0.5], np.longdouble))],
        *[(one, "cat") for one in ("cat", np.str_("cat"), np.array(["cat"]), np.array(["cat"], dtype=object))],
        (np.True_, True),
        (2**64 - 1, 2**64 - 1),
        (np.uint64(2**64 - 1), 2**64 - 1),
    ],
)
def test_a_label_is_a_number_or_text_also_as_the_only_one_of_a_list(given: Any, label: Any) -> None:
    """As estimators and data frames give them."""
    found = as_label(given)
    assert (type(found), found) == (type(label), label)


def test_several_numbers_are_scores() -> None:
    """As an array."""
    assert as_label([0.25, 0.75]) == Tensor.of(np.array([0.25, 0.75]))


@pytest.mark.parametrize(
    "given",
    [
        *(None, [], [None], [[]], [1, "a"], b"cat", [b"cat"], np.bytes_(b"cat"), 1j, np.array([1j]), object()),
        *(np.datetime64("2024-01-01", "ns"), np.timedelta64(1, "ns"), date(2024, 1, 1), Decimal(1), [2**53 + 1, 0.5]),
    ],
)
def test_what_is_no_label_is_refused(given: Any) -> None:
    """Nothing is made a number or text that is none."""
    with pytest.raises(TypeError):
        as_label(given)


@pytest.mark.parametrize(
    "given",
    [
        *([2**53 + 1, 0.5], [7, 2**63 + 5], [2**64], [1j], [1, "a"], np.array(["2024-01-01"], "M8[ns]")),
        *(np.array([1], "m8[s]"), np.ma.array([1.0, 2.0], mask=[False, True]), {"id": UUID(int=1)}, [object()]),
    ],
)
def test_an_input_is_not_changed_on_its_way(given: Any) -> None:
    """It is refused instead."""
    with pytest.raises(TypeError):
        as_input(given)


def test_whole_numbers_keep_their_type() -> None:
    """Up to the largest."""
    for numbers, dtype in (
        ([2**53 + 1, 2], "int64"),
        (np.array([2**64 - 1], np.uint64), "uint64"),
        ([2.0**60], "float64"),
    ):
        found = as_input(numbers)
        assert isinstance(found, Tensor)
        assert (found.dtype, found.numpy().tolist()) == (dtype, list(numbers))


def test_a_row_has_moments_as_texts_and_leaves_out_what_cannot_travel() -> None:
    """With one warning for a column and type."""
    row = {
        "at": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "day": date(2024, 1, 2),
        "exact": np.datetime64("2024-01-02T03:04:05.123456789"),
        "never": np.datetime64("NaT"),
        "some": np.float32(0.5),
        "reference": UUID(int=1),
        "price": Decimal("1.5"),
        "since": np.timedelta64(1, "ns"),
        "wave": np.complex64(1j),
    }
    with pytest.warns(UserWarning, match="is left out of rows") as told:
        texts = {row_text(row), row_text(row)}
    assert sorted(str(each.message).split()[1] for each in told) == ["price", "reference", "since", "wave"]
    wanted = (
        '{"at": "2024-01-02T03:04:05.000006+00:00", "day": "2024-01-02", "exact": "2024-01-02T03:04:05.123456789",'
        ' "never": null, "some": 0.5}'
    )
    assert texts == {wanted}


@pytest.mark.parametrize("values", [["1.5"], [b"1"], [2**53 + 1], [np.int64(2**53 + 1)], [1j], [None], [10**400]])
def test_features_are_numbers_that_stay_equal(values: Any) -> None:
    """A text is none, and a large whole number is not rounded."""
    with pytest.raises(SchemaError):
        as_features(values)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_a_tensor_of_torch_is_an_input_and_a_label(kind: str) -> None:
    """Also one that learns, and of a type that numpy has not."""
    torch = pytest.importorskip("torch")
    row = torch.tensor([0.5, 2.0], dtype=getattr(torch, kind), requires_grad=True)
    assert as_input(row) == Tensor.of(np.array([0.5, 2.0], np.float32))
    assert as_label(row[1]) == 2.0


def test_a_mapping_with_an_array_is_named_tensors() -> None:
    """Arrays, lists, tensors and numbers beside them keep their types, halves aside; without an array it is a row."""
    given = {"a": np.ones((2, 1), np.float16), "b": [1, 2], "c": 0.5, "d": Tensor.of(np.array([True]))}
    found = as_input(given)
    assert isinstance(found, NamedTensors)
    assert [*found.dtype] == [
        ("a", "float32", (2, 1)),
        ("b", "int64", (2,)),
        ("c", "float64", ()),
        ("d", "bool", (1,)),
    ]
    assert found.lists() == {"a": [[1], [1]], "b": [1, 2], "c": 0.5, "d": [True]}
    assert as_input(found) is found
    assert as_label({"b": [1, 2]}) == as_input({"b": [1, 2]})
    assert as_input({"c": 0.5, "e": "text"}) == '{"c": 0.5, "e": "text"}'


@pytest.mark.parametrize("given", [{"a": [1], "b": "text"}, {"a": [[1], [1, 2]]}, {"a": []}, {"": [1]}, {"a": ["x"]}])
def test_what_are_no_tensors_is_refused(given: Any) -> None:
    """Texts beside arrays, lists of different lengths, nothing at all, no name."""
    with pytest.raises(TypeError):
        as_input(given)


def test_arrays_by_name_of_different_lengths_are_no_rows() -> None:
    """Each row has all of them."""
    with pytest.raises(TypeError, match="as many rows each"):
        each_input({"a": [[1], [2]], "b": [1]})


def test_the_schema_says_how_many_candidates_a_query_may_have() -> None:
    """As many as are accepted: whoever makes a client reads no other text."""
    fields = json.loads(files("schemas").joinpath("Query.avsc").read_text(encoding="utf-8"))["fields"]
    (said,) = [field["doc"] for field in fields if field["name"] == "candidates"]
    assert f"at most {MAX_CANDIDATES:,}: rows" in said
    assert "of more than 256 rows 32,768 numbers at most" in said
    assert are_rankable(256, 256)
    assert are_rankable(257, 32_768 // 257)
    assert not are_rankable(257, 32_768 // 257 + 1)
