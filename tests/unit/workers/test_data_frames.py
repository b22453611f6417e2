"""Models fitted on data frames: packaged with a frame, asked with a mapping or a row of one; pandas stays optional."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from schemas.inputs import row_text
from schemas.records import Outcome, Tensor
from streams.client import as_input
from workers.errors import PackageError
from workers.inputs.rows import predict_rows
from workers.manifest import Manifest, Signature
from workers.packages.loading import load_package
from workers.packages.packaging import package_function, package_sklearn
from workers.runtimes.tables import shaper

if TYPE_CHECKING:
    from pathlib import Path

LABELS = np.array(["stay", "leave"] * 6)


@pytest.fixture
def frame() -> Any:
    """Return a data frame of numbers, booleans and texts."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    jobs = ["nurse", "smith", "cook"] * 4
    columns = {"age": np.arange(20.0, 32.0), "visits": range(12), "is_new": [True, False] * 6, "job": jobs}
    return pandas.DataFrame(columns)


def pipeline(frame: Any) -> Any:
    """Return the usual pipeline of tabular data, fitted."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job"]), (StandardScaler(), ["age", "visits"])
    )
    return make_pipeline(columns, LogisticRegression()).fit(frame, LABELS)


def test_a_pipeline_fitted_on_a_data_frame_answers_rows_as_they_travel(frame: Any, tmp_path: Path) -> None:
    """A mapping, a row, and a frame of one row are the same; the answers are the estimator's own."""
    fitted = pipeline(frame)
    package_sklearn(fitted, tmp_path / "p", "churn", "1", frame.head(), output="scores")
    model = load_package(tmp_path / "p")
    columns = (("age", "float64"), ("visits", "int64"), ("is_new", "any"), ("job", "string"))
    assert model.manifest.input == Signature("table", columns=columns)
    asked = [as_input(dict(frame.iloc[1])), as_input(frame.iloc[1]), as_input(frame.iloc[[1]])]
    assert asked == ['{"age": 21.0, "visits": 1, "is_new": false, "job": "smith"}'] * 3
    predicted = predict_rows(model.runtime, model.manifest, [*asked, "[21, 1, false, 5]"])
    assert predicted.outcomes == (*[Outcome.OK] * 3, Outcome.INVALID)
    assert predicted.messages == {3: "model churn column job takes a text, got 5"}
    np.testing.assert_allclose(np.asarray(predicted.scores)[0], fitted.predict_proba(frame.iloc[[1]])[0])


def test_numbers_alone_need_no_names(frame: Any, tmp_path: Path) -> None:
    """A row of numbers travels as an array, and an estimator that was fitted on arrays takes arrays."""
    numbers = frame[["age", "visits"]]
    assert isinstance(as_input(numbers.iloc[1]), Tensor)
    named = package_sklearn(LinearRegression().fit(numbers, numbers.age), tmp_path / "a", "n", "1", numbers.head())
    plain = LinearRegression().fit(numbers.to_numpy(), numbers.age)
    assert (named.input.kind, named.output) == ("table", "value")
    assert package_sklearn(plain, tmp_path / "b", "n", "1", numbers.head()).input.shape == (2,)
    model = load_package(tmp_path / "a")
    assert predict_rows(model.runtime, model.manifest, [as_input(numbers.iloc[1])]).outcomes == (Outcome.OK,)
    with pytest.raises(PackageError, match="fitted on an array"):
        package_sklearn(plain, tmp_path / "c", "n", "1", frame.head())


def test_a_column_that_the_model_does_not_read_may_be_anything(frame: Any, tmp_path: Path) -> None:
    """In the sample and in rows, by name, in order, or not at all; what cannot travel is left out with one warning."""
    frame["id"] = [uuid.UUID(int=number) for number in range(12)]
    fitted = pipeline(frame)
    made = package_sklearn(fitted, tmp_path / "p", "churn", "1", frame.head(), output="label")
    assert dict(made.input.columns)["is_new"] == dict(made.input.columns)["id"] == "any"
    model = load_package(tmp_path / "p")
    with pytest.warns(UserWarning, match="column id is left out of rows: UUID cannot travel") as warned:
        asked = [as_input(frame.iloc[3]), as_input(frame.iloc[[3]])]
    assert len(warned) == 1
    rows = [*asked, '{"age": 23, "visits": 3, "job": "nurse", "is_new": {}}', '[23, 3, "what", "nurse", []]']
    predicted = predict_rows(model.runtime, model.manifest, rows)
    assert predicted.answers == (*fitted.predict(frame.iloc[[3]]),) * 4
    assert "is_new" not in str(made)


