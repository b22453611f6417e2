"""Named tensors in a worker: rows that fit are cast and stacked, others refused by name; answers are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas.records import ModelQueries, NamedTensors, Outcome, Tensor, TensorForm
from workers.errors import OutputError, PackageError
from workers.executors.joining import joined
from workers.executors.predictor import blank
from workers.inputs.rows import predict_rows
from workers.inputs.validation import validate
from workers.manifest import Manifest, Signature, digest, read
from workers.packages.loading import load_package
from workers.packages.packaging import package_function
from workers.runtimes.contract import Outputs, by_name, forms_answered, tensors

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.records import Input

FORMS = (TensorForm("left", "float32", (2,)), TensorForm("right", "int8"))
TAKES = Signature("tensor", FORMS)
ANSWERS = (TensorForm("total", "float64"), TensorForm("both", "float32", (2,)))
MANIFEST = Manifest("toy", "1", "function", TAKES, "tensors", outputs=ANSWERS)


def row(left: Any = (1, 2), right: Any = 3, **more: Any) -> NamedTensors:
    """Make a row, of int64 and float64 as a client would."""
    return NamedTensors.named({name: np.asarray(each) for name, each in {"left": left, "right": right, **more}.items()})


def exact(left: tuple[float, float], right: int) -> NamedTensors:
    """Make a row in the model's own types."""
    return row(np.array(left, np.float32), np.array(right, np.int8))


class Summing:
    """Answers both tensors; raises on 9."""

    def predict_batch(self, rows: Any) -> Outputs:
        """Answer by name."""
        given = by_name(rows)
        if (given["right"] == 9).any():
            raise ValueError("nine")
        both = given["left"] * np.float32(2)
        return tensors({"total": given["left"].sum(1) + given["right"], "both": both}, ANSWERS, len(rows))


def test_rows_of_the_models_types_are_stacked_and_others_cast() -> None:
    """In any order of names; dimensions of 1 do not count."""
    swapped = NamedTensors.named({"right": np.array([7]), "left": np.array([[0.5, 1.5]])})
    for rows in ([exact((1, 2), 3)] * 2, [exact((1, 2), 3), swapped]):
        checked = validate(TAKES, rows)
        assert checked.good == [0, 1]
        assert not checked.reasons
    assert by_name(checked.rows)["left"].tolist() == [[1, 2], [0.5, 1.5]]
    assert by_name(checked.rows)["right"].tolist() == [3, 7]


@pytest.mark.parametrize(
    ("given", "reason", "said"),
    [
        ("text", "kind", "got a text"),
        (Tensor.of(np.zeros(2, np.float32)), "kind", "takes left float32[2], right int8, got float32[2]"),
        (NamedTensors.named({"left": np.zeros(2)}), "kind", "got left float64[2]"),
        (row(extra=1), "kind", "extra int64"),
        (row(left=[1, 2, 3]), "shape", "got left int64[3]"),
        (row(right=300), "dtype", "with 300, which int8 does not hold"),
        (row(right=0.5), "dtype", "with 0.5, which int8 does not hold"),
        (row(left=[np.nan, 0]), "number", "in left takes float32[2] without NaN, got NaN at 0"),
        (exact((np.inf, 0), 1), "number", "in left"),
    ],
)
def test_a_row_that_does_not_fit_fails_alone(given: Input, reason: str, said: str) -> None:
    """With the reason, among rows that fit: before, between and behind."""
    found = predict_rows(Summing(), MANIFEST, [exact((1, 2), 3), given, exact((3, 4), 5)])
    assert found.outcomes == (Outcome.OK, Outcome.INVALID, Outcome.OK)
    assert found.reasons == {1: reason}
    assert said in found.messages[1]
    assert np.asarray(found.answers)["total"].tolist() == [6, 0, 12]
    assert np.asarray(found.answers)["both"].tolist() == [[2, 4], [0, 0], [6, 8]]


def test_rows_of_a_column_are_no_row() -> None:
    """A query with two rows in it would shift those of others."""
    two = NamedTensors.named({"left": np.zeros((2, 2), np.float32), "right": np.zeros(2, np.int8)}, (2,))
    assert validate(TAKES, [exact((1, 2), 3), two]).reasons == {1: "kind"}


def test_the_row_that_a_model_raises_on_fails_alone() -> None:
    """Halves are tried as of any batch."""
    found = predict_rows(Summing(), MANIFEST, [exact((1, 2), at) for at in (3, 9, 4, 5)])
    assert [outcome is Outcome.OK for outcome in found.outcomes] == [True, False, True, True]
    assert np.asarray(found.answers)["total"].tolist() == [6, 0, 7, 8]


