"""Linear models as arrays: what scikit-learn answers, without it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC

from tests.packages import files_in
from workers.errors import PackageError
from workers.manifest import Manifest, Signature
from workers.packages.loading import load_package
from workers.packages.packaging import package_linear
from workers.runtimes.linear import LINEAR_FILE, LinearRuntime, load, save
from workers.runtimes.linear_conversion import compiled

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.usefixtures("one_thread")
_RANDOM = np.random.default_rng(11)
X = _RANDOM.normal(size=(120, 5)).astype(np.float32)
THREE = (X[:, 0] > X[:, 1]).astype(int) + (X[:, 2] > 0)
TWO = THREE % 2
NAMES = np.array(["ant", "bee", "cat"])
NUMBERS = X[:, 0] + X[:, 1] * X[:, 2]


def manifest(output: str, classes: tuple[int | str, ...] = (), dtype: str = "float32") -> Manifest:
    """Return a manifest of rows like X."""
    return Manifest("m", "1", "linear", Signature("tensor", dtype, (5,)), output, classes, files={LINEAR_FILE: ""})


def runtime(estimator: Any, rows: NDArray[Any], output: str) -> LinearRuntime:
    """Compile a fitted estimator."""
    classes = () if output == "value" else tuple(estimator.classes_.tolist())
    return LinearRuntime(manifest(output, classes), compiled(estimator, rows.dtype))


CLASSIFIERS = {
    "logistic": LogisticRegression(),
    "logistic-of-several": LogisticRegressionCV(
        Cs=2, cv=2, l1_ratios=(0,), use_legacy_attributes=False, scoring="accuracy"
    ),
    "ridge": RidgeClassifier(fit_intercept=False),
    "ridge-of-several": RidgeClassifierCV(),
    "support-vectors": LinearSVC(random_state=0),
    "descent": SGDClassifier(random_state=0),
    "perceptron": Perceptron(random_state=0),
    "standardised": make_pipeline(StandardScaler(), LogisticRegression()),
    "centred": make_pipeline(StandardScaler(with_std=False), None, RidgeClassifier()),
    "standardised-and-clipped": make_pipeline(
        StandardScaler(with_mean=False), MinMaxScaler((0.1, 0.7), clip=True), "passthrough", LogisticRegression()
    ),
}
REGRESSORS = {
    "least-squares": LinearRegression(),
    "ridge": Ridge(),
    "ridge-without-intercept": Ridge(fit_intercept=False),
    "ridge-of-several": RidgeCV(),
    "lasso": Lasso(0.01),
    "lasso-of-several": LassoCV(alphas=3, cv=2),
    "net": ElasticNet(0.01),
    "net-of-several": ElasticNetCV(alphas=3, cv=2),
    "descent": SGDRegressor(random_state=0),
    "between-bounds": make_pipeline(MinMaxScaler(), Ridge()),
}
DTYPES = ("float32", "float64", "int64", "uint8")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("labels", [TWO, THREE, NAMES[THREE]], ids=["two", "three", "names"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_answer_their_labels(name: str, labels: NDArray[Any], dtype: str) -> None:
    """Numbers and names, alone and in batches, for rows of any dtype."""
    rows = (4 * X if dtype != "uint8" else 16 * np.abs(X)).astype(dtype)
    estimator = CLASSIFIERS[name].fit(rows, labels)
    linear = runtime(estimator, rows, "label")
    assert np.asarray(linear.predict_batch(rows).answers).tolist() == estimator.predict(rows).tolist()
    for row in range(5):
        assert linear.predict_batch(rows[row : row + 1]).answers == estimator.predict(rows[row : row + 1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_answer_their_values(name: str, dtype: str) -> None:
    """In the arithmetic of scikit-learn: the numbers of a batch are its own."""
    rows = (4 * np.abs(X)).astype(dtype)
    estimator = REGRESSORS[name].fit(rows, NUMBERS)
    answers = np.asarray(runtime(estimator, rows, "value").predict_batch(rows).answers)
    assert answers.dtype == np.float64
    np.testing.assert_allclose(answers, estimator.predict(rows), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("labels", [TWO, NAMES[THREE]], ids=["two", "three"])
@pytest.mark.parametrize("name", ["logistic", "logistic-of-several", "standardised", "standardised-and-clipped"])
def test_probabilities_are_scikit_learns(name: str, labels: NDArray[Any]) -> None:
    """Softmax of three classes, the logistic function of two; in float32 as the rows."""
    estimator = CLASSIFIERS[name].fit(X, labels)
    outputs = runtime(estimator, X, "scores").predict_batch(X)
    assert np.asarray(outputs.answers).tolist() == estimator.predict(X).tolist()
    np.testing.assert_allclose(np.asarray(outputs.scores), estimator.predict_proba(X), rtol=0, atol=1e-6)
    assert np.asarray(outputs.scores).dtype == estimator.predict_proba(X).dtype


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_probabilities_of_one_against_the_rest_add_up(labels: NDArray[Any], dtype: str) -> None:
    """Also where the logistic function is 0 for every class, as far from all of them as rows of thousands are."""
    rows = np.vstack([X, 1e4 * X]).astype(dtype)
    estimator = SGDClassifier(loss="log_loss", random_state=0).fit(rows[: len(X)], labels)
    scores = np.asarray(runtime(estimator, rows, "scores").predict_batch(rows).scores)
    np.testing.assert_allclose(scores, estimator.predict_proba(rows), rtol=0, atol=1e-6)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-6)


def test_a_score_of_zero_is_the_first_label() -> None:
    """As scikit-learn answers: above zero is the second; of equal scores the first."""
    two, three = RidgeClassifier().fit(X, TWO), RidgeClassifier().fit(X, THREE)
    for estimator in (two, three):
        estimator.coef_, estimator.intercept_ = 0 * estimator.coef_, 0 * estimator.intercept_
        assert estimator.predict(X[:3]).tolist() == [0, 0, 0]
        assert np.asarray(runtime(estimator, X, "label").predict_batch(X[:3]).answers).tolist() == [0, 0, 0]


def test_rows_are_left_as_they_came() -> None:
    """Scalers work on a copy."""
    kept = X.copy()
    runtime(make_pipeline(StandardScaler(), Ridge()).fit(X, NUMBERS), X, "value").predict_batch(X)
    assert np.array_equal(kept, X)


def test_what_is_stored_is_what_is_loaded(tmp_path: Path) -> None:
    """Names as classes, scalers in their order, and the numbers of the arrays in memory to the bit."""
    estimator = CLASSIFIERS["standardised-and-clipped"].fit(X, NAMES[THREE])
    linear = compiled(estimator, X.dtype)
    save(linear, tmp_path)
    loaded = load(manifest("scores", ("ant", "bee", "cat")), files_in(tmp_path), allow_pickle=False, threads=1)
    outputs, kept = loaded.predict_batch(X), runtime(estimator, X, "scores").predict_batch(X)
    assert outputs.answers == tuple(estimator.predict(X))
    assert np.array_equal(np.asarray(outputs.scores), np.asarray(kept.scores))


def test_many_scalers_keep_their_order(tmp_path: Path) -> None:
    """Twelve operations, the names of whose arrays do not sort as they follow each other."""
    scalers = [StandardScaler(), MinMaxScaler(), StandardScaler(), MinMaxScaler(), StandardScaler(), MinMaxScaler()]
    estimator = make_pipeline(*scalers, Ridge()).fit(X, NUMBERS)
    save(compiled(estimator, X.dtype), tmp_path)
    loaded = load(manifest("value"), files_in(tmp_path), allow_pickle=False, threads=1)
    np.testing.assert_allclose(np.asarray(loaded.predict_batch(X).answers), estimator.predict(X), rtol=0, atol=1e-5)


def test_a_second_model_is_loaded_without_another_look_at_the_libraries_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That look took as long as all else: a host loads models all the time."""
    save(compiled(LinearRegression().fit(X, NUMBERS), X.dtype), tmp_path)
    load(manifest("value"), files_in(tmp_path), allow_pickle=False, threads=1)

    def looked() -> None:
        raise AssertionError("it has looked again")

    monkeypatch.setattr("threadpoolctl.ThreadpoolController", looked)
    load(manifest("value"), files_in(tmp_path), allow_pickle=False, threads=1)


