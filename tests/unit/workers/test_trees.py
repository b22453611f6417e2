"""Ensembles of trees as arrays: what scikit-learn answers, without it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from tests.packages import files_in
from workers.errors import PackageError
from workers.manifest import Manifest, Signature
from workers.runtimes.trees import IS_COMPILED, TREES_FILE, TreesRuntime, linked, load, quickest, save
from workers.runtimes.trees_conversion import below, compiled

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.usefixtures("one_thread")
_RANDOM = np.random.default_rng(11)
X = _RANDOM.normal(size=(200, 5)).astype(np.float32).round(1)  # rounded: many rows lie on a threshold
MISSING = np.where(_RANDOM.random(X.shape) < 0.2, np.float32("nan"), X)
THREE = (X[:, 0] > X[:, 1]).astype(int) + (X[:, 2] > 0)
TWO = THREE % 2
NUMBERS = X[:, 0] + X[:, 1] * X[:, 2]
COUNTS = np.exp(X[:, 0].astype(float))


def answered(estimator: Any, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return probabilities, or values as a column, of the compiled trees; in C and in NumPy they are the same."""
    trees = compiled(estimator, rows.dtype)
    raw = quickest(trees)(rows)
    np.testing.assert_array_equal(raw, trees.raw(rows))
    return linked(raw, trees.link, trees.stages)


