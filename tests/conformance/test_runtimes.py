"""What every runtime must do, checked for each kind of model: one list for all."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import threadpoolctl  # type: ignore[import-untyped] # has no annotations
from numpy.lib.recfunctions import structured_to_unstructured
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import Lasso, LogisticRegression, Perceptron, Ridge, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from schemas.records import NamedTensors, Outcome, Tensor, rows_of
from tests import pairs
from workers.errors import PackageError
from workers.executors.predictor import Padded
from workers.inputs.rows import predict_rows
from workers.manifest import MANIFEST, Manifest, Signature, digest, write
from workers.packages.autotune import Choice
from workers.packages.loading import load_package
from workers.packages.packaging import (
    package_function,
    package_lightgbm,
    package_onnx,
    package_sklearn,
    package_torch,
    package_xgboost,
)
from workers.packages.variants import ON_REQUEST, RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from schemas.records import Input
    from streams.operators.contract import Predicted
    from workers.packages.loading import LoadedModel

ROWS = 41  # odd, so that no split is even
_RANDOM = np.random.default_rng(7)
X = _RANDOM.normal(size=(ROWS, 6)).astype(np.float32)
MISSING = np.where(_RANDOM.random(X.shape) < 0.2, np.float32("nan"), X)
LABELS = (X[:, 0] > X[:, 1]).astype(np.int64) + 2 * (X[:, 2] > 0)
NAMES = np.array(["cat", "dog", "emu", "fox"])[LABELS]
TEXTS = [" ".join(_RANDOM.choice(["red", "green", "blue", "grey"], size=4)) for _ in range(ROWS)]
BYTES = [bytes(int(n)) for n in _RANDOM.integers(0, 9, ROWS)]
NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@dataclass(frozen=True)
class Case:
    """One kind of model: how it is packaged, and rows that it takes."""

    package: Callable[[Path], Any]
    inputs: list[Input]
    fastest: str = ""  # the form that is chosen, whatever is measured


def tensors(rows: NDArray[np.float32]) -> list[Input]:
    """Make inputs of the rows of an array."""
    return [Tensor.of(row) for row in rows]


def fitted(estimator: Any, targets: Any = LABELS, rows: Any = X, **options: Any) -> Case:
    """Make a case of an estimator, fitted when it is packaged."""
    inputs = tensors(rows) if isinstance(rows, np.ndarray) else list(rows)
    given = {"output": "label", **options}

    def package(folder: Path) -> None:
        package_sklearn(estimator.fit(rows, targets), folder, "toy", "1", rows[:3], **given)

    asked = options.get("convert", "")
    return Case(package, inputs, asked if asked in ON_REQUEST else "")


def network(factory: str, *, output: str, outputs: int = 4, **options: Any) -> Case:
    """Make a case of a network from `toy_nets`."""
    arguments = {"inputs": X.shape[1], "outputs": outputs}

    def package(folder: Path) -> None:
        nets = importlib.import_module("tests.toy_nets")
        module = nets.seeded(getattr(nets, factory)(**arguments))
        path = f"tests.toy_nets:{factory}"
        package_torch(
            module, folder, "toy", "1", X[:3], architecture=path, arguments=arguments, output=output, **options
        )

    return Case(package, tensors(X))


def function(name: str, inputs: list[Input], sample: Any, **options: Any) -> Case:
    """Make a case of a function from `toys`."""
    return Case(lambda folder: package_function(f"tests.toys:{name}", folder, "toy", "1", sample, **options), inputs)


def boosted(library: str, kind: str, targets: Any = LABELS, rows: Any = X, **options: Any) -> Case:
    """Make a case of a booster, fitted when it is packaged."""

    def package(folder: Path) -> None:
        module = importlib.import_module(library)
        more = {"n_jobs": 1} | ({"verbose": -1, "min_child_samples": 2} if library == "lightgbm" else {})
        estimator = getattr(module, kind)(n_estimators=12, max_depth=3, **more).fit(rows, targets)
        make = package_lightgbm if library == "lightgbm" else package_xgboost
        make(estimator, folder, "toy", "1", rows[:3], **options)

    return Case(package, tensors(rows))


def nested(library: str, kind: str, **options: Any) -> Case:
    """Make a case of a pipeline that ends with a booster, fitted when it is packaged."""

    def package(folder: Path) -> None:
        more = {"verbose": -1, "min_child_samples": 2} if library == "lightgbm" else {}
        estimator = getattr(importlib.import_module(library), kind)(n_estimators=12, max_depth=3, n_jobs=1, **more)
        package_sklearn(make_pipeline(StandardScaler(), estimator).fit(X, LABELS), folder, "toy", "1", X[:3], **options)

    return Case(package, tensors(X))


def documented(**options: Any) -> Case:
    """Make a case of the runtime that docs/runtimes.md shows; `documented_runtime` lets workers find it."""

    def package(folder: Path) -> None:
        weights = np.random.default_rng(3).normal(size=(X.shape[1], 4)).astype(np.float32)
        folder.mkdir()
        np.save(folder / "weights.npy", weights)
        signature = Signature("tensor", "float32", (6,))
        write(folder, Manifest("toy", "1", "matrix", signature, files={"weights.npy": ""}, **options))

    return Case(package, tensors(X))


def graph(**options: Any) -> Case:
    """Make a case of a graph with scores and nothing else, as networks are exported."""

    def package(folder: Path) -> None:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        batch = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", X.shape[1]])
        scores = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
        weights = np.random.default_rng(3).normal(size=(X.shape[1], 4)).astype(np.float32)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        whole = helper.make_graph([node], "toy", [batch], [scores], [numpy_helper.from_array(weights, "w")])
        file = folder.parent / "toy.onnx"
        onnx.save(helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), file)
        package_onnx(file, folder, "toy", "1", X[:3], **options)

    return Case(package, tensors(X))


LEFT_RIGHT = {"left": X[:, :2], "right": X[:, 2]}


def named(arrays: Mapping[str, NDArray[np.generic]]) -> list[Input]:
    """Make inputs of arrays by name."""
    return [*rows_of(NamedTensors.named(arrays, (ROWS,)))]


def network_of_tensors() -> Case:
    """Make a case of a network with two tensors in and two out."""

    def package(folder: Path) -> None:
        module = importlib.import_module("tests.toy_nets").left_and_right()
        sample = {name: array[:3] for name, array in LEFT_RIGHT.items()}
        path = "tests.toy_nets:left_and_right"
        package_torch(module, folder, "toy", "1", sample, architecture=path, output="tensors")

    return Case(package, named(LEFT_RIGHT))


def graph_of_tensors() -> Case:
    """Make a case of a graph with two inputs and two outputs."""
    arrays = {name: _RANDOM.normal(size=(ROWS, pairs.WIDTH)).astype(np.float32) for name in ("INPUT0", "INPUT1")}

    def package(folder: Path) -> None:
        file = pairs.write(folder.parent / "pairs.onnx")
        sample = {name: array[:3] for name, array in arrays.items()}
        package_onnx(file, folder, "toy", "1", sample, output="tensors")

    return Case(package, named(arrays))


CASES = {
    "xgboost-label": boosted("xgboost", "XGBClassifier", output="label"),
    "xgboost-scores-missing": boosted(
        "xgboost", "XGBClassifier", LABELS % 2, MISSING, output="scores", classes=("no", "yes"), allow_nan=True
    ),
    "xgboost-value": boosted("xgboost", "XGBRegressor", X[:, 3]),
    "lightgbm-scores": boosted("lightgbm", "LGBMClassifier", output="scores"),
    "lightgbm-label-missing": boosted("lightgbm", "LGBMClassifier", NAMES, MISSING, output="label", allow_nan=True),
    "lightgbm-value": boosted("lightgbm", "LGBMRegressor", X[:, 3], X.astype(float)),
    "xgboost-in-a-pipeline-scores": nested("xgboost", "XGBClassifier"),
    "lightgbm-in-a-pipeline-label": nested("lightgbm", "LGBMClassifier", output="label"),
    "sklearn-logistic": fitted(LogisticRegression(), convert="none"),
    "sklearn-logistic-names-scores": fitted(LogisticRegression(), NAMES, output="scores", convert="none"),
    "sklearn-forest-threads-scores": fitted(
        RandomForestClassifier(20, n_jobs=2, random_state=0), output="scores", convert="none"
    ),
    "sklearn-forest-value": fitted(RandomForestRegressor(20, random_state=0), X[:, 3], output="value", convert="none"),
    "sklearn-boosting-missing": fitted(
        HistGradientBoostingClassifier(max_iter=5), LABELS, MISSING, output="scores", allow_nan=True, convert="none"
    ),
    "sklearn-ridge": fitted(Ridge(), X[:, 3], output="value", convert="none"),
    "sklearn-neighbours": fitted(KNeighborsClassifier(3), NAMES),
    "sklearn-support-vectors": fitted(make_pipeline(StandardScaler(), SVC())),
    "sklearn-mlp": fitted(
        MLPClassifier((8,), solver="sgd", max_iter=400, tol=0.1, n_iter_no_change=2), output="scores"
    ),
    "sklearn-text": fitted(make_pipeline(CountVectorizer(), MultinomialNB()), NAMES, TEXTS),
    "sklearn-converted-forest": fitted(RandomForestClassifier(20, random_state=0), NAMES, output="scores"),
    "sklearn-converted-logistic": fitted(LogisticRegression(), NAMES),
    "function-label": function("parity", tensors(X), X[:3]),
    "function-value": function("total", tensors(X), X[:3], output="value"),
    "function-strings": function("shout", [*TEXTS], TEXTS[:3]),
    "function-bytes-scores": function("lengths", [*BYTES], BYTES[:3], output="scores", classes=("short", "long")),
    "torch-label": network("mlp", output="label"),
    "torch-names-scores": network("mlp", output="scores", classes=("cat", "dog", "emu", "fox")),
    "torch-value": network("mlp", output="value", outputs=1),
    "torch-noisy-scores": network("noisy", output="scores"),
    "documented-label": documented(output="label"),
    "documented-names-scores": documented(output="scores", classes=("cat", "dog", "emu", "fox")),
    "onnx-logistic": fitted(LogisticRegression(), convert="onnx"),
    "onnx-logistic-names-scores": fitted(LogisticRegression(), NAMES, output="scores", convert="onnx"),
    "onnx-logistic-float64-scores": fitted(
        LogisticRegression(), LABELS, X.astype(float), output="scores", convert="onnx"
    ),
    "onnx-forest-label": fitted(RandomForestClassifier(20, random_state=0), convert="onnx"),
    "onnx-forest-scores": fitted(RandomForestClassifier(20, random_state=0), output="scores", convert="onnx"),
    "onnx-forest-value": fitted(RandomForestRegressor(20, random_state=0), X[:, 3], output="value", convert="onnx"),
    "onnx-boosting-names": fitted(GradientBoostingClassifier(n_estimators=5), NAMES, convert="onnx"),
    "onnx-ridge": fitted(Ridge(), X[:, 3], output="value", convert="onnx"),
    "onnx-support-vectors": fitted(make_pipeline(StandardScaler(), SVC()), convert="onnx"),
    "onnx-linear-support-vectors": fitted(LinearSVC(), NAMES, convert="onnx"),
    "onnx-measured-forest": fitted(RandomForestClassifier(20, random_state=0), output="scores", convert="auto"),
    "trees-forest-label": fitted(RandomForestClassifier(20, random_state=0), NAMES, convert="trees"),
    "trees-forest-missing-scores": fitted(
        RandomForestClassifier(20, random_state=0), LABELS, MISSING, output="scores", allow_nan=True, convert="trees"
    ),
    "trees-forest-float64-value": fitted(
        RandomForestRegressor(20, random_state=0), X[:, 3], X.astype(float), output="value", convert="trees"
    ),
    "trees-single-label": fitted(DecisionTreeClassifier(random_state=0), convert="trees"),
    "trees-extra-scores": fitted(ExtraTreesClassifier(20, random_state=0), output="scores", convert="trees"),
    "trees-boosting-names": fitted(GradientBoostingClassifier(n_estimators=5), NAMES, convert="trees"),
    "trees-boosting-value": fitted(GradientBoostingRegressor(n_estimators=5), X[:, 3], output="value", convert="trees"),
    "trees-histogram-missing-scores": fitted(
        HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3),
        LABELS,
        MISSING,
        output="scores",
        allow_nan=True,
        convert="trees",
    ),
    "trees-histogram-float64-value": fitted(
        HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=3),
        X[:, 3],
        X.astype(float),
        output="value",
        convert="trees",
    ),
    "linear-logistic-names": fitted(LogisticRegression(), NAMES, convert="linear"),
    "linear-logistic-scores": fitted(LogisticRegression(), output="scores", convert="linear"),
    "linear-two-classes-scores": fitted(LogisticRegression(), LABELS % 2, output="scores", convert="linear"),
    "linear-ridge-two-names": fitted(RidgeClassifier(), NAMES == "cat", convert="linear"),
    "linear-support-vectors-float64": fitted(LinearSVC(), LABELS, X.astype(float), convert="linear"),
    "linear-descent-scores": fitted(SGDClassifier(loss="log_loss", random_state=0), output="scores", convert="linear"),
    "linear-ridge-value": fitted(Ridge(), X[:, 3], output="value", convert="linear"),
    "linear-scaled-perceptron": fitted(make_pipeline(StandardScaler(), Perceptron()), convert="linear"),
    "linear-scaled-lasso-value": fitted(
        make_pipeline(MinMaxScaler(), Lasso(0.01)), X[:, 3], output="value", convert="linear"
    ),
    "linear-measured-logistic": fitted(LogisticRegression(), NAMES, convert="auto"),
    "trees-measured-histogram": fitted(HistGradientBoostingClassifier(max_iter=5), output="scores", convert="auto"),
    "hummingbird-boosting-scores": fitted(
        GradientBoostingClassifier(n_estimators=5), output="scores", convert="hummingbird"
    ),
    "hummingbird-forest-float64-value": fitted(
        RandomForestRegressor(20, random_state=0), X[:, 3], X.astype(float), output="value", convert="hummingbird"
    ),
    "hummingbird-boosting-label": fitted(GradientBoostingClassifier(n_estimators=5), convert="hummingbird"),
    "hummingbird-histogram-scores": fitted(
        HistGradientBoostingClassifier(max_iter=5), output="scores", convert="hummingbird"
    ),
    "stages-texts-scores": fitted(
        make_pipeline(TfidfVectorizer(), LogisticRegression()), NAMES, TEXTS, output="scores", convert="stages"
    ),
    "stages-scaled-boosting-value": fitted(
        make_pipeline(StandardScaler(), PCA(3, random_state=0), GradientBoostingRegressor(n_estimators=5)),
        X[:, 3],
        X.astype(float),
        output="value",
        convert="stages",
    ),
    "sklearn-two-targets-as-a-vector": fitted(Ridge(), X[:, 3:5], output=None),
    "sklearn-two-targets-by-name": fitted(Ridge(), X[:, 3:5], output=None, outputs=("height", "weight")),
    "function-tensors": function(
        "left_and_right",
        named(LEFT_RIGHT),
        {name: array[:3] for name, array in LEFT_RIGHT.items()},
        outputs=("total", "both"),
    ),
    "torch-tensors": network_of_tensors(),
    "onnx-tensors": graph_of_tensors(),
    "onnx-graph-label": graph(output="label"),
    "onnx-graph-names-scores": graph(output="scores", classes=("cat", "dog", "emu", "fox")),
}
NEEDS = {
    "xgboost": pytest.mark.skipif(importlib.util.find_spec("xgboost") is None, reason="XGBoost is not installed"),
    "lightgbm": pytest.mark.skipif(importlib.util.find_spec("lightgbm") is None, reason="LightGBM is not installed"),
    "torch": NEEDS_TORCH,
    "onnx": pytest.mark.skipif(
        importlib.util.find_spec("skl2onnx") is None, reason="the extra `onnx` is not installed"
    ),
    "hummingbird": pytest.mark.skipif(
        importlib.util.find_spec("hummingbird") is None, reason="Hummingbird is not installed"
    ),
}


@pytest.fixture(autouse=True, scope="module")
def documented_runtime() -> Iterator[str]:
    """Make a module of the example of a runtime in docs/runtimes.md, as if it were among the runtimes."""
    page = (Path(__file__).parents[2] / "docs" / "runtimes.md").read_text(encoding="utf-8")
    source = page.split("```python\n\"\"\"Runs a matrix", 1)[1].split("```", 1)[0]
    module = types.ModuleType("documented_runtime")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        patch.setitem(RUNTIMES, "matrix", module.__name__)  # type: ignore[arg-type] # a dict
        exec(f'"""{source}', module.__dict__)
        yield source


