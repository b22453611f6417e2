"""A package answers as the object that it was made of, or there is none; an answer of doubtful meaning is refused."""

from __future__ import annotations

import logging
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from schemas.inputs import as_input
from schemas.records import Outcome
from tests import toys
from workers.errors import PackageError
from workers.inputs.rows import predict_rows
from workers.packages.loading import load_package
from workers.packages.packaging import (
    package_container,
    package_function,
    package_lightgbm,
    package_onnx,
    package_sklearn,
    package_torch,
    package_xgboost,
)

if TYPE_CHECKING:
    from pathlib import Path

    from workers.manifest import Manifest

_RANDOM = np.random.default_rng(5)
X = _RANDOM.normal(size=(400, 4)).astype(np.float32)
TWO = (X[:, 0] + _RANDOM.normal(size=400) > 0).astype(np.int64)
THREE = np.digitize(X[:, 0], [-0.5, 0.5])


def answers(folder: Path, rows: Any) -> np.ndarray[Any, Any]:
    """Return what a package answers to rows of an array or a frame, as a client sends them; all must be taken."""
    model = load_package(folder)
    each = rows if isinstance(rows, np.ndarray) else [rows.iloc[place] for place in range(len(rows))]
    found = predict_rows(model.runtime, model.manifest, [as_input(row) for row in each])
    assert set(found.outcomes) == {Outcome.OK}
    return np.asarray(found.answers)


def packaged(library: str, estimator: Any, folder: Path, sample: Any, **options: Any) -> Manifest:
    """Package an estimator or booster of XGBoost or LightGBM."""
    make = package_lightgbm if library == "lightgbm" else package_xgboost
    return make(estimator, folder, "toy", "1", sample, **options)


def boosting(library: str, **options: Any) -> Any:
    """Return a classifier that is not fitted."""
    module = pytest.importorskip(library)
    if library == "lightgbm":
        return module.LGBMClassifier(n_estimators=15, min_child_samples=2, verbose=-1, n_jobs=1, **options)
    return module.XGBClassifier(n_estimators=15, n_jobs=1, **options)


def stopped(way: str) -> Any:
    """Return a classifier of XGBoost that stopped early, and what it learnt after its best round was noise."""
    given = {"n_estimators": 80, "early_stopping_rounds": 40, "learning_rate": 0.9, "n_jobs": 1, "booster": way}
    fitted = pytest.importorskip("xgboost").XGBClassifier(**given)
    fitted.fit(X[:200], TWO[:200], eval_set=[(X[200:300], TWO[200:300])], verbose=False)
    assert fitted.best_iteration + 40 <= fitted.get_booster().num_boosted_rounds()
    return fitted


@pytest.mark.parametrize("way", ["gbtree", "dart"])
@pytest.mark.parametrize("output", ["label", "scores"])
def test_a_booster_that_stopped_early_answers_by_its_best_round(tmp_path: Path, output: str, way: str) -> None:
    """As its estimator does; the booster by itself answers with all trees, and its package, too."""
    fitted = stopped(way)
    packaged("xgboost", fitted, tmp_path / "a", X[:3], output=output)
    assert (answers(tmp_path / "a", X) == fitted.predict(X)).all()
    packaged("xgboost", fitted.get_booster(), tmp_path / "b", X[:3], output=output)
    of_all_trees = fitted.get_booster().inplace_predict(X) > 0.5
    assert (answers(tmp_path / "b", X) == of_all_trees).all()
    assert (of_all_trees != fitted.predict(X)).any()


