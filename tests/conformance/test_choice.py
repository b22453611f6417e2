"""Several runtimes of one model: agreement demanded, the fastest one kept for each size of a batch."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import weakref
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from schemas.records import Model
from streams.operators.contract import Load
from streams.runtime.ports import ExecutorEvents
from workers.errors import PackageError, WorkerError
from workers.executors import frames
from workers.executors.factory import executors_of
from workers.manifest import MANIFEST, digest
from workers.packages.autotune import (
    EXAMPLES,
    EXAMPLES_BYTES,
    SIZES,
    BySize,
    Choice,
    difference,
    examples,
    measure,
    spans_of,
)
from workers.packages.loading import load_package
from workers.packages.packaging import package_onnx, package_sklearn
from workers.packages.variants import CONVERTERS, RUNTIMES
from workers.runtimes.contract import Outputs
from workers.runtimes.sklearn import SklearnRuntime
from workers.runtimes.trees import TreesRuntime
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.runtimes.contract import Rows

NEEDS_ONNX = pytest.mark.skipif(
    importlib.util.find_spec("skl2onnx") is None, reason="the extra `onnx` is not installed"
)
NEEDS_HUMMINGBIRD = pytest.mark.skipif(
    importlib.util.find_spec("hummingbird") is None, reason="Hummingbird is not installed"
)
X = np.random.default_rng(5).normal(size=(60, 4)).astype(np.float32)
Y = (X[:, 0] > X[:, 1]).astype(np.int64)


class Counting:
    """Answers zeros after a number of turns of a loop."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.sizes: list[int] = []

    def predict_batch(self, rows: Rows) -> Outputs:
        """Do some work, note the size."""
        self.sizes.append(len(rows))
        total = 0
        for turn in range(self.turns):
            total += turn
        return Outputs(np.zeros(len(rows), dtype=np.int64))


def test_examples_are_the_sample_and_rows_mixed_from_it() -> None:
    """Every feature of every row occurs in that feature of the sample; the same sample gives the same rows."""
    rows = examples(X[:5])
    assert (rows.shape, rows.dtype) == ((EXAMPLES, 4), X.dtype)
    assert np.array_equal(rows[:5], X[:5])
    assert all(np.isin(rows[:, column], X[:5, column]).all() for column in range(4))
    assert np.array_equal(rows, examples(X[:5]))


def test_examples_keep_a_package_small() -> None:
    """Large rows are fewer, and a large sample is cut."""
    assert examples(np.zeros((4, 1 << 16), dtype=np.float32)).shape == (4, 1 << 16)
    assert examples(np.zeros((4, 2 * EXAMPLES_BYTES), dtype=np.uint8)).shape[0] == 1
    assert len(examples(np.zeros((5_000, 2), dtype=np.float32))) == EXAMPLES


def test_equal_labels_and_close_numbers_agree() -> None:
    """The largest difference is told."""
    scores = np.array([[0.25, 0.75]])
    first, second = Outputs(np.array([1]), scores), Outputs(np.array([1]), scores + 5e-6)
    assert difference(first, second) == pytest.approx(5e-6)
    assert difference(Outputs(("a",)), Outputs(("a",))) == 0.0
    assert difference(Outputs(np.array([1e6])), Outputs(np.array([1e6 + 1]))) == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (Outputs(np.array([0, 1])), Outputs(np.array([0, 2])), "1 of 2"),
        (Outputs(("a", "b")), Outputs(("b", "b")), "1 of 2"),
        (Outputs(np.array([0.5])), Outputs(np.array([0.6])), "differ by 0.1"),
        (Outputs(np.array([0.5])), Outputs(np.array([np.nan])), "differ by nan"),
        (Outputs(np.array([0]), np.zeros((1, 2))), Outputs(np.array([0]), np.zeros((1, 3))), "differ by inf"),
    ],
)
def test_models_that_answer_otherwise_are_refused(first: Outputs, second: Outputs, message: str) -> None:
    """With how much they differ."""
    with pytest.raises(PackageError, match=message):
        difference(first, second)


def test_the_faster_runtime_is_chosen() -> None:
    """Both are asked for the same batches, of every size."""
    runtimes = {"slow": Counting(20_000), "fast": Counting(1)}
    found = measure(runtimes, X, sizes=(1, 100))
    assert found.spans == ((1, "fast"),)
    assert set(runtimes["slow"].sizes) == set(runtimes["fast"].sizes) == {1, 100}