@pytest.fixture(
    params=[pytest.param(name, marks=NEEDS.get(name.partition("-")[0], ())) for name in CASES], scope="module"
)
def packaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Case]]:
    """Package one case; returns the folder and the case."""
    folder, case = tmp_path_factory.mktemp(request.param) / "package", CASES[request.param]
    case.package(folder)
    with pytest.MonkeyPatch.context() as patch:
        if case.fastest:
            patch.setattr(
                "workers.packages.autotune.measure", lambda *_: Choice(((1, case.fastest),), {case.fastest: {1: 1.0}})
            )
        yield folder, case


def predict(model: LoadedModel, inputs: list[Input]) -> Predicted:
    """Predict rows as a worker does."""
    return predict_rows(model.runtime, model.manifest, inputs)


def numbers(predicted: Predicted) -> NDArray[np.float64]:
    """Return everything numeric in the results, a row for each row."""
    answers = predicted.answers
    if not isinstance(answers, tuple) and answers.dtype.names:
        return structured_to_unstructured(answers, np.dtype(np.float64))
    parts = [] if isinstance(answers, tuple) else [np.asarray(answers, dtype=np.float64)[:, None]]
    parts += [] if predicted.scores is None else [np.asarray(predicted.scores, dtype=np.float64)]
    return np.hstack(parts) if parts else np.zeros((len(predicted.outcomes), 0))