def test_a_number_that_an_estimator_takes_for_missing_is_missing_in_its_package(tmp_path: Path) -> None:
    """It is the estimator that knows the number, not the booster."""
    rows = np.where(_RANDOM.random(X.shape) < 0.4, np.float32(-999.0), X)
    fitted = pytest.importorskip("xgboost").XGBRegressor(n_estimators=15, n_jobs=1, missing=-999.0).fit(rows, X[:, 1])
    packaged("xgboost", fitted, tmp_path / "p", rows[:3])
    assert np.abs(answers(tmp_path / "p", rows) - fitted.predict(rows)).max() < 1e-5


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_what_its_estimator_alone_knows_refuses_a_booster(
    tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: both answers and the row are named, and nothing is left behind."""
    fitted = boosting(library).fit(X, THREE)
    own = fitted.predict
    monkeypatch.setattr(fitted, "predict", lambda rows: np.where(rows[:, 0] > 0, 2 - own(rows), own(rows)))
    with pytest.raises(PackageError, match=r"row \d+ of .*: the estimator answers [02].*, the package [02]"):
        packaged(library, fitted, tmp_path / "p", X[:30])
    assert not (tmp_path / "p").exists()


def test_a_small_sample_is_enough_to_see_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows mixed from the sample's features are compared, too."""
    fitted = boosting("lightgbm").fit(X, TWO)
    sample = np.array([[2.0, 0, 0, 0], [-2.0, 1, 1, 1]], np.float32)
    own = fitted.predict
    monkeypatch.setattr(fitted, "predict", lambda rows: np.where((rows[:, 0] > 1) & (rows[:, 1] > 0), 5, own(rows)))
    with pytest.raises(PackageError, match="of rows mixed from the sample input"):
        packaged("lightgbm", fitted, tmp_path / "p", sample)


@pytest.mark.parametrize("names", [[1.0, 2.0], [False, True], ["no", "yes"], [-3, 2**53]])
def test_labels_of_lightgbm_are_those_of_scikit_learn(tmp_path: Path, names: Any) -> None:
    """Floats and booleans become whole numbers, as everywhere."""
    fitted = boosting("lightgbm").fit(X, np.asarray(names)[TWO])
    packaged("lightgbm", fitted, tmp_path / "p", X[:3])
    assert (answers(tmp_path / "p", X) == fitted.predict(X)).all()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_classes_may_be_named_anew(tmp_path: Path, library: str) -> None:
    """In the order of the estimator's own."""
    fitted = boosting(library).fit(X, TWO)
    packaged(library, fitted, tmp_path / "p", X[:3], classes=("no", "yes"))
    assert (answers(tmp_path / "p", X) == np.array(["no", "yes"])[fitted.predict(X)]).all()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_boosters_run_inside_of_pipelines_and_on_categories(tmp_path: Path, library: str) -> None:
    """Steps by skops, boosters in their own format: no pickle is read. Rows travel as for any data frame."""
    pandas = pytest.importorskip("pandas")
    jobs = _RANDOM.choice(["cook", "nurse", "smith"], 400)
    frame = pandas.DataFrame({"age": X[:, 0].astype(float), "pay": X[:, 1].astype(float), "job": jobs})
    coded = ColumnTransformer([("as it is", "passthrough", ["age", "pay"]), ("coded", OneHotEncoder(), ["job"])])
    pipeline = Pipeline([("columns", coded), ("boosting", boosting(library))]).fit(frame, THREE)
    package_sklearn(pipeline, tmp_path / "a", "toy", "1", frame.head())
    assert (answers(tmp_path / "a", frame[:50]) == pipeline.predict(frame[:50])).all()
    known = frame.assign(job=frame["job"].astype("category"))
    fitted = boosting(library, **{"enable_categorical": True} if library == "xgboost" else {}).fit(known, THREE)
    package_sklearn(fitted, tmp_path / "b", "toy", "1", known.head())
    packaged(library, fitted, tmp_path / "c", known.head())
    for folder in ("b", "c"):
        assert (answers(tmp_path / folder, known[:50]) == fitted.predict(known[:50])).all()
        assert load_package(tmp_path / folder).manifest.input.columns[2] == ("job", "category")


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_categories_may_be_whole_numbers(tmp_path: Path, library: str) -> None:
    """As the codes of shops or of postmen's districts are."""
    pandas = pytest.importorskip("pandas")
    shops = pandas.Series(_RANDOM.choice([3, 17, 401], 400)).astype("category")
    frame = pandas.DataFrame({"age": X[:, 0].astype(float), "shop": shops})
    targets = (shops.astype(int) == 17).to_numpy() * 1
    fitted = boosting(library, **{"enable_categorical": True} if library == "xgboost" else {}).fit(frame, targets)
    packaged(library, fitted, tmp_path / "p", frame.head())
    assert load_package(tmp_path / "p").manifest.input.columns[1] == ("shop", "category_int64")
    assert (answers(tmp_path / "p", frame[:50]) == targets[:50]).all()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_an_estimator_of_a_booster_is_an_estimator(tmp_path: Path, library: str) -> None:
    """Alone, too, and on arrays."""
    fitted = boosting(library).fit(X, THREE)
    made = package_sklearn(fitted, tmp_path / "p", "toy", "1", X[:3])
    assert (made.input.kind, made.output, made.classes) == ("tensor", "scores", (0, 1, 2))
    assert (answers(tmp_path / "p", X) == fitted.predict(X)).all()


@pytest.mark.parametrize("threshold", [0.1, 0.49])
def test_scores_are_refused_where_predict_goes_by_a_threshold(tmp_path: Path, threshold: float) -> None:
    """However seldom that shows; by default such a classifier answers labels, its own."""
    fitted = make_pipeline(StandardScaler(), FixedThresholdClassifier(LogisticRegression(), threshold=threshold))
    fitted.fit(X, TWO)
    with pytest.raises(PackageError, match="package it with output='label'"):
        package_sklearn(fitted, tmp_path / "a", "toy", "1", X[:5], output="scores")
    assert package_sklearn(fitted, tmp_path / "b", "toy", "1", X[:5]).output == "label"
    assert (answers(tmp_path / "b", X) == fitted.predict(X)).all()


@pytest.mark.parametrize(
    ("estimator", "targets", "output"),
    [
        (LogisticRegression(), TWO, "scores"),
        (RandomForestClassifier(5, n_jobs=2, random_state=0), THREE, "scores"),
        (RandomForestClassifier(2, max_depth=2, random_state=0), np.arange(400) % 32, "scores"),
        (RandomForestClassifier(2, max_depth=2, random_state=0), np.arange(400) % 33, "label"),
        (RandomForestClassifier(2, random_state=0), np.zeros(400), "label"),
        (SGDClassifier(loss="modified_huber", random_state=0), np.digitize(X[:, 0], np.linspace(-1, 1, 6)), "label"),
        (SGDClassifier(random_state=0), TWO, "label"),
        (RandomForestRegressor(2, random_state=0), X[:, 1], "value"),
    ],
)
def test_a_classifier_gives_its_scores_where_they_are_few_and_decide(
    tmp_path: Path, estimator: Any, targets: Any, output: str
) -> None:
    """So an answer is as sure as the model is."""
    assert package_sklearn(estimator.fit(X, targets), tmp_path / "p", "toy", "1", X[:20]).output == output


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(2).fit(X, np.stack([TWO, THREE], axis=1)),
        MultiOutputClassifier(LogisticRegression()).fit(X, np.stack([TWO, THREE], axis=1)),
        MLPClassifier((2,), tol=10.0, max_iter=400, n_iter_no_change=2).fit(X, np.stack([TWO, 1 - TWO], axis=1)),
    ],
)
def test_several_outputs_are_refused_with_what_to_do(tmp_path: Path, estimator: Any) -> None:
    """Whether they are labels or numbers."""
    with pytest.raises(PackageError, match="with output='tensors' it answers several numbers"):
        package_sklearn(estimator, tmp_path / "p", "toy", "1", X[:5])