def test_a_column_that_cannot_travel_is_not_given_to_the_model(frame: Any, tmp_path: Path) -> None:
    """One that reads it is refused; frames without names are, too."""
    frame["id"] = [uuid.UUID(int=number) for number in range(12)]
    with pytest.raises(PackageError, match="KeyError: 'id'"):
        package_function("tests.toys:identified", tmp_path / "p", "n", "1", frame)
    with pytest.raises(PackageError, match="no column can travel: id"):
        package_function("tests.toys:identified", tmp_path / "p", "n", "1", frame[["id"]])
    with pytest.raises(PackageError, match="must have names"):
        package_function("tests.toys:crowd", tmp_path / "p", "n", "1", frame.set_axis(range(5), axis=1))


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_moments_travel_as_texts_and_arrive_as_they_were(frame: Any, tmp_path: Path, unit: str, zone: Any) -> None:
    """In the unit and zone of the sample; what these do not hold is refused."""
    pandas = pytest.importorskip("pandas")
    at = pandas.Series(pandas.date_range("2024-03-31", periods=12, freq="h", unit=unit))
    frame["at"] = at if zone is None else at.dt.tz_localize("UTC").dt.tz_convert(zone)
    package_function("tests.toys:stamped", tmp_path / "p", "n", "1", frame)
    model = load_package(tmp_path / "p")
    rows = [as_input(frame.iloc[place]) for place in range(12)]
    answers = predict_rows(model.runtime, model.manifest, rows).answers
    assert answers == tuple(f"{moment.isoformat()} {frame['at'].dtype}" for moment in frame["at"])
    wrong = {"s": "2024-01-01T00:00:00.5", "ns": "9999-01-01T00:00:00"}[unit] + ("Z" if zone else "")
    other = "2024-01-01T00:00:00" + ("" if zone else "Z")
    short = predict_rows(
        model.runtime,
        model.manifest,
        [row_text({**dict(frame.iloc[0]), "at": "20240101T0000" + ("Z" if zone else "")})],
    )
    assert short.answers[0].startswith("2024-01-01T0")
    for text in (wrong, other, "yesterday", 5, "2024-01-01T00:00:00.0000000001" + ("Z" if zone else "")):
        predicted = predict_rows(model.runtime, model.manifest, [row_text({**dict(frame.iloc[0]), "at": text})])
        assert predicted.outcomes == (Outcome.INVALID,), text


def test_a_whole_number_that_a_column_does_not_hold_is_refused(frame: Any, tmp_path: Path) -> None:
    """It is neither rounded nor wrapped."""
    package_function("tests.toys:crowd", tmp_path / "p", "n", "1", frame[["age", "visits"]])
    model = load_package(tmp_path / "p")
    rows = ['{"age": 9007199254740993, "visits": 1}', '{"age": 1, "visits": 9223372036854775808}', "[1, 1.5]"]
    assert predict_rows(model.runtime, model.manifest, rows).outcomes == (Outcome.INVALID,) * 3


def test_a_worker_without_pandas_says_that_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it loads such a model, and no other."""
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(PackageError, match=r"pip install 'skysail\[pandas\]'"):
        shaper(Signature("table", columns=(("a", "float64"),)))
    assert shaper(Signature("string"))(["a"]) == ["a"]


def test_a_list_of_texts_may_be_an_array(tmp_path: Path) -> None:
    """As numpy makes it of strings."""
    for name, sample in (("a", np.array(["red", "green"])), ("b", np.array(["red", "green"], dtype=object))):
        assert package_function("tests.toys:shout", tmp_path / name, "n", "1", sample).input == Signature("string")


def test_a_regressor_answers_a_value_and_says_so_where_a_label_was_wanted(tmp_path: Path) -> None:
    """Nobody has to know what an output is."""
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    fitted = LinearRegression().fit(x, np.array([0.5, 1.5, 2.5, 3.5, 4.5, 5.5]))
    made = package_sklearn(fitted, tmp_path / "a", "n", 3, x)
    assert str(made) == "n 3 (sklearn): takes float32[2], answers a number"
    with pytest.raises(PackageError, match="the output is `value`"):
        package_sklearn(fitted, tmp_path / "b", "n", "1", x, output="label")


@pytest.mark.parametrize("version", [1.5, True, None])
def test_a_version_is_a_text_or_a_whole_number(version: Any, tmp_path: Path) -> None:
    """Anything else is refused when it is packaged."""
    with pytest.raises(PackageError, match="a version is a text"):
        package_function("tests.toys:shout", tmp_path / "a", "n", version, ["a"])


def test_a_manifest_tells_what_it_is_in_one_line() -> None:
    """For whoever packages in a notebook."""
    made = Manifest("iris", "1", "sklearn", Signature("tensor", "float32", (4,)), "label", (0, 1, 2))
    assert str(made) == "iris 1 (sklearn): takes float32[4], answers a label of 3 classes"