def texts(predicted: Predicted) -> tuple[str, ...]:
    """Return the answers that are texts."""
    return predicted.answers if isinstance(predicted.answers, tuple) else ()


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_an_answer_does_not_depend_on_the_rows_beside_it(packaged: tuple[Path, Case], size: int) -> None:
    """Whatever the batches, in whatever order: equal labels, numbers within 1e-5."""
    folder, case = packaged
    model = load_package(folder)
    whole = predict(model, case.inputs)
    assert set(whole.outcomes) == {Outcome.OK}
    order = np.random.default_rng(size).permutation(ROWS)
    for start in range(0, ROWS, size):
        rows = order[start : start + size].tolist()
        part = predict(model, [case.inputs[row] for row in rows])
        np.testing.assert_allclose(numbers(part), numbers(whole)[rows], rtol=0, atol=1e-5)
        assert texts(part) == tuple(texts(whole)[row] for row in rows if texts(whole))
        if model.manifest.output not in {"value", "tensors"} and not texts(whole):
            assert np.array_equal(np.asarray(part.answers), np.asarray(whole.answers)[rows])


def test_padding_to_allowed_sizes_changes_no_answer(packaged: tuple[Path, Case]) -> None:
    """Filled up to 16 or 64 rows, or cut into several batches: equal labels, numbers within 1e-5."""
    folder, case = packaged
    model = load_package(folder)
    whole = predict(model, case.inputs)
    for sizes in ((16,), (4, 64)):
        fixed = predict(replace(model, runtime=Padded(model.runtime, sizes)), case.inputs)
        assert fixed.outcomes == whole.outcomes
        np.testing.assert_allclose(numbers(fixed), numbers(whole), rtol=0, atol=1e-5)
        assert texts(fixed) == texts(whole)