def test_labels_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    """They would become other ones."""
    fitted = LogisticRegression().fit(X, np.array([7, 2**63 + 5], np.uint64)[TWO])
    with pytest.raises(PackageError, match="not 9223372036854775813"):
        package_sklearn(fitted, tmp_path / "p", "toy", "1", X[:5])


def test_a_booster_of_numbers_has_no_labels_and_one_of_classes_no_value(tmp_path: Path) -> None:
    """A regression's number is not the probability of anything."""
    pytest.importorskip("xgboost")
    regressor = pytest.importorskip("xgboost").XGBRegressor(n_estimators=3).fit(X, X[:, 1])
    with pytest.raises(PackageError, match="output='value'"):
        packaged("xgboost", regressor, tmp_path / "p", X[:5], output="label")
    with pytest.raises(PackageError, match="output='scores'"):
        packaged("xgboost", boosting("xgboost").fit(X, TWO), tmp_path / "p", X[:5], output="value")


def test_a_function_may_be_given_itself(tmp_path: Path) -> None:
    """By what it is called in its module."""
    made = package_function(toys.parity, tmp_path / "p", "toy", "1", X[:5])
    assert made.options["function"] == "tests.toys:parity"


def test_a_function_that_workers_cannot_import_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """One of the script, one inside of another, one under a strange name, and what is none."""
    script = types.FunctionType(toys.parity.__code__, {}, "predict")
    script.__module__, script.__qualname__ = "__main__", "predict"
    stranger = types.FunctionType(toys.parity.__code__, {}, "parity")
    stranger.__module__, stranger.__qualname__ = "tests.toys", "parity"
    cases = {
        "defined in the script or notebook that runs": script,
        "something else": stranger,
        "not defined at the top": lambda rows: rows,
        "int is not defined": 3,
    }
    for why, function in cases.items():
        with pytest.raises(PackageError, match=rf"{why}.*'my_model:predict'"):
            package_function(function, tmp_path / "p", "toy", "1", X[:5])  # type: ignore[arg-type] # some are none


