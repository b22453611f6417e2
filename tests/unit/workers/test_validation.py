"""What a model takes: rows that fit cost nothing, what is safe is cast, and the rest is told why not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from schemas.records import Input, Model, Tensor
from workers.inputs.casting import cast, is_same_form, takes_alike, takes_none
from workers.inputs.columns import Column, stacked
from workers.inputs.rows import predict_rows
from workers.inputs.validation import Checked, validate
from workers.manifest import Manifest, Signature
from workers.runtimes.contract import Outputs, Rows

NUMBERS = Signature("tensor", "float32", (4,))


def tensor(numbers: Any, dtype: str) -> Tensor:
    """Make a row."""
    return Tensor.of(np.array(numbers, dtype=dtype))


def both(signature: Signature, row: Input, rows: int = 3) -> Checked:
    """Validate a row, some times over: as rows, and as one column of a record, which must come to the same."""
    apart = validate(signature, [row] * rows)
    if isinstance(row, Tensor):
        column = Column(Tensor(row.dtype, (rows, *row.shape), row.data * rows))
        together = validate(signature, stacked((column, place) for place in range(rows)))
        assert (together.good, together.reasons, together.messages) == (apart.good, apart.reasons, apart.messages)
        assert np.array_equal(np.asarray(together.rows), np.asarray(apart.rows))
    return apart


@pytest.mark.parametrize(
    ("given", "wanted", "numbers"),
    [
        ("float64", "float32", [0.1, -2.5, 1e29, 3]),
        ("float32", "float64", [0.5, -2.5, 1e29, 3]),
        ("int64", "float32", [1, -2, 1 << 24, 1 << 40]),
        ("uint8", "float32", [0, 1, 2, 255]),
        ("int64", "float64", [1, -2, 1 << 53, -(1 << 63)]),
        ("bool", "float32", [True, False, True, True]),
        ("float64", "int64", [1, -2, 3, 1 << 52]),
        ("float64", "uint8", [0, 1, 2, 255]),
        ("int64", "uint8", [0, 1, 2, 255]),
        ("uint64", "int8", [0, 1, 2, 127]),
        ("float64", "bool", [0, 1, 1, 0]),
        ("int64", "bool", [0, 1, 1, 0]),
    ],
)
def test_what_is_safe_is_cast(given: str, wanted: str, numbers: list[float]) -> None:
    """A list of numbers arrives as float64 or int64, whatever the model takes."""
    checked = both(Signature("tensor", wanted, (4,)), tensor(numbers, given))
    rows = np.asarray(checked.rows)
    assert (checked.good, rows.dtype, rows.shape) == ([0, 1, 2], np.dtype(wanted), (3, 4))
    assert rows.flags.writeable
    assert rows[0].tolist() == np.array(numbers, dtype=given).astype(wanted).tolist()


@pytest.mark.parametrize(
    ("given", "wanted", "numbers", "culprit"),
    [
        ("float64", "float32", [1, 2, 1e39, 4], "1e+39"),
        ("int64", "float32", [1, 2, 3, (1 << 24) + 1], "16777217"),
        ("int64", "float64", [1, 2, 3, (1 << 63) - 1], "9223372036854775807"),
        ("uint64", "float64", [1, 2, 3, (1 << 64) - 1], "18446744073709551615"),
        ("float64", "int64", [1, 2, 3, 5.1], "5.1"),
        ("float64", "int64", [1, 2, 3, 2.0**63], "9.223372036854776e+18"),
        ("float64", "int64", [1, 2, 3, np.nan], "nan"),
        ("float64", "int64", [1, 2, 3, np.inf], "inf"),
        ("float64", "uint8", [1, 2, 3, -1], "-1.0"),
        ("int64", "uint8", [1, 2, 3, 256], "256"),
        ("int64", "uint64", [1, 2, 3, -1], "-1"),
        ("uint64", "int64", [1, 2, 3, 1 << 63], "9223372036854775808"),
        ("float64", "bool", [1, 0, 0, 2], "2.0"),
        ("int64", "bool", [1, 0, 0, 2], "2"),
    ],
)
def test_what_would_be_another_number_is_refused(given: str, wanted: str, numbers: list[float], culprit: str) -> None:
    """The message names the first that would."""
    checked = both(Signature("tensor", wanted, (4,)), tensor(numbers, given))
    assert (checked.good, checked.reasons) == ([], dict.fromkeys(range(3), "dtype"))
    told = rf"takes {wanted}[4], got {given}[4] with "
    assert checked.messages[0] == f"{told}{culprit}, which {wanted} does not hold"


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        ((4,), (4,), True),
        ((1, 4), (4,), True),
        ((4,), (1, 4), True),
        ((4, 1), (4,), True),
        ((28, 28), (1, 28, 28), True),
        ((), (1,), True),
        ((1,), (), True),
        ((5,), (4,), False),
        ((2, 2), (4,), False),
        ((4, 2), (2, 4), False),
        ((0,), (), False),
    ],
)
def test_a_form_is_the_same_where_only_dimensions_of_one_differ(
    given: tuple[int, ...], wanted: tuple[int, ...], *, same: bool
) -> None:
    """The numbers then stand in the same order, one way or the other."""
    assert is_same_form(given, wanted) is same
    checked = both(Signature("tensor", "float32", wanted), tensor(np.zeros(given), "float64"))
    assert checked.good == ([0, 1, 2] if same else [])
    assert same or set(checked.reasons.values()) == {"shape"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (tensor(range(5), "float32"), "model iris takes float32[4], got float32[5]"),
        (tensor(range(5), "float64"), "model iris takes float32[4], got float64[5]"),
        (tensor(np.zeros((2, 3)), "int8"), "model iris takes float32[4], got int8[2,3]"),
        (tensor(3.5, "float32"), "model iris takes float32[4], got float32"),
        ("text", "model iris takes float32[4], got a text"),
        (b"bytes", "model iris takes float32[4], got bytes"),
        (
            tensor([1, np.nan, 2, 3], "float32"),
            "model iris takes float32[4] without NaN, got NaN at 1; packaged with allow_nan=True it takes it",
        ),
        (tensor([1, 2, np.inf, 3], "float64"), "model iris takes float32[4] below 1e+30, got inf at 2"),
        (tensor([1, 2, 3, -1e31], "float64"), "model iris takes float32[4] below 1e+30, got -1e+31 at 3"),
    ],
)
def test_a_row_that_is_refused_is_told_what_the_model_takes_and_what_it_got(row: Input, message: str) -> None:
    """Its neighbours, which are cast or fit as they are, are answered."""

    class Counting:
        def predict_batch(self, rows: Rows) -> Outputs:
            return Outputs(np.asarray(rows).sum(axis=1).astype(np.float64))

    manifest = Manifest("iris", "1", "function", NUMBERS, "value")
    predicted = predict_rows(Counting(), manifest, [tensor(range(4), "float64"), row, tensor(range(4), "float32")])
    assert predicted.messages == {1: message}
    assert np.asarray(predicted.answers).tolist() == [6.0, 0.0, 6.0]


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("string", b"a", "takes a text, got bytes"),
        ("string", tensor([1], "float32"), "takes a text, got float32[1]"),
        ("bytes", "a", "takes bytes, got a text"),
    ],
)
def test_models_of_texts_say_what_they_got_instead(kind: str, row: Input, message: str) -> None:
    """One row, one sentence."""
    assert both(Signature(kind), row).messages == dict.fromkeys(range(3), message)


def test_rows_that_fit_are_neither_cast_nor_copied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs is only what does not fit as it came."""

    def unwanted(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("workers.inputs.validation.cast", unwanted)
    assert both(NUMBERS, tensor(range(4), "float32")).good == [0, 1, 2]


def test_casting_tells_of_each_number() -> None:
    """Which of them the other type holds."""
    found, fits = cast(np.array([1.0, 0.5, -1.0, np.nan]), "uint8")
    assert (fits.tolist(), found[0]) == ([True, False, False, False], 1)


TABLE = Signature("table", columns=(("age", "float64"), ("visits", "int64"), ("is_new", "bool"), ("job", "string")))


@pytest.mark.parametrize(
    "row",
    [
        {"age": 41, "visits": 3, "is_new": True, "job": "nurse"},
        {"job": "nurse", "is_new": 1, "visits": 3.0, "age": 41.0, "besides": [1]},
        [41, 3, True, "nurse"],
    ],
)
def test_a_row_of_a_table_is_its_values_in_the_order_of_the_columns(row: Any) -> None:
    """By name, in any order, or by place."""
    assert both(TABLE, json.dumps(row)).rows == [(41.0, 3, True, "nurse")] * 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"age": 41, "visits": 3, "is_new": true}', "has no column job"),
        ("[41, 3]", "takes 4 columns (age, visits, is_new, job), got 2 values"),
        ("41", "takes 4 columns (age, visits, is_new, job), got 41"),
        ("nurse", "takes columns age, visits, is_new, job, as a JSON text, got 'nurse'"),
        ("[" * 100_000, "takes columns age, visits, is_new, job, as a JSON text, got '" + "[" * 40 + "'"),
        ('["old", 3, true, "nurse"]', "column age takes a number, got 'old'"),
        ('[1e31, 3, true, "nurse"]', "column age takes a number, got 1e+31"),
        ('[41, 3.5, true, "nurse"]', "column visits takes a whole number, got 3.5"),
        ('[41, 9223372036854775808, true, "nurse"]', "column visits takes a whole number, got 9223372036854775808"),
        ('[41, Infinity, true, "nurse"]', "column visits takes a whole number, got inf"),
        ('[41, 3, 2, "nurse"]', "column is_new takes true or false, got 2"),
        ("[41, 3, true, 5]", "column job takes a text, got 5"),
        ("[41, 3, true, {}]", "column job takes a text, got an object"),
        ("[41, 3, true, [[]]]", "column job takes a text, got a list"),
        (b"[]", "takes columns age, visits, is_new, job, as a JSON text, got bytes"),
        (
            tensor(range(4), "float32"),
            "takes columns age, visits, is_new, job, as a JSON text, got float32[4]",
        ),
        (
            '[null, 3, true, "nurse"]',
            "column age takes a number, got nothing (package the model with allow_nan=True if values may be missing)",
        ),
    ],
)
def test_a_row_that_is_none_of_the_table_is_told_why(row: Input, message: str) -> None:
    """The first thing that is wrong with it."""
    assert both(TABLE, row).messages == dict.fromkeys(range(3), message)