def test_a_bad_row_does_not_fail_its_neighbours(packaged: tuple[Path, Case]) -> None:
    """Wrong kinds, shapes and numbers among good rows: those are answered as without them."""
    folder, case = packaged
    model = load_package(folder)
    wide, infinite = Tensor.of(np.zeros(99, dtype=np.float32)), Tensor.of(np.full(6, np.inf, dtype=np.float32))
    text: Input = 0 if model.manifest.input.kind == "string" else "text"  # type: ignore[assignment]
    mixed = [wide, *case.inputs[:2], infinite, *case.inputs[2:4], text]
    predicted = predict(model, mixed)
    good = [1, 2, 4, 5]
    assert [predicted.outcomes[row] for row in good] == [Outcome.OK] * 4
    assert [predicted.outcomes[row] for row in (0, 3, 6)] == [Outcome.INVALID] * 3
    alone = predict(model, case.inputs[:4])
    np.testing.assert_allclose(numbers(predicted)[good], numbers(alone), rtol=0, atol=1e-5)
    assert tuple(texts(predicted)[row] for row in good if texts(predicted)) == texts(alone)


def openmp_threads() -> int:
    """Return how many threads OpenMP would use for this one, in any of the libraries that are loaded."""
    return max(each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "openmp")


def torch_threads() -> int:
    """Return how many threads torch would use for this one."""
    found: int = importlib.import_module("torch").get_num_threads()
    return found


