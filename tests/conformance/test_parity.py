"""Parity models: exact ones of linear models, trained ones of others, and what their packages say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy.state.packages import model_record
from policies.calibration import KNOTS, along
from streams.operators.selection.coded.code import code_of, decoded
from workers.errors import PackageError
from workers.packages.loading import load_package
from workers.packages.packaging import package_function, package_sklearn, package_torch
from workers.packages.parity import Judged, Training, package_parity

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pytest.importorskip("torch", reason="torch is not installed")
networks = pytest.importorskip("workers.runtimes.parity")
linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
datasets = pytest.importorskip("sklearn.datasets")

RANDOM = np.random.default_rng(7)
ROWS: NDArray[np.float64] = RANDOM.normal(size=(200, 6))


def outputs(folder: Path, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return what a package's model answers, scores or values."""
    found = load_package(folder).runtime.predict_batch(rows)
    return np.asarray(found.answers if found.scores is None else found.scores, np.float64)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_parity_model_of_a_linear_regression_is_exact_and_not_trained(k: int, tmp_path: Path) -> None:
    """Every missing value is decoded as the model itself would have answered, in double precision."""
    regression = linear_model.LinearRegression().fit(ROWS, ROWS @ RANDOM.normal(size=6) + 3.0)
    package_sklearn(regression, tmp_path / "base", "price", "4", ROWS[:5])
    told: list[Judged] = []
    made = package_parity(
        tmp_path / "base", tmp_path / "parity", "price-parity", "1", ROWS, Training(k=k), on_epoch=told.append
    )
    assert made.options["parity"] == {"of": "price@4", "k": k}
    assert model_record(tmp_path / "parity").parity_right == ()  # numbers have no confidence
    ((epoch, loss, difference, *_),) = told
    assert (epoch, loss) == (0, 0.0)
    assert difference < 1e-12
    group = ROWS[:k]
    own, parity = outputs(tmp_path / "base", group), outputs(tmp_path / "parity", group.sum(axis=0)[np.newaxis])
    for missing in range(k):
        others = [own[place, np.newaxis] for place in range(k) if place != missing]
        assert decoded(parity, others) == pytest.approx(own[missing], abs=1e-12)


def test_the_parity_model_of_a_linear_network_is_exact_in_its_own_precision(tmp_path: Path) -> None:
    """Scores of single precision: what is left is their rounding."""
    rows = ROWS.astype(np.float32)
    network = networks.affine(6, 3)
    arguments = {"inputs": 6, "outputs": 3}
    package_torch(
        network, tmp_path / "base", "net", "1", rows[:5], architecture="workers.runtimes.parity:affine",
        arguments=arguments, output="scores", classes=("a", "b", "c"),
    )  # fmt: skip
    told: list[Judged] = []
    package_parity(tmp_path / "base", tmp_path / "parity", "net-parity", "1", rows, Training(k=3), on_epoch=told.append)
    assert told[0].epoch == 0
    assert told[0].difference < 1e-5
    assert told[0].agreement == 1.0
    model, parity = (model_record(tmp_path / name) for name in ("base", "parity"))
    code = code_of(parity, {"net": model})
    assert code is not None
    assert (code.model, code.version, code.k, code.dtype) == ("net", "1", 3, "float32")


def test_a_parity_model_is_trained_where_the_model_is_not_linear(tmp_path: Path) -> None:
    """On digits it decodes most answers after some epochs; the same seed gives the same network."""
    data = datasets.load_digits()
    rows, labels = (data.data / 16).astype(np.float32), data.target
    model = linear_model.LogisticRegression(max_iter=200).fit(rows, labels)
    package_sklearn(model, tmp_path / "base", "digits", "1", rows[:50], output="scores")
    told: list[Judged] = []
    training = Training(epochs=20, seed=3, batch=32)
    for number in range(2):
        package_parity(
            tmp_path / "base", tmp_path / f"parity-{number}", "digits-parity", "1", rows, training, labels=labels,
            on_epoch=told.append,
        )  # fmt: skip
    assert told[:20] == told[20:]
    assert [one.epoch for one in told[:20]] == list(range(1, 21))
    assert told[19].loss < told[0].loss / 2
    assert told[19].own > 0.95
    assert told[19].accuracy > 0.6  # of ten digits a guess gets a tenth
    right = model_record(tmp_path / "parity-0").parity_right
    assert right == model_record(tmp_path / "parity-1").parity_right
    assert len(right) == len(KNOTS)
    assert sorted(right) == [*right]
    typical = float(np.e) / (np.e + 9)  # what a softmax makes of a probability of 1 among ten
    assert along(right, typical) == pytest.approx(told[19].accuracy, abs=0.15)


def test_without_labels_decoded_answers_are_as_likely_right_as_the_models_own_scores_say(tmp_path: Path) -> None:
    """Of an exact parity model that is what the scores say, which are the model's own."""
    rows, arguments = ROWS.astype(np.float32), {"inputs": 6, "outputs": 3}
    package_torch(
        networks.affine(6, 3), tmp_path / "base", "net", "1", rows[:5], architecture="workers.runtimes.parity:affine",
        arguments=arguments, output="scores", classes=("a", "b", "c"),
    )  # fmt: skip
    package_parity(tmp_path / "base", tmp_path / "parity", "net-parity", "1", rows, Training(held_out=0.9))
    right = model_record(tmp_path / "parity").parity_right
    for knot, share in zip(KNOTS[2:], right[2:], strict=True):  # of three classes the best has more than a third
        assert share == pytest.approx(knot, abs=0.05)


@pytest.mark.parametrize(
    ("output", "rows", "training", "why"),
    [
        ("label", ROWS, Training(), "labels, which cannot be added"),
        ("value", ROWS[:, :3], Training(), r"the rows that were given have \(3,\)"),
        ("value", ROWS[:5], Training(), "too few"),
        ("value", ROWS, Training(k=5), "2, 3 or 4 rows, not 5"),
    ],
)
def test_what_cannot_be_coded_is_refused_with_what_to_do(
    output: str, rows: NDArray[np.float64], training: Training, why: str, tmp_path: Path
) -> None:
    """Before anything is trained; nothing is left in the folder."""
    function = {"label": "tests.toys:parity", "value": "tests.toys:total"}[output]
    package_function(function, tmp_path / "base", "first", "1", ROWS[:5].astype(np.float32), output=output)
    with pytest.raises(PackageError, match=why):
        package_parity(tmp_path / "base", tmp_path / "parity", "first-parity", "1", rows, training)
    assert not (tmp_path / "parity").exists()
