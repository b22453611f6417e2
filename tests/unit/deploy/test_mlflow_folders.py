"""Model folders of MLflow become packages: by the library that made them, and without a pickle where there is none."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.errors import UsageError
from deploy.mlflow.folder import read
from schemas.records import Tensor
from workers.errors import PackageError
from workers.executors.predictor import predictor
from workers.packages.loading import load_package

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(3)
X = RNG.normal(size=(200, 3)).astype(np.float32)
Y = (X[:, 0] > X[:, 1]).astype(int)


def saved(folder: Path, flavour: str, told: dict[str, Any], example: object = None) -> Path:
    """Write what MLflow writes beside a model's file."""
    folder.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"flavors": {"python_function": {"loader_module": f"mlflow.{flavour}"}, flavour: told}}
    if example is not None:
        (folder / "input_example.json").write_text(json.dumps(example))
        document["saved_input_example_info"] = {"artifact_path": "input_example.json", "type": "ndarray"}
    (folder / "MLmodel").write_text(yaml.safe_dump(document))
    return folder


def packaged(source: Path, folder: Path, *options: str) -> Any:
    """Package a folder by the command; returns what answers rows."""
    arguments = ["model", "package", "--mlflow", str(source), str(folder), "--name", "m", *options]
    result = CliRunner(env=dict(os.environ)).invoke(skysail, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return predictor(load_package(folder))


def answers(ask: Any, rows: Any = X) -> list[Any]:
    """Return the answers to rows."""
    found = ask([Tensor.of(row) for row in rows])
    return list(found.answers) if isinstance(found.answers, tuple) else found.answers.tolist()


EXAMPLE = {"inputs": X[:5].tolist()}


def test_a_booster_of_xgboost(tmp_path: Path) -> None:
    """With its example as the sample; an estimator answers its labels."""
    xgboost = pytest.importorskip("xgboost")
    fitted = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, Y)
    told = {"data": "model.ubj", "model_class": "xgboost.sklearn.XGBClassifier", "model_format": "ubj"}
    folder = saved(tmp_path / "x", "xgboost", told, EXAMPLE)
    fitted.save_model(folder / "model.ubj")
    assert answers(packaged(folder, tmp_path / "package")) == fitted.predict(X).tolist()


def test_a_class_that_is_not_of_the_library_is_refused(tmp_path: Path) -> None:
    """The folder does not choose which code runs."""
    pytest.importorskip("xgboost")
    folder = saved(tmp_path / "x", "xgboost", {"data": "model.ubj", "model_class": "os.system"}, EXAMPLE)
    (folder / "model.ubj").write_bytes(b"")
    arguments = ["model", "package", "--mlflow", str(folder), str(tmp_path / "package"), "--name", "m"]
    result = CliRunner(env=dict(os.environ)).invoke(skysail, arguments)
    assert isinstance(result.exception, PackageError)
    assert "was saved by os.system" in str(result.exception)


def test_a_booster_of_lightgbm(tmp_path: Path) -> None:
    """From its own text."""
    lightgbm = pytest.importorskip("lightgbm")
    booster = lightgbm.train({"objective": "regression", "verbosity": -1, "num_threads": 1}, lightgbm.Dataset(X, Y), 5)
    told = {"data": "model.lgb", "model_class": "lightgbm.basic.Booster"}
    folder = saved(tmp_path / "l", "lightgbm", told, EXAMPLE)
    booster.save_model(folder / "model.lgb")
    assert answers(packaged(folder, tmp_path / "package")) == pytest.approx(booster.predict(X).tolist(), abs=1e-5)


def test_an_estimator_that_skops_has_saved(tmp_path: Path) -> None:
    """No pickle, so nothing has to be vouched for."""
    skops = pytest.importorskip("skops.io")
    linear = pytest.importorskip("sklearn.linear_model")
    fitted = linear.LogisticRegression().fit(X, Y)
    told = {"pickled_model": "model.skops", "serialization_format": "skops"}
    folder = saved(tmp_path / "s", "sklearn", told, EXAMPLE)
    skops.dump(fitted, folder / "model.skops")
    assert answers(packaged(folder, tmp_path / "package")) == fitted.predict(X).tolist()