def expected(estimator: Any, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return what scikit-learn answers."""
    proba = getattr(estimator, "predict_proba", None)
    return proba(rows) if proba else estimator.predict(rows)[:, None]


CLASSIFIERS = {
    "tree": DecisionTreeClassifier(random_state=0),
    "extra-tree": ExtraTreeClassifier(random_state=0),
    "stump": DecisionTreeClassifier(max_depth=1),
    "forest": RandomForestClassifier(9, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=5),
    "boosting-from-zero": GradientBoostingClassifier(n_estimators=5, init="zero"),
    "histogram": HistGradientBoostingClassifier(max_iter=5),
}
REGRESSORS = {
    "tree": DecisionTreeRegressor(random_state=0),
    "forest": RandomForestRegressor(9, random_state=0),
    "extra-trees": ExtraTreesRegressor(9, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=5),
    "histogram": HistGradientBoostingRegressor(max_iter=5),
    "histogram-poisson": HistGradientBoostingRegressor(max_iter=5, loss="poisson"),
}


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_give_their_probabilities(name: str, labels: NDArray[Any]) -> None:
    """Of two classes and of three, to the last digits."""
    estimator = CLASSIFIERS[name].fit(X, labels)
    np.testing.assert_allclose(answered(estimator, X), expected(estimator, X), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_give_their_values(name: str) -> None:
    """Means of trees and sums of boosting, with their link."""
    estimator = REGRESSORS[name].fit(X, COUNTS)
    np.testing.assert_allclose(answered(estimator, X), expected(estimator, X), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
@pytest.mark.parametrize("estimator", [RandomForestClassifier(5), HistGradientBoostingClassifier(max_iter=5)])
def test_rows_of_any_dtype_are_compared_as_the_estimator_compares_them(estimator: Any, dtype: str) -> None:
    """Forests in float32, histogram gradient boosting in float64: rows a little off their thresholds tell."""
    rows = (4 * np.abs(X)).astype(dtype)
    estimator.fit(rows, THREE)
    near = rows * (1 + 1e-9) if dtype == "float64" else rows
    assert np.array_equal(answered(estimator, near).argmax(axis=1), estimator.predict_proba(near).argmax(axis=1))
    np.testing.assert_allclose(answered(estimator, near), expected(estimator, near), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "estimator", [RandomForestClassifier(9, random_state=0), HistGradientBoostingClassifier(max_iter=5)]
)
def test_missing_values_go_where_they_went_in_training(estimator: Any) -> None:
    """Left or right at each node, and the rows beside them as if there were none."""
    estimator.fit(MISSING, THREE)
    np.testing.assert_allclose(answered(estimator, MISSING), expected(estimator, MISSING), rtol=0, atol=1e-14)
    alone = np.vstack([answered(estimator, row[None]) for row in MISSING[:20]])
    assert np.array_equal(alone, answered(estimator, MISSING)[:20])


def test_exponential_loss_has_its_own_link() -> None:
    """AdaBoost's loss: the raw output is half the log odds."""
    estimator = GradientBoostingClassifier(n_estimators=5, loss="exponential").fit(X, TWO)
    np.testing.assert_allclose(answered(estimator, X), expected(estimator, X), rtol=0, atol=1e-14)


def test_a_batch_of_many_parts_is_one_batch() -> None:
    """More rows and trees than go through at once: each row as alone, to the bit."""
    estimator = RandomForestRegressor(60, max_depth=3, random_state=0).fit(X, NUMBERS)
    trees = compiled(estimator, X.dtype)
    many = np.tile(X, (3, 1))
    alone = np.vstack([trees.raw(row[None]) for row in X[:50]])
    assert np.array_equal(trees.raw(many)[400:450], alone)


@pytest.mark.parametrize("rows", [*range(1, 18), 63, 64, 65, 130])
def test_a_batch_of_any_size_goes_down_as_its_rows_do(rows: int) -> None:
    """Whatever part of a batch goes down side by side: with missing values, to the bit."""
    estimator = RandomForestClassifier(9, random_state=0).fit(MISSING, THREE)
    raw = quickest(compiled(estimator, MISSING.dtype))
    assert np.array_equal(raw(MISSING[:rows]), np.vstack([raw(row[None]) for row in MISSING[:rows]]))


@pytest.mark.skipif(not IS_COMPILED, reason="the extension was not built: no C compiler at installation")
@pytest.mark.parametrize(
    ("field", "place", "value"),
    [
        ("roots", 0, -1),
        ("roots", 0, 1_000_000),
        ("left", 0, -1),
        ("left", 0, 1_000_000),
        ("feature", 0, -1),
        ("feature", 0, 2**31 - 1),
        ("threshold", -1, 0.0),
        ("missing_right", -1, True),
        ("leaves", slice(1), None),
        ("stages", None, 2),
        ("stages", None, "two"),
        ("stages", None, [1, 3]),
        ("depth", None, 2**40),
        ("base", slice(1), None),
    ],
)
def test_arrays_that_lead_elsewhere_are_refused(field: str, place: Any, value: Any, tmp_path: Path) -> None:
    """A package may be damaged: nothing beside the arrays is read."""
    trees = compiled(RandomForestClassifier(3, max_depth=2, random_state=0).fit(X, TWO), X.dtype)
    changed = value if place is None else np.array(getattr(trees, field))
    if place is not None and value is None:
        changed = changed[place]
    elif place is not None:
        changed[place] = value
    save(replace(trees, **{field: changed}), tmp_path)
    with pytest.raises(PackageError, match=r"holds no trees \("):
        load(manifest("label", (0, 1)), files_in(tmp_path), allow_pickle=False, threads=1)


@pytest.mark.skipif(not IS_COMPILED, reason="the extension was not built: no C compiler at installation")
def test_a_missing_value_goes_one_node_further_whatever_the_byte_says() -> None:
    """Where it goes is a truth value: no other byte of a damaged file leads elsewhere."""
    trees = compiled(RandomForestClassifier(3, random_state=0).fit(MISSING, TWO), MISSING.dtype)
    bytes_ = trees.missing_right.astype(np.uint8) * 200
    np.testing.assert_array_equal(quickest(replace(trees, missing_right=bytes_))(MISSING), trees.raw(MISSING))


@pytest.mark.skipif(not IS_COMPILED, reason="the extension was not built: no C compiler at installation")
def test_rows_with_too_few_features_are_refused() -> None:
    """They fail their batch."""
    raw = quickest(compiled(RandomForestClassifier(3, random_state=0).fit(X, TWO), X.dtype))
    with pytest.raises(ValueError, match="3 features"):
        raw(np.ascontiguousarray(X[:, :3]))


def test_where_nothing_was_compiled_numpy_gives_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without a C compiler has the same model."""
    monkeypatch.setattr("workers.runtimes.trees.IS_COMPILED", False)
    trees = compiled(RandomForestClassifier(3, random_state=0).fit(X, TWO), X.dtype)
    assert quickest(trees) == trees.raw


def test_trees_of_a_single_leaf_are_trees() -> None:
    """Nothing to learn: every row gets the same."""
    estimator = RandomForestClassifier(3).fit(X, np.zeros(len(X)))
    assert np.array_equal(answered(estimator, X[:4]), np.ones((4, 1)))


def test_thresholds_are_rounded_down_to_what_rows_are_compared_in() -> None:
    """So that every float32 falls on the side of the float64 on which it fell; infinite stays infinite."""
    thresholds = np.array([0.1, 0.3, -0.1, 1.5, np.inf, 1e300, -1e300])
    rounded = below(thresholds, np.dtype("float32"))
    assert rounded.dtype == np.float32
    for value in (np.nextafter(rounded[:4], np.float32(9)), rounded[:4], np.float32([0.1, 0.3, -0.1, 1.5])):
        assert np.array_equal(value <= rounded[:4], value.astype(float) <= thresholds[:4])
    assert rounded[4:].tolist() == [np.inf, np.finfo(np.float32).max, -np.inf]
    assert np.array_equal(below(thresholds, np.dtype("float64")), thresholds)


@pytest.mark.parametrize(
    "estimator", [RandomForestClassifier(5, random_state=0), HistGradientBoostingClassifier(max_iter=5)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_beside_a_threshold_fall_on_its_side(estimator: Any, dtype: str) -> None:
    """On each threshold of a feature, and on the next number above and below it, in a row like those of training."""
    estimator.fit(X.astype(dtype), THREE)
    trees = compiled(estimator, np.dtype(dtype))
    inner = np.flatnonzero(np.isfinite(trees.threshold))
    exact = trees.threshold[inner].astype(dtype)
    for beside in (exact, np.nextafter(exact, exact + 1), np.nextafter(exact, exact - 1)):
        rows = X[inner % len(X)].astype(dtype)
        rows[np.arange(len(inner)), trees.feature[inner]] = beside
        np.testing.assert_allclose(answered(estimator, rows), expected(estimator, rows), rtol=0, atol=1e-14)


def manifest(output: str, classes: tuple[int | str, ...] = ()) -> Manifest:
    """Return a manifest of rows like X."""
    return Manifest("m", "1", "trees", Signature("tensor", "float32", (5,)), output, classes, files={TREES_FILE: ""})


@pytest.mark.parametrize(
    ("estimator", "label"),
    [(GradientBoostingClassifier(n_estimators=1), 1), (HistGradientBoostingClassifier(max_iter=1), 0)],
)
def test_between_two_labels_the_estimators_own_is_answered(estimator: Any, label: int) -> None:
    """At probability one half exactly, gradient boosting says the second and histogram gradient boosting the first."""
    rows, labels = np.zeros((40, 5), dtype=np.float32), np.arange(40) % 2
    estimator.fit(rows, labels)
    assert estimator.predict(rows[:1]).tolist() == [label]
    runtime = TreesRuntime(manifest("label", (0, 1)), compiled(estimator, rows.dtype))
    assert np.asarray(runtime.predict_batch(rows[:3]).answers).tolist() == [label] * 3


def test_what_is_stored_is_what_is_loaded(tmp_path: Path) -> None:
    """Names as classes, and the answers of the arrays in memory."""
    estimator = RandomForestClassifier(5, random_state=0).fit(X, np.array(["ant", "bee", "cat"])[THREE])
    save(compiled(estimator, X.dtype), tmp_path)
    runtime = load(manifest("scores", ("ant", "bee", "cat")), files_in(tmp_path), allow_pickle=False, threads=1)
    outputs = runtime.predict_batch(X)
    assert outputs.answers == tuple(estimator.predict(X))
    assert np.array_equal(np.asarray(outputs.scores), estimator.predict_proba(X))


def test_a_file_that_holds_no_trees_is_refused(tmp_path: Path) -> None:
    """Absent from the manifest, garbage, other arrays, or an unknown link: one sentence each."""
    with pytest.raises(PackageError, match=r"lists no trees\.npz"):
        load(manifest("label"), {}, allow_pickle=False, threads=1)
    path = tmp_path / TREES_FILE
    for content in (b"garbage", b"PK\x03\x04", b""):
        path.write_bytes(content)
        with pytest.raises(PackageError, match="holds no trees"):
            load(manifest("label"), files_in(tmp_path), allow_pickle=False, threads=1)
    np.savez(path, roots=np.zeros(1))
    with pytest.raises(PackageError, match="holds no trees"):
        load(manifest("label"), files_in(tmp_path), allow_pickle=False, threads=1)
    save(replace(compiled(DecisionTreeClassifier().fit(X, TWO), X.dtype), link="tanh"), tmp_path)
    with pytest.raises(PackageError, match="unknown link 'tanh'"):
        load(manifest("label"), files_in(tmp_path), allow_pickle=False, threads=1)


def test_what_cannot_be_compiled_is_refused() -> None:
    """With the reason: another kind, several outputs, categories, an estimator to start from, a class of one's own."""

    class Own(RandomForestClassifier):
        """Could answer anything."""

    refused: dict[str, Any] = {
        "not one of scikit-learn's trees": LogisticRegression().fit(X, TWO),
        "Own cannot be compiled": Own(2).fit(X, TWO),
        "several outputs": RandomForestRegressor(2).fit(X, X[:, :2]),
        "categorical features": HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(
            np.abs(X).round(), TWO
        ),
        "its `init` is an estimator": GradientBoostingClassifier(n_estimators=2, init=LogisticRegression()).fit(X, TWO),
    }
    for reason, estimator in refused.items():
        with pytest.raises(PackageError, match=reason):
            compiled(estimator, X.dtype)
    started = GradientBoostingClassifier(n_estimators=2, init=DummyClassifier()).fit(X, TWO)
    assert compiled(started, X.dtype).stages == 2