def test_values_may_be_missing_where_the_model_takes_that() -> None:
    """Numbers and texts become NaN, as in a data frame; whole numbers and booleans have nothing to say so with."""
    signature = Signature("table", columns=TABLE.columns, allow_nan=True)
    checked = validate(signature, ["[null, 3, true, null]", '[41, null, true, "nurse"]', "[NaN, 3, true, NaN]"])
    assert checked.good == [0, 2]
    assert [row[1:3] for row in checked.rows] == [(3, True)] * 2
    assert all(np.isnan(row[0]) and np.isnan(row[3]) for row in checked.rows)


def test_numbers_are_a_row_of_a_table_that_has_nothing_but_numbers() -> None:
    """As a list, or a numeric row of a data frame, arrives."""
    signature = Signature("table", columns=(("a", "float64"), ("b", "int64")))
    assert both(signature, tensor([0.5, 2], "float64")).rows == [(0.5, 2)] * 3
    assert both(signature, tensor([0.5, 2.5], "float64")).good == []


FLOATS = Model("digits", "1", "function", "digits-1", "", "label", "float32", (2,))
WHOLE = replace(FLOATS, version="2", dtype="int64")


@pytest.mark.parametrize(("rows", "none"), [([[1, 2]], False), ([[0.5, 2]], True), ([[0.5, 2], [1, 2]], False)])
def test_a_version_of_whole_numbers_takes_floats_that_are_whole(rows: list[list[float]], none: bool) -> None:
    """Only the numbers tell; the records of the versions do not."""
    assert not takes_alike(WHOLE, FLOATS)
    assert takes_none(WHOLE, FLOATS, [tensor(row, "float32") for row in rows]) is none


def test_a_row_with_missing_bytes_fits_no_version() -> None:
    """It is refused whoever serves, so it speaks against no version."""
    assert not takes_none(WHOLE, FLOATS, [Tensor("float32", (2,), b"\0" * 7)])