def test_a_pickle_needs_somebody_who_vouches_for_it(tmp_path: Path) -> None:
    """The message names the switch with the digest; with it the estimator is packaged, without a pickle."""
    linear = pytest.importorskip("sklearn.linear_model")
    fitted = linear.LogisticRegression().fit(X, Y)
    folder = saved(tmp_path / "s", "sklearn", {"pickled_model": "model.pkl", "serialization_format": "pickle"})
    content = pickle.dumps(fitted)
    (folder / "model.pkl").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    arguments = ["model", "package", "--mlflow", str(folder), str(tmp_path / "package"), "--name", "m"]
    rows = json.dumps(X[:5].tolist())
    result = CliRunner(env=dict(os.environ)).invoke(skysail, [*arguments, "--sample", rows])
    assert f"--trust-pickle {digest}" in str(result.exception)
    assert "add --sample" in str(CliRunner(env=dict(os.environ)).invoke(skysail, arguments).exception)
    ask = packaged(folder, tmp_path / "package", "--sample", rows, "--trust-pickle", digest)
    assert answers(ask) == fitted.predict(X).tolist()
    assert not [*(tmp_path / "package").glob("*.pickle")]


def test_a_graph_of_onnx(tmp_path: Path) -> None:
    """As a file of its own."""
    skl2onnx = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    linear = pytest.importorskip("sklearn.linear_model")
    fitted = linear.LogisticRegression().fit(X, Y)
    graph = skl2onnx.to_onnx(fitted, X[:1], options={id(fitted): {"zipmap": False}})
    folder = saved(tmp_path / "o", "onnx", {"data": "model.onnx"}, EXAMPLE)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    assert answers(packaged(folder, tmp_path / "package")) == fitted.predict(X).tolist()


def test_a_network_needs_what_builds_it(tmp_path: Path) -> None:
    """And somebody who vouches for its pickle; an exported program has another way."""
    pytest.importorskip("torch")
    folder = saved(tmp_path / "t", "pytorch", {"model_data": "data"}, EXAMPLE)
    (folder / "data").mkdir()
    (folder / "data" / "model.pth").write_bytes(b"pickled")
    digest = hashlib.sha256(b"pickled").hexdigest()
    arguments = ["model", "package", "--mlflow", str(folder), str(tmp_path / "package"), "--name", "m"]
    runner = CliRunner(env=dict(os.environ))
    assert f"--trust-pickle {digest}" in str(runner.invoke(skysail, arguments).exception)
    arguments += ["--trust-pickle", digest]
    assert "--architecture module:factory" in str(runner.invoke(skysail, arguments).exception)
    (folder / "data" / "model.pth").rename(folder / "data" / "model.pt2")
    assert "export it to ONNX" in str(runner.invoke(skysail, arguments).exception)


def test_rows_with_names_stay_a_frame(tmp_path: Path) -> None:
    """For models that may go by names; others take their numbers."""
    example = {"columns": ["a", "b"], "data": [[1, "x"], [2, "y"]]}
    folder = saved(tmp_path / "s", "sklearn", {"pickled_model": "model.skops"}, example)
    (folder / "model.skops").write_bytes(b"")
    assert json.loads(read(folder).example) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    folder = saved(tmp_path / "x", "xgboost", {"data": "model.ubj"}, {"columns": ["a"], "data": [[1.0]]})
    (folder / "model.ubj").write_bytes(b"")
    assert json.loads(read(folder).example) == [[1.0]]


@pytest.mark.parametrize(
    ("told", "why"),
    [({"data": "../secret"}, "outside of the folder"), ({"data": "gone"}, "which is no file"), ({}, "does not say")],
)
def test_a_folder_reads_nothing_outside_of_it(tmp_path: Path, told: dict[str, str], why: str) -> None:
    """Nor what is not there."""
    (tmp_path / "secret").write_text("")
    with pytest.raises(UsageError, match=why):
        read(saved(tmp_path / "m", "xgboost", told))


def test_other_libraries_are_told_apart(tmp_path: Path) -> None:
    """With what there is instead."""
    with pytest.raises(UsageError, match="package_container"):
        read(saved(tmp_path / "m", "prophet", {"data": "x"}))
    with pytest.raises(UsageError, match="no model folder of MLflow"):
        read(tmp_path)