def test_floats_of_a_function_are_labels_or_values_as_it_says(tmp_path: Path) -> None:
    """Whole ones in a sample may be a regressor's by chance."""
    for output in ("label", "value"):
        if output == "label":
            with pytest.raises(PackageError, match="output='value'"):
                package_function("tests.toys:whole_floats", tmp_path / output, "toy", "1", X[:5])
        else:
            package_function("tests.toys:whole_floats", tmp_path / output, "toy", "1", X[:5], output=output)


def test_scores_of_the_other_order_are_refused_where_they_have_the_right_form(tmp_path: Path) -> None:
    """As many rows as classes, (k, n) looks like (n, k)."""
    with pytest.raises(PackageError, match=r"scores must be \(n, k\)"):
        package_function("tests.toys:lying", tmp_path / "p", "toy", "1", X[:3], output="scores")


def test_a_function_that_answers_anew_each_time_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is no fault of its package."""
    with caplog.at_level(logging.WARNING):
        package_function("tests.toys:fickle", tmp_path / "p", "toy", "1", X[:3])
    assert "answers the same rows differently from call to call" in caplog.text


def test_a_sample_is_as_it_was(tmp_path: Path) -> None:
    """Also where the model writes into what it is given."""
    sample = np.abs(X[:5])
    before = sample.copy()
    package_function("tests.toys:greedy", tmp_path / "p", "toy", "1", sample)
    assert (sample == before).all()


def test_labels_that_are_none_of_the_classes_are_refused(tmp_path: Path) -> None:
    """A function that answers places instead of names is not what its classes say."""
    with pytest.raises(PackageError, match="none of its classes"):
        package_function("tests.toys:parity", tmp_path / "p", "toy", "1", X[:5], classes=("even", "odd"))
    made = package_function("tests.toys:parity", tmp_path / "p", "toy", "1", X[:5], classes=np.array([False, True]))
    assert made.classes == (0, 1)


class Weighed:
    """A model class that reads a file of a folder below its own, if there is one."""

    def __init__(self, folder: Path) -> None:
        self.shift = float((folder / "shift").read_text()) + (folder / "more").exists()

    def predict_batch(self, rows: Any) -> list[int]:
        """Label rows by their first number."""
        return [int(number > self.shift) for number in rows[:, 0]]


def test_a_container_answers_as_its_class_does_where_its_files_lie(tmp_path: Path) -> None:
    """A folder inside is not packaged; a class that reads it is refused."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "shift").write_text("0.0")
    package_container(f"{__name__}:Weighed", tmp_path / "files", tmp_path / "a", "toy", "1", X[:50])
    (tmp_path / "files" / "more").mkdir()
    with pytest.raises(PackageError, match="the model answers 0, the package 1"):
        package_container(f"{__name__}:Weighed", tmp_path / "files", tmp_path / "b", "toy", "1", X[:50])