def test_a_choice_is_one_readable_line() -> None:
    """For the log."""
    times = {"sklearn": {1: 200.4, 16: 210.0}, "onnx": {1: 9.7, 16: 220.0}}
    measured = "(sklearn 200 210; onnx 10 220 us for batches of 1 16)"
    assert str(Choice(((1, "onnx"),), times)) == f"onnx {measured}"
    assert str(Choice(((1, "onnx"), (15, "sklearn")), times)) == f"onnx, sklearn from 15 rows {measured}"


def test_each_size_has_the_runtime_that_is_the_fastest_there() -> None:
    """From where the lines between what was measured cross; a third form nowhere."""
    times = {
        "onnx": {1: 40, 17: 500, 128: 2_000},
        "trees": {1: 160, 17: 380, 128: 1_000},
        "sklearn": dict.fromkeys((1, 17, 128), 9_000),
    }
    assert spans_of(times) == ((1, "onnx"), (9, "trees"))


TIMES = st.lists(st.floats(0.1, 1e6), min_size=4, max_size=4)


@given(st.dictionaries(st.sampled_from("abc"), TIMES, min_size=1))
def test_spans_rise_from_one_and_name_nothing_that_is_visibly_slower_where_it_was_measured(
    times: dict[str, list[float]],
) -> None:
    """Whatever was measured, back and forth between the forms."""
    batch_us = {name: dict(zip(SIZES, of, strict=True)) for name, of in times.items()}
    spans = spans_of(batch_us)
    starts = [rows for rows, _ in spans]
    assert starts[0] == 1
    assert all(before < after for before, after in pairwise(starts))
    assert all(before != after for (_, before), (_, after) in pairwise(spans))
    for size in SIZES:
        name = spans[bisect_right(starts, size) - 1][1]
        assert batch_us[name][size] * 0.9 <= min(of[size] for of in batch_us.values()) * (1 + 1e-9)


def test_what_wins_by_less_than_a_tenth_somewhere_is_not_kept_for_it() -> None:
    """It would take memory for next to nothing."""
    assert spans_of({"onnx": {1: 100, 128: 1_000}, "trees": {1: 95, 128: 4_000}}) == ((1, "onnx"),)


def test_a_batch_goes_to_the_runtime_of_its_size_and_the_others_are_let_go() -> None:
    """Nothing holds on to the one that is nowhere the fastest."""
    small, large, slow = Counting(1), Counting(1), Counting(1)
    choice, forgotten = Choice(((1, "small"), (8, "large")), {}), weakref.ref(slow)
    runtime = BySize(choice, {"small": small, "large": large, "slow": slow})
    del slow
    assert forgotten() is None
    for rows in (1, 7, 8, 100):
        runtime.predict_batch(X[:1].repeat(rows, axis=0))
    assert (small.sizes, large.sizes) == ([1, 7], [8, 100])
    assert not runtime.leaves_lock
    assert choice.gauges("m") == {"runtime{model=m,runtime=small}": 1.0, "runtime{model=m,runtime=large}": 8.0}


def test_a_choice_crosses_from_a_models_process_unchanged() -> None:
    """And so does why a model was not loaded."""
    choice = Choice(((1, "onnx"), (15, "sklearn")), {"sklearn": {1: 200.5, 16: 210.0}, "onnx": {1: 9.5, 16: 220.0}})
    assert frames.unpack_loaded(frames.pack_loaded(choice, 8, 5)) == (choice, 8, 5)
    assert frames.unpack_loaded(frames.pack_loaded(None, 0, 5)).choice is None
    with pytest.raises(PackageError, match="no such file"):
        frames.unpack_loaded(b"no such file")


def package(folder: Path, convert: str, estimator: Any = None, **options: Any) -> Any:
    """Package a forest in several forms."""
    fitted = estimator or RandomForestClassifier(10, random_state=0).fit(X, Y)
    return package_sklearn(fitted, folder, "forest", "1", X[:20], convert=convert, **options)