def test_a_file_that_holds_no_linear_model_is_refused(tmp_path: Path) -> None:
    """Absent from the manifest, garbage, other arrays, or an operation or link that there is not."""

    def refused(reason: str) -> None:
        with pytest.raises(PackageError, match=reason):
            load(manifest("value"), files_in(tmp_path), allow_pickle=False, threads=1)

    refused(r"lists no linear\.npz")
    path = tmp_path / LINEAR_FILE
    for content in (b"garbage", b"PK\x03\x04", b""):
        path.write_bytes(content)
        refused("holds no linear model")
    np.savez(path, weights=np.zeros(5))
    refused("holds no linear model")
    linear = compiled(Ridge().fit(X, NUMBERS), X.dtype)
    save(replace(linear, link="tanh"), tmp_path)
    refused("unknown: tanh")
    save(replace(linear, scaling=(("sqrt", np.zeros(5)),)), tmp_path)
    refused("unknown: sqrt")


def test_a_manifest_that_asks_for_something_else_is_refused(tmp_path: Path) -> None:
    """Rows of another width or with NaN, values of a classifier, probabilities where there are none, other classes."""

    def refused(reason: str, wanted: Manifest) -> None:
        with pytest.raises(PackageError, match=reason):
            load(wanted, files_in(tmp_path), allow_pickle=False, threads=1)

    save(compiled(RidgeClassifier().fit(X, THREE), X.dtype), tmp_path)
    refused("has the output value", manifest("value"))
    refused("has no probabilities", manifest("scores", (0, 1, 2)))
    refused("has 2 classes, but scores for 3", manifest("label", (0, 1)))
    refused("rows of 5 numbers", replace(manifest("label", (0, 1, 2)), input=Signature("tensor", "float32", (6,))))
    missing = Signature("tensor", "float32", (5,), allow_nan=True)
    refused("without NaN", replace(manifest("label", (0, 1, 2)), input=missing))
    save(compiled(Ridge().fit(X, NUMBERS), X.dtype), tmp_path)
    refused("has the output value", manifest("label", (0, 1)))