@pytest.fixture
def net() -> Any:
    """Return a network that multiplies by a number which is not in its state."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Linear):  # type: ignore[name-defined,misc] # torch may not be there
        factor = 1.0

        def forward(self, rows: Any) -> Any:
            return super().forward(rows.mul_(self.factor))

    module = types.ModuleType("toy_net")
    Net.__module__, Net.__qualname__ = "toy_net", "Net"
    module.Net = Net  # type: ignore[attr-defined] # a module of one's own
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "toy_net", module)
        yield Net


def test_a_network_that_knows_more_than_its_state_is_refused(tmp_path: Path, net: Any) -> None:
    """It stays in the mode that it was in, and the sample as it was, though the network writes into it."""
    given: dict[str, Any] = {"architecture": "toy_net:Net", "arguments": {"in_features": 4, "out_features": 3}}
    module, sample = net(4, 3), X[:5].copy()
    module.factor = 3.0
    with pytest.raises(PackageError, match=r"row 0 .* the network answers .* the package .*\(5 of 5 rows differ\)"):
        package_torch(module, tmp_path / "a", "toy", "1", sample, output="scores", **given)
    module.factor = 1.0
    package_torch(module, tmp_path / "b", "toy", "1", sample, output="scores", **given)
    rows = pytest.importorskip("torch").tensor(sample, requires_grad=True)
    assert package_torch(module, tmp_path / "c", "toy", "1", rows, **given).input.shape == (4,)
    assert module.training
    assert (sample == X[:5]).all()


def test_a_network_with_one_output_has_no_labels(tmp_path: Path, net: Any) -> None:
    """Argmax over one column is the first class for ever."""
    given: dict[str, Any] = {"architecture": "toy_net:Net", "arguments": {"in_features": 4, "out_features": 1}}
    for output in ("label", "scores"):
        with pytest.raises(PackageError, match="output='value'"):
            package_torch(net(4, 1), tmp_path / output, "toy", "1", X[:5], output=output, **given)
    package_torch(net(4, 1), tmp_path / "value", "toy", "1", X[:5], output="value", **given)


@pytest.mark.parametrize(
    ("made", "output", "complaint"),
    [
        ("rows.to(torch.int64) + 2**60", "value", "values must be n numbers"),
        ("rows[:, 0].to(torch.int64) + 2**60 + 1", "value", "does not hold 1152921504606846977"),
        ("torch.complex(rows, rows)", "scores", "complex64"),
        ("(rows, rows)", "scores", "the network answers 2 tensors: package it with output='tensors'"),
    ],
)
def test_a_network_whose_numbers_would_change_is_refused(
    tmp_path: Path, net: Any, made: str, output: str, complaint: str
) -> None:
    """Large whole numbers are not rounded, and nothing imaginary is left out."""
    torch = pytest.importorskip("torch")
    given: dict[str, Any] = {"architecture": "toy_net:Net", "arguments": {"in_features": 4, "out_features": 4}}
    net.forward = lambda _, rows: eval(made, {"torch": torch, "rows": rows})
    with pytest.raises(PackageError, match=complaint):
        package_torch(net(4, 4), tmp_path / "p", "toy", "1", np.zeros((5, 4), np.float32), output=output, **given)


def graph(folder: Path, *, batch: int | str = "n", labels: bool = False, outputs: int = 3) -> Path:
    """Write a graph of one product; with labels, these are the places of the lowest score."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    weights = np.random.default_rng(1).normal(size=(4, outputs)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    found = [helper.make_tensor_value_info("y", kinds.FLOAT, [batch, outputs])]
    if labels:
        nodes.append(helper.make_node("ArgMin", ["y"], ["label"], axis=1, keepdims=0))
        found.append(helper.make_tensor_value_info("label", kinds.INT64, [batch]))
    given = [helper.make_tensor_value_info("x", kinds.FLOAT, [batch, 4])]
    whole = helper.make_graph(nodes, "toy", given, found, [onnx.numpy_helper.from_array(weights, "w")])
    file = folder / "toy.onnx"
    onnx.save(helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), file)
    return file


def test_a_graph_whose_labels_are_not_its_highest_scores_has_no_scores(tmp_path: Path) -> None:
    """It answers its labels, and what else is meant is named."""
    file = graph(tmp_path, labels=True)
    package_onnx(file, tmp_path / "a", "toy", "1", X[:5])
    with pytest.raises(PackageError, match="output='label'"):
        package_onnx(file, tmp_path / "b", "toy", "1", X[:5], output="scores", classes=(0, 1, 2))
    with pytest.raises(PackageError, match=r"several outputs .* graph_output"):
        package_onnx(file, tmp_path / "b", "toy", "1", X[:5], output="value")
    package_onnx(file, tmp_path / "b", "toy", "1", X[:5], output="value", graph_output="label")
    made = package_onnx(file, tmp_path / "c", "toy", "1", X[:5], output="scores", graph_output="y")
    assert made.options == {"graph_output": "y"}
    with pytest.raises(PackageError, match="no output 'z'"):
        package_onnx(file, tmp_path / "d", "toy", "1", X[:5], graph_output="z")


def test_a_graph_of_one_output_has_no_labels(tmp_path: Path) -> None:
    """As a network has none."""
    file = graph(tmp_path, outputs=1)
    with pytest.raises(PackageError, match="output='value'"):
        package_onnx(file, tmp_path / "a", "toy", "1", X[:5])
    package_onnx(file, tmp_path / "b", "toy", "1", X[:5], output="value")


def test_a_graph_for_one_size_of_batch_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With one row it works and is slow, with more it does not."""
    with caplog.at_level(logging.WARNING):
        package_onnx(graph(tmp_path, batch=1), tmp_path / "a", "toy", "1", X[:5])
    assert "takes one row at a time" in caplog.text
    assert "worker.allowed_batch_sizes" in caplog.text
    with pytest.raises(PackageError, match="exactly 8 rows"):
        package_onnx(graph(tmp_path, batch=8), tmp_path / "b", "toy", "1", X[:5])
