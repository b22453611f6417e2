"""What the rows of a sample are like travels with the package and its record, in the columns that drift watches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from deploy.state.packages import model_record
from schemas.codec import Codec
from schemas.records import Decision, Model, ModelPredictions, Outcome, Prediction, Query, Status, Tensor, outputs_of
from streams.usual.columns import of_prediction, of_query
from streams.usual.rows import FEWEST, UsualRows, read
from workers import manifest as manifests
from workers.errors import PackageError
from workers.manifest import MANIFEST
from workers.packages.packaging import package_function, package_sklearn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

X, Y = load_iris(return_X_y=True)
DECISION = Decision((0,), 0, "flowers", "single()", ("iris",), (1.0,))


def usual_of(folder: Path) -> UsualRows:
    """Return what a deployed package says of its rows; it has travelled."""
    codec = Codec()
    return read(codec.decode(Model, codec.encode(model_record(folder))).usual)


@pytest.mark.parametrize("output", ["label", "scores"])
def test_rows_and_answers_have_the_columns_that_queries_and_predictions_have(tmp_path: Path, output: str) -> None:
    """So that a new model can be compared with what it was made for; confidences are told by nobody before."""
    model = LogisticRegression(max_iter=500).fit(X, Y)
    manifest = package_sklearn(model, tmp_path / "iris", "iris", "1", X, output=output)
    assert manifests.read(tmp_path / "iris") == manifest
    usual = usual_of(tmp_path / "iris")
    assert set(usual.inputs) == {column.name for column in of_query(Query("q", "flowers", Tensor.of(X[0])))}
    assert set(usual.answers) == {"answer"}
    assert {sum(column.counts) for column in (*usual.inputs.values(), *usual.answers.values())} == {len(X) // 2}
    answers, scores = Tensor.of(model.predict(X[:1])), Tensor.of(model.predict_proba(X[:1]))
    batch = ModelPredictions("iris", "1", "w", ("q",), (Outcome.OK,), answers, scores, (0,), 0, 1, 1, 0)
    made = Prediction("q", "flowers", None, DECISION, Status.COMPLETE, None, 0, 1.0, (*outputs_of(batch),), 0, 0, 0, 0)
    (word,) = [value for column, value in of_prediction(made).items() if column == ("iris", "answer")]
    assert word in usual.answers["answer"].bins.words


def lengths(rows: Sequence[str]) -> Any:
    """Answer the length of texts."""
    return np.array([float(len(row)) for row in rows])


def of_rows(rows: Sequence[Any]) -> Any:
    """Answer zeros, to rows or addresses."""
    return np.zeros(len(rows))


def test_texts_have_their_length_and_numbers_are_in_fifths(tmp_path: Path) -> None:
    """As drift sees them."""
    package_function(lengths, tmp_path / "a", "lengths", "1", ["x" * number for number in range(200)], output="value")
    usual = usual_of(tmp_path / "a")
    assert usual.inputs["input length"].counts == usual.answers["answer"].counts
    assert usual.answers["answer"].counts[:5] == (20,) * 5


def test_few_rows_and_addresses_say_nothing(tmp_path: Path) -> None:
    """Then a model is compared with its own first answers."""
    model = LogisticRegression(max_iter=500).fit(X, Y)
    package_sklearn(model, tmp_path / "few", "iris", "1", X[: FEWEST - 1])
    package_function(of_rows, tmp_path / "at", "at", "1", X, output="value", by_reference=True)
    for name in ("few", "at"):
        assert model_record(tmp_path / name).usual == ""
        assert "usual" not in json.loads((tmp_path / name / MANIFEST).read_text())["options"]


def test_what_a_manifest_says_of_its_rows_has_a_form(tmp_path: Path) -> None:
    """It is refused with the field's name; a package of before has none."""
    package_sklearn(LogisticRegression(max_iter=500).fit(X, Y), tmp_path / "iris", "iris", "1", X)
    document = json.loads((tmp_path / "iris" / MANIFEST).read_text())
    document["options"]["usual"] = ["amount"]
    (tmp_path / "iris" / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(PackageError, match="usual of options"):
        manifests.read(tmp_path / "iris")