def test_what_cannot_be_compiled_is_refused() -> None:
    """With the reason: other kinds, a class of one's own, several outputs, sparse weights, other steps, half floats."""

    class Own(LogisticRegression):
        """Could answer anything."""

    several = np.stack([TWO, 1 - TWO, THREE > 1], axis=1)
    refused: dict[str, Any] = {
        "StandardScaler cannot be .* not one of scikit-learn's linear models": StandardScaler().fit(X),
        "Own cannot be compiled": Own().fit(X, TWO),
        "Ridge cannot .* several outputs": Ridge().fit(X, X[:, :2]),
        "RidgeClassifier cannot .* several outputs": RidgeClassifier().fit(X, several),
        "coefficients are sparse": LogisticRegression().fit(X, THREE).sparsify(),
        "RobustScaler cannot be .* StandardScaler and MinMaxScaler": make_pipeline(RobustScaler(), Ridge()).fit(X, TWO),
    }
    for reason, estimator in refused.items():
        with pytest.raises(PackageError, match=reason):
            compiled(estimator, X.dtype)
    half = LinearRegression().fit(X.astype(np.float16), NUMBERS.astype(np.float16))
    with pytest.raises(PackageError, match="computes in float16"):
        compiled(half, np.dtype("float16"))


def test_packaged_coefficients_answer_their_log_odds(tmp_path: Path) -> None:
    """As they are: they are summed with others, so nothing makes probabilities of them."""
    random = np.random.default_rng(5)
    weights, intercept, rows = random.normal(size=(4, 3)), random.normal(size=3), random.normal(size=(10, 4))
    package_linear(weights, intercept, tmp_path / "cold", "cold", "1")
    found = load_package(tmp_path / "cold").runtime.predict_batch(rows)
    assert found.scores is not None
    np.testing.assert_allclose(found.scores, rows @ weights + intercept, rtol=1e-12)
    assert list(found.answers) == (rows @ weights + intercept).argmax(axis=1).tolist()


@pytest.mark.parametrize(("weights", "intercept"), [((4,), ()), ((4, 1), (1,)), ((4, 3), (2,))])
def test_coefficients_that_do_not_fit_are_refused(
    weights: tuple[int, ...], intercept: tuple[int, ...], tmp_path: Path
) -> None:
    """Nothing is left behind."""
    with pytest.raises(PackageError, match="are needed"):
        package_linear(np.zeros(weights), np.zeros(intercept), tmp_path / "cold", "cold", "1")
    assert not (tmp_path / "cold").exists()