@pytest.mark.parametrize(
    ("name", "used"),
    [("sklearn-logistic", openmp_threads), pytest.param("torch-label", torch_threads, marks=NEEDS_TORCH)],
)
def test_arithmetic_has_one_thread_whichever_thread_predicts(
    tmp_path: Path, name: str, used: Callable[[], int]
) -> None:
    """The model's own thread, or the event loop's, which may have had a limit of its own."""
    CASES[name].package(tmp_path / "model")

    def predict() -> int:
        predict_rows(model.runtime, model.manifest, CASES[name].inputs)
        return used()

    with ThreadPoolExecutor(1) as pool:
        if used is torch_threads:
            pool.submit(importlib.import_module("torch").set_num_threads, 2).result()
        model = load_package(tmp_path / "model")
        for _ in range(2):
            assert pool.submit(predict).result() == 1
    with ThreadPoolExecutor(1) as other:
        assert other.submit(predict).result() == 1


@NEEDS_TORCH
def test_a_network_on_a_device_says_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches stay in their thread, however little of the CPU's time they take."""
    torch, module = importlib.import_module("torch"), importlib.import_module("workers.runtimes.torch")
    monkeypatch.setattr(module, "Cuda", lambda *_: None)  # nothing is asked here
    manifest = Manifest("toy", "1", "torch", Signature("tensor", "float32", (6,)), "scores", files={})
    waits = [module.TorchRuntime(manifest, torch.nn.Linear(6, 4), torch.device(on), 1).waits for on in ("meta", "cpu")]
    assert waits == [True, False]