@NEEDS_ONNX
def test_a_converted_package_holds_both_forms_and_says_how_they_agree(tmp_path: Path) -> None:
    """The original, the graph, and the rows by which they were compared; all with their digests."""
    manifest = package(tmp_path / "p", "onnx", output="scores")
    assert manifest.runtime == "onnx"
    assert set(manifest.files) == {"model.skops", "model.onnx", "examples.npy"}
    conversion = manifest.options["conversion"]
    assert (conversion["from"], conversion["rows"]) == ("sklearn", EXAMPLES)
    assert conversion["difference"] <= 1e-5
    assert set(conversion["batch_us"]) == {"sklearn", "onnx"}
    assert json.loads((tmp_path / "p" / MANIFEST).read_text())["options"]["conversion"] == conversion


@NEEDS_ONNX
def test_a_worker_measures_both_forms_and_logs_its_choice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A forest row by row is many times faster converted, on any machine."""
    assert package(tmp_path / "p", "auto").runtime == "sklearn"
    with caplog.at_level(logging.INFO):
        model = load_package(tmp_path / "p")
    assert model.choice is not None
    rows, runtime = model.choice.spans[0]
    assert (rows, runtime) in {(1, "onnx"), (1, "trees")}
    assert set(model.choice.batch_us) == {"sklearn", "onnx", "trees"}
    assert f"forest 1 runs under {runtime}" in caplog.text


@NEEDS_ONNX
def test_a_worker_that_cannot_run_the_graph_keeps_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where ONNX Runtime is not installed: slower, but it answers, with nothing else as the original."""
    package(tmp_path / "p", "auto")
    monkeypatch.setitem(RUNTIMES, "onnx", "no_such_module")  # type: ignore[arg-type] # a dict
    model = load_package(tmp_path / "p")
    assert model.choice is not None
    assert set(model.choice.batch_us) == {"sklearn", "trees"}
    assert "does not run under onnx: the onnx runtime needs no_such_module" in caplog.text
    monkeypatch.setitem(RUNTIMES, "trees", "no_such_module")  # type: ignore[arg-type] # a dict
    model = load_package(tmp_path / "p")
    assert model.choice is None
    assert type(model.runtime).__name__ == "SklearnRuntime"


def test_a_worker_runs_trees_as_arrays_where_that_is_faster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Histogram gradient boosting, which is not converted to ONNX: the package says why, the log what was measured."""
    boosting = HistGradientBoostingClassifier(max_iter=50).fit(X, Y)
    conversion = package(tmp_path / "p", "auto", boosting, output="scores").options["conversion"]
    assert conversion["to"] == ["trees"]
    assert "onnx" in conversion["refused"]
    assert {path.name for path in (tmp_path / "p").iterdir()} == {MANIFEST, "model.skops", "trees.npz", "examples.npy"}
    with caplog.at_level(logging.INFO):
        model = load_package(tmp_path / "p", sizes=(1,))
    assert model.choice is not None
    assert model.choice.spans == ((1, "trees"),)
    assert type(model.runtime).__name__ == "TreesRuntime"
    assert "forest 1 runs under trees (sklearn " in caplog.text


@pytest.mark.parametrize(
    ("estimator", "form"), [(RandomForestClassifier(10, random_state=0), "trees"), (LogisticRegression(), "linear")]
)
def test_unless_told_otherwise_a_model_is_converted_when_it_is_loaded(
    estimator: Any, form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The package holds the original, and rows by which whoever loads it checks and measures what it converts."""
    manifest = package_sklearn(estimator.fit(X, Y), tmp_path / "p", "model", "1", X[:20])
    conversion = manifest.options["conversion"]
    assert (conversion["at"], conversion["to"]) == ("load", [form])
    assert conversion["difference"] < 1e-6  # of probabilities
    assert {path.name for path in (tmp_path / "p").iterdir()} == {MANIFEST, "model.skops", "examples.npy"}
    with caplog.at_level(logging.INFO):
        model = load_package(tmp_path / "p", sizes=(1,))
    assert model.choice is not None
    assert model.choice.spans == ((1, form),)
    assert f"model 1 runs under {form} (sklearn " in caplog.text
    answers = np.asarray(model.runtime.predict_batch(X).answers)
    assert np.array_equal(answers, estimator.predict(X))