def test_an_answer_that_is_not_finite_fails_its_row() -> None:
    """Whichever tensor holds it."""

    class Spoilt(Summing):
        def predict_batch(self, rows: Any) -> Outputs:
            answers: Any = super().predict_batch(rows).answers
            answers["both"][1, 0] = np.nan
            return Outputs(answers)

    found = predict_rows(Spoilt(), MANIFEST, [exact((1, 2), 3)] * 3)
    assert [outcome is Outcome.OK for outcome in found.outcomes] == [True, False, True]
    assert np.asarray(found.answers)["both"].tolist() == [[2, 4], [0, 0], [2, 4]]


def test_parts_of_a_batch_are_joined_though_one_has_failed() -> None:
    """Its answers are numbers, as nothing is known of their form."""
    good, bad = (predict_rows(Summing(), MANIFEST, [exact((1, 2), at)]) for at in (3, 9))
    for parts in ([good, bad], [bad, good]):
        found = joined(parts)
        assert np.asarray(found.answers)["total"].tolist() == [6 if part is good else 0 for part in parts]


@pytest.mark.parametrize(
    "raw",
    [
        {"total": np.zeros(2)},
        {"total": np.zeros(2), "both": np.zeros((2, 3))},
        {"total": np.zeros(3), "both": np.zeros((3, 2))},
        {"total": np.array(["a", "b"]), "both": np.zeros((2, 2))},
        [np.zeros(2)],
        np.zeros((2, 3)),
        None,
    ],
)
def test_answers_of_another_form_are_refused(raw: Any) -> None:
    """Names, shapes, rows, types and counts."""
    with pytest.raises(OutputError):
        tensors(raw, ANSWERS, 2)


@pytest.mark.parametrize(
    ("raw", "names", "forms"),
    [
        ({"a": np.zeros(2), "b": np.zeros((2, 3), np.int8)}, (), [("a", "float64", ()), ("b", "int8", (3,))]),
        ({"a": np.zeros(2), "b": np.zeros((2, 3), np.int8)}, ("b",), [("b", "int8", (3,))]),
        ((np.zeros(2), np.zeros((2, 1), np.float16)), (), [("output_0", "float64", ()), ("output_1", "float32", (1,))]),
        (np.zeros((2, 3)), (), [("answer", "float64", (3,))]),
        (np.zeros((2, 2)), ("x", "y"), [("x", "float64", ()), ("y", "float64", ())]),
    ],
)
def test_forms_are_found_by_what_is_answered(raw: Any, names: tuple[str, ...], forms: Any) -> None:
    """Mappings, tuples, one array as a vector or by column; halves travel as float32."""
    assert [*forms_answered(raw, names, 2)] == forms


def test_a_package_of_them_is_read_back_and_warms_up(tmp_path: Path) -> None:
    """Its manifest, its blank row and the rows that it keeps."""
    sample = {"left": np.ones((3, 2), np.float32), "right": np.arange(3, dtype=np.float32)}
    made = package_function("tests.toys:left_and_right", tmp_path / "p", "toy", "1", sample, output="tensors")
    assert read(tmp_path / "p") == made
    assert str(made).endswith("takes left float32[2], right float32, answers total float32, both float32[2]")
    model = load_package(tmp_path / "p", digest=digest(tmp_path / "p"))
    assert [each.arrays()["right"].item() for each in model.warm_up if isinstance(each, NamedTensors)] == [0, 1, 2]
    empty = blank(made.input)
    assert predict_rows(model.runtime, made, [empty]).outcomes == (Outcome.OK,)


@pytest.mark.parametrize(
    ("sample", "more", "said"),
    [
        ({"left": np.ones((3, 2)), "right": np.ones(2)}, {}, "as many rows"),
        ({"left": np.array(["a"])}, {}, "a type that travels"),
        ({}, {}, "as many rows"),
        ({"left": np.ones((3, 2)), "right": np.ones(3)}, {"by_reference": True}, "stands for one tensor"),
        ({"left": np.ones((3, 2)), "right": np.ones(3)}, {"classes": ["a"]}, "has no classes"),
        ({"left": np.ones((3, 2)), "right": np.ones(3)}, {"outputs": ["none"]}, "must answer the tensors none"),
    ],
)
def test_what_cannot_be_packaged_is_said(tmp_path: Path, sample: Any, more: dict[str, Any], said: str) -> None:
    """Of the sample, and of what is wanted."""
    with pytest.raises(PackageError, match=said):
        package_function(
            "tests.toys:left_and_right", tmp_path / "p", "toy", "1", sample, **{"output": "tensors", **more}
        )


def test_model_queries_of_another_count_of_rows_cannot_be_written() -> None:
    """The codec holds columns to as many rows as ids."""
    from schemas.codec import Codec
    from schemas.errors import SchemaError

    with pytest.raises(SchemaError, match="inputs has 2"):
        Codec().encode(ModelQueries(("q",), 0, (1,), NamedTensors.named({"a": np.zeros(2)}, (2,))))