def test_loading_twice_gives_the_same_model(packaged: tuple[Path, Case]) -> None:
    """Nothing is learnt, drawn or forgotten by loading: the answers are equal to the bit."""
    folder, case = packaged
    first, second = (predict(load_package(folder), case.inputs) for _ in range(2))
    assert numbers(first).tobytes() == numbers(second).tobytes()
    assert texts(first) == texts(second)


def test_a_changed_package_is_refused(packaged: tuple[Path, Case]) -> None:
    """One byte of one file, or of the manifest against the deployed digest, is enough."""
    folder, _ = packaged
    deployed = digest(folder)
    for path in sorted(folder.iterdir()):
        kept = path.read_bytes()
        changed = kept.replace(b'"1"', b'"2"') if path.name == MANIFEST else kept[:-1] + bytes([kept[-1] ^ 1])
        path.write_bytes(changed)
        with pytest.raises(PackageError, match=r"again"):
            load_package(folder, digest=deployed)
        path.write_bytes(kept)
    assert load_package(folder, digest=deployed).digest == deployed


@NEEDS_TORCH
def test_a_scikit_learn_worker_loads_no_torch_and_stays_small(tmp_path: Path) -> None:
    """Only a torch model pays for torch: 140 MB without, 630 with it (measured)."""
    CASES["sklearn-forest-threads-scores"].package(tmp_path / "package")
    code = (
        "import psutil, sys; from workers.packages.loading import load_package; load_package(sys.argv[1]); "
        "assert 'torch' not in sys.modules; print(psutil.Process().memory_info().rss // 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "package")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= 200


def test_a_new_runtime_takes_fewer_than_25_lines(documented_runtime: str) -> None:
    """The one that is shown, which all of the above has just run, with its imports and docstring."""
    assert len([line for line in documented_runtime.splitlines() if line.strip()]) < 25


@pytest.mark.parametrize(
    ("case", "others"),
    [
        pytest.param("onnx-forest-scores", ("skl2onnx", "onnx"), marks=NEEDS["onnx"]),
        ("trees-forest-missing-scores", ("onnxruntime", "scipy")),
        ("linear-logistic-scores", ("onnxruntime", "scipy")),
    ],
)
def test_a_worker_of_a_converted_model_loads_neither_scikit_learn_nor_torch(
    tmp_path: Path, case: str, others: tuple[str, ...]
) -> None:
    """The original lies in its package, but it needs ONNX Runtime or NumPy alone: 80 MB with the model (measured)."""
    CASES[case].package(tmp_path / "package")
    code = (
        "import psutil, sys; from workers.packages.loading import load_package; load_package(sys.argv[1]); "
        f"assert not {{'torch', 'sklearn', 'skops', *{others}}} & set(sys.modules); "
        "print(psutil.Process().memory_info().rss // 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "package")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= 120