def test_no_form_sees_what_another_wrote_into_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when they are compared, nor when they are measured, nor among the rows that the package keeps."""
    own = SklearnRuntime.predict_batch

    def overwriting(runtime: SklearnRuntime, rows: Any) -> Outputs:
        found = own(runtime, rows)
        rows[:] = 1e6
        return found

    monkeypatch.setattr(SklearnRuntime, "predict_batch", overwriting)
    fitted, sample = RandomForestClassifier(10, random_state=0).fit(X, Y), X[:20].copy()
    manifest = package_sklearn(fitted, tmp_path / "p", "model", "1", sample, convert="auto")
    assert "trees" in manifest.options["conversion"]["to"]
    assert (np.load(tmp_path / "p" / "examples.npy")[:20] == X[:20]).all()
    assert (sample == X[:20]).all()
    assert load_package(tmp_path / "p", sizes=(1,)).choice is not None


def test_what_does_not_agree_where_it_is_loaded_is_left_out_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original answers, and the log says why."""
    package(tmp_path / "p", "load")
    monkeypatch.setattr(TreesRuntime, "predict_batch", lambda _, rows: Outputs(np.full(len(rows), 2)))
    model = load_package(tmp_path / "p")
    assert model.choice is None
    assert type(model.runtime).__name__ == "SklearnRuntime"
    assert "forest 1 does not run under trees: the converted model answers other labels" in caplog.text


def fail(*_: object) -> Outputs:
    """Raise what nobody expects, as another version of a library may."""
    raise AttributeError("no such thing")


@pytest.mark.parametrize("place", ["compiled", "TreesRuntime.predict_batch"])
def test_whatever_goes_wrong_when_a_model_is_converted_leaves_the_original(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that could serve it before goes on serving it."""
    package(tmp_path / "p", "load")
    monkeypatch.setattr(f"workers.runtimes.trees_conversion.{place}", fail)
    assert load_package(tmp_path / "p").choice is None
    assert "AttributeError: no such thing" in caplog.text
    package(tmp_path / "q", "load")
    assert load_package(tmp_path / "q").manifest.options == {}


def test_a_form_that_only_a_later_version_knows_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The package was made by that."""
    package(tmp_path / "p", "load")
    path = tmp_path / "p" / MANIFEST
    path.write_text(path.read_text().replace('"trees"', '"quantum"'))
    assert load_package(tmp_path / "p").choice is None
    assert "models cannot be converted to 'quantum' when they are loaded" in caplog.text


@NEEDS_HUMMINGBIRD
def test_hummingbird_is_measured_beside_the_others_where_that_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is made of the original at load, must agree, and the log says what each form took."""
    conversion = package(tmp_path / "p", "hummingbird", output="scores").options["conversion"]
    assert (conversion["at"], conversion["to"]) == ("load", ["trees", "hummingbird"])
    assert conversion["difference"] <= 1e-5
    with caplog.at_level(logging.INFO):
        model = load_package(tmp_path / "p")
    assert model.choice is not None
    assert set(model.choice.batch_us) == {"sklearn", "trees", "hummingbird"}
    assert "hummingbird" in caplog.text


@NEEDS_HUMMINGBIRD
def test_what_hummingbird_cannot_convert_is_not_packaged_for_it(tmp_path: Path) -> None:
    """Nobody would notice that it never ran."""
    with pytest.raises(PackageError, match=r"is not converted to hummingbird .*QuadraticDiscriminantAnalysis"):
        package(tmp_path / "p", "hummingbird", QuadraticDiscriminantAnalysis().fit(X, Y))
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("convert", ["load", "none"])
def test_what_cannot_be_converted_or_shall_not_be_stays_as_it_is(convert: str, tmp_path: Path) -> None:
    """Nothing is kept beside it, and nothing is measured."""
    text = make_pipeline(CountVectorizer(), MultinomialNB()).fit(["red", "blue"], [0, 1])
    other = KNeighborsClassifier(3).fit(X, Y) if convert == "load" else RandomForestClassifier(3).fit(X, Y)
    package_sklearn(text, tmp_path / "text", "text", "1", ["red"], convert=convert)
    package(tmp_path / "other", convert, other)
    for folder in (tmp_path / "text", tmp_path / "other"):
        model = load_package(folder)
        assert (set(model.manifest.files), model.manifest.options, model.choice) == (
            {"model.skops", "warm-up.avro"},
            {},
            None,
        )


@pytest.mark.parametrize(
    ("estimator", "rows", "options"),
    [
        (LogisticRegression(), X[:2], {}),
        (RandomForestClassifier(), X[:2], {}),
        (RandomForestClassifier(3).fit(X, Y), X[:2, :2], {}),
        (LogisticRegression().fit(X, Y), np.full((2, 4), np.inf, dtype=np.float32), {}),
        (RandomForestRegressor(3).fit(X, X[:, 0]), X[:2], {"output": "label"}),
    ],
    ids=["not fitted", "no trees yet", "other features", "infinite", "a value for a label"],
)
def test_what_cannot_be_packaged_is_refused_as_it_would_be_without_conversion(
    estimator: Any, rows: Any, options: Any, tmp_path: Path
) -> None:
    """An error of Skysail, with its reason, never one of a library; nothing is left behind."""
    with pytest.raises(WorkerError):
        package_sklearn(estimator, tmp_path / "p", "m", "1", rows, **options)
    assert not (tmp_path / "p").exists()


def test_what_refuses_missing_values_is_not_converted_to_what_takes_them(tmp_path: Path) -> None:
    """Where rows may hold NaN, some of those that are compared do."""
    boosting = GradientBoostingClassifier(n_estimators=3).fit(X, Y)
    assert package(tmp_path / "p", "load", boosting, allow_nan=True).options == {}
    assert np.isnan(examples(X[:5], allow_nan=True)[5:]).any(axis=1).mean() == pytest.approx(0.5, abs=0.01)
    histogram = HistGradientBoostingClassifier(max_iter=3).fit(X, Y)
    assert package(tmp_path / "q", "load", histogram, allow_nan=True).options["conversion"]["to"] == ["trees"]


def test_batches_that_are_timed_are_bounded() -> None:
    """Rows of half a mebibyte: a hundred of them, not a thousand."""
    runtime = Counting(1)
    measure({"one": runtime}, np.zeros((2, 1 << 17), dtype=np.float32))
    assert max(runtime.sizes) == 128


def test_a_linear_model_becomes_arrays_where_onnx_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it can be converted to without; many times faster than scikit-learn row by row."""
    monkeypatch.setitem(CONVERTERS, "onnx", "no_such_module")  # type: ignore[arg-type] # a dict
    conversion = package(tmp_path / "p", "auto", LogisticRegression().fit(X, Y), output="scores").options["conversion"]
    assert conversion["to"] == ["linear"]
    assert "needs no_such_module" in conversion["refused"]["onnx"]
    model = load_package(tmp_path / "p", sizes=(1,))
    assert model.choice is not None
    assert model.choice.spans == ((1, "linear"),)


def test_a_package_from_before_there_were_trees_still_loads(tmp_path: Path) -> None:
    """Its conversion does not say to what: it was to ONNX, and where that fails the original answers."""
    package(tmp_path / "p", "auto")
    path = tmp_path / "p" / MANIFEST
    document = json.loads(path.read_text())
    del document["options"]["conversion"]["to"], document["options"]["conversion"]["refused"]
    del document["files"]["trees.npz"]
    path.write_text(json.dumps(document))
    model = load_package(tmp_path / "p", sizes=(1,))
    assert model.choice is None or set(model.choice.batch_us) == {"sklearn", "onnx"}


@NEEDS_ONNX
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """One sentence each: no converter, no tensors, an unknown conversion."""
    with pytest.raises(PackageError, match="conversion 'tvm' is unknown"):
        package(tmp_path / "p", "tvm")
    text = make_pipeline(CountVectorizer(), MultinomialNB()).fit(["red", "blue"], [0, 1])
    with pytest.raises(PackageError, match="only models of tensors"):
        package_sklearn(text, tmp_path / "p", "text", "1", ["red"], convert="onnx")
    linear = LinearRegression().fit(X, X[:, 0])
    with pytest.raises(PackageError, match="LinearRegression cannot be compiled to arrays of trees"):
        package(tmp_path / "p", "trees", linear, output="value")
    with pytest.raises(PackageError, match=r"does not answer .* without conversion"):
        package(tmp_path / "p", "trees", output="value")  # labels as numbers, from an estimator that has scores
    boosting = HistGradientBoostingClassifier(max_iter=2).fit(X, Y)
    with pytest.raises(PackageError, match="HistGradientBoostingClassifier cannot be converted to ONNX"):
        package(tmp_path / "p", "onnx", boosting)
    assert not (tmp_path / "p").exists()


@NEEDS_ONNX
def test_a_conversion_that_answers_otherwise_is_refused(tmp_path: Path) -> None:
    """Large numbers that cancel out: a graph of float32 rows adds them up in float32, scikit-learn in float64."""
    linear = LinearRegression().fit(X.astype(np.float64), X[:, 0])
    linear.coef_ = np.array([1.1, -1.1, 1.3, -1.3])
    with pytest.raises(PackageError, match=r"numbers differ by .* package it without conversion"):
        package_sklearn(linear, tmp_path / "p", "m", "1", X + np.float32(1e6), output="value", convert="onnx")
    assert not (tmp_path / "p").exists()


@NEEDS_ONNX
def test_a_graph_that_the_manifest_does_not_list_is_not_loaded(tmp_path: Path) -> None:
    """Its digest would not have been checked."""
    package(tmp_path / "p", "onnx")
    path = tmp_path / "p" / MANIFEST
    document = json.loads(path.read_text())
    del document["files"]["model.onnx"]
    path.write_text(json.dumps(document))
    with pytest.raises(PackageError, match=r"lists no model\.onnx"):
        load_package(tmp_path / "p")


@NEEDS_ONNX
def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    """With the name of the file, and nothing left behind."""
    (tmp_path / "m.onnx").write_bytes(b"no graph")
    with pytest.raises(PackageError, match="ONNX Runtime cannot run"):
        package_onnx(tmp_path / "m.onnx", tmp_path / "p", "net", "1", X[:2])
    with pytest.raises(PackageError, match="takes tensors"):
        package_onnx(tmp_path / "m.onnx", tmp_path / "p", "net", "1", ["a"])
    assert not (tmp_path / "p").exists()


@NEEDS_ONNX
def test_a_graph_as_it_is_exported_by_default_answers_labels(tmp_path: Path) -> None:
    """Beside its labels it puts the scores into a list of dictionaries, which is no array."""
    skl2onnx = importlib.import_module("skl2onnx")
    forest = RandomForestClassifier(3, random_state=1).fit(X, Y)
    (tmp_path / "m.onnx").write_bytes(skl2onnx.to_onnx(forest, X[:1]).SerializeToString())
    package_onnx(tmp_path / "m.onnx", tmp_path / "p", "net", "1", X[:2])
    assert list(load_package(tmp_path / "p").runtime.predict_batch(X).answers) == forest.predict(X).tolist()


async def reported(model: Model, settings: WorkerSettings) -> Mapping[str, float]:
    """Load a model; return what its executors report."""
    executors, faults = executors_of(settings, lambda: 0), list[str | None]()
    async with asyncio.TaskGroup() as tasks:
        executors.connect(ExecutorEvents(lambda _batch, _ran: None, lambda loaded: faults.append(loaded.fault)), tasks)
        executors.load(Load(model, is_vital=True))
        await executors.loaded()
        await executors.stop()
    assert faults == [None]
    return executors.statistics()


@NEEDS_ONNX
async def test_a_worker_reports_its_choice_and_what_it_measured(tmp_path: Path) -> None:
    """At the one size that is in use, where that is fixed."""
    package(tmp_path / "p", "auto")
    model = Model("forest", "1", "sklearn", str(tmp_path / "p"), digest(tmp_path / "p"), "label", "float32", (4,))
    settings = WorkerSettings(controller="fixed", parameters={"rows": 32})
    found = await reported(model, settings)
    times = {
        name: found[f"measured_us{{model=forest,rows=32,runtime={name}}}"] for name in ("sklearn", "onnx", "trees")
    }
    assert found[f"runtime{{model=forest,runtime={min(times, key=times.__getitem__)}}}"] == 1


async def test_the_choice_of_a_model_in_a_process_of_its_own_is_reported_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process tells it to its worker when the model is loaded."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    package(tmp_path / "p", "auto", LogisticRegression().fit(X, Y))
    model = Model("forest", "1", "sklearn", str(tmp_path / "p"), digest(tmp_path / "p"), "label", "float32", (4,))
    found = await reported(model, WorkerSettings(processes={"forest": 1}))
    assert found["runtime{model=forest,runtime=linear}"] == 1
    assert found["measured_us{model=forest,rows=1,runtime=linear}"] > 0
