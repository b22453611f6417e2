"""Networks as trunk and head: one trunk in memory, rows that go through it together, answers as if each were alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy.state.packages import model_record
from schemas.records import Outcome, Tensor
from workers.errors import PackageError
from workers.executors.footprint import Footprint
from workers.executors.predictor import predictor
from workers.executors.together import HeldModel, headed, together
from workers.manifest import read
from workers.packages.loading import load_package
from workers.packages.packaging import package_sklearn, package_torch
from workers.runtimes.stages.store import Recent
from workers.runtimes.trunks import trunk_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from streams.operators.contract import Predicted
    from workers.packages.loading import LoadedModel

pytest.importorskip("torch", reason="torch is not installed")
nets = importlib.import_module("tests.toy_nets")

INPUTS, MIDDLE = 6, 8
X = np.random.default_rng(3).normal(size=(40, INPUTS)).astype(np.float32)


def package(folder: Path, name: str, outputs: int = 3, seed: int = 0, head: str = "mlp", **options: Any) -> LoadedModel:
    """Package a head with a trunk of some seed, and load it."""
    trunk = nets.seeded(nets.mlp(INPUTS, MIDDLE), seed)
    package_torch(
        nets.seeded(getattr(nets, head)(MIDDLE, outputs), len(name) + outputs),
        folder / name,
        name,
        "1",
        X[:3],
        architecture=f"tests.toy_nets:{head}",
        arguments={"inputs": MIDDLE, "outputs": outputs},
        trunk=trunk,
        trunk_architecture="tests.toy_nets:mlp",
        trunk_arguments={"inputs": INPUTS, "outputs": MIDDLE},
        output="scores",
        **options,
    )
    return load_package(folder / name)


def copy(model: LoadedModel) -> HeldModel:
    """Return a model as the process of a host holds it."""
    return HeldModel(predictor(model), headed(model, ()))


def inputs(rows: NDArray[np.float32]) -> list[Tensor]:
    """Return rows as they come."""
    return [Tensor.of(row) for row in rows]


def equal(found: Predicted, alone: Predicted) -> None:
    """Compare labels and outcomes to the bit, and scores within what a runtime may differ by."""
    assert found.outcomes == alone.outcomes
    np.testing.assert_array_equal(found.answers, alone.answers)
    assert found.scores is not None
    assert alone.scores is not None
    np.testing.assert_allclose(found.scores, alone.scores, rtol=1e-5, atol=1e-5)


def test_equal_trunks_have_one_digest_and_are_in_memory_once(tmp_path: Path) -> None:
    """Whatever the heads are; another trunk is another one. The record of the model says so."""
    one, two = package(tmp_path, "one"), package(tmp_path, "two", outputs=5)
    other = package(tmp_path, "other", seed=1)
    record = model_record(tmp_path / "one")
    assert (record.trunk, record.trunk) == (trunk_of(one.manifest).digest, trunk_of(two.manifest).digest)
    assert 0 < record.trunk_bytes < record.bytes
    assert one.runtime.trunk is two.runtime.trunk  # type: ignore[attr-defined] # a network has one
    assert trunk_of(other.manifest).digest not in {"", record.trunk}


def test_a_head_is_measured_with_its_trunk_wherever_that_comes_from(tmp_path: Path) -> None:
    """The first brings it, the second finds it; who reckons with a trunk of its own takes that off again."""
    for name in ("one", "two"):
        package(tmp_path, name)
    record = model_record(tmp_path / "one")
    footprint = Footprint(0)
    loaded = [footprint.measured(tmp_path / name, lambda: load_package(tmp_path / name)) for name in ("one", "two")]  # noqa: B023 - called at once
    assert all(size_bytes >= record.trunk_bytes for _, size_bytes, _ in loaded)


@pytest.mark.parametrize("options", [{}, {"min_rows": 16}])
def test_heads_on_one_trunk_answer_as_each_alone(options: dict[str, Any], tmp_path: Path) -> None:
    """Of rows of their own, of equal rows, and of one row each; with rows enough, scores are equal to the bit."""
    copies = [copy(package(tmp_path, f"m{outputs}", outputs=outputs, **options)) for outputs in (2, 3, 5)]
    for spans in ((X[:7], X[7:20], X[20:]), (X[:9], X[:9], X[4:12]), (X[:1], X[1:2], X[2:3])):
        parts = [(each, inputs(rows)) for each, rows in zip(copies, spans, strict=True)]
        for (each, rows), found in zip(parts, together(parts), strict=True):
            equal(found, each.predict(rows))
            if options:
                np.testing.assert_array_equal(found.scores, each.predict(rows).scores)


def test_the_trunk_runs_once_for_all_and_once_for_equal_rows_of_late(tmp_path: Path) -> None:
    """The rows that it sees are counted."""
    copies = [copy(package(tmp_path, name)) for name in ("one", "two")]
    seen: list[int] = []
    trunk = copies[0].headed.trunk  # type: ignore[union-attr] # a network has one
    trunk.module.register_forward_hook(lambda _module, given, _found: seen.append(len(given[0])))  # type: ignore[attr-defined]
    [*together([(copies[0], inputs(X[:4])), (copies[1], inputs(X[4:9]))])]
    [*together([(copies[0], inputs(X[:4])), (copies[1], inputs(X[2:6]))])]
    assert seen == [9, 6]
    recent = Recent()
    [*together([(copies[0], inputs(X[:4]))], recent)]
    (found,) = together([(copies[1], inputs(X[2:6]))], recent)
    assert seen == [9, 6, 4, 2]
    equal(found, copies[1].predict(inputs(X[2:6])))


def test_a_head_that_fails_harms_its_own_rows_alone(tmp_path: Path) -> None:
    """And of these only the one that is to blame; rows that do not fit are refused for their own model."""
    good, picky = copy(package(tmp_path, "good")), copy(package(tmp_path, "picky", head="picky"))
    rows = inputs(X[:4])
    large = Tensor.of(X[0] * 1e4)
    wrong = Tensor.of(np.zeros(INPUTS + 1, np.float32))
    first, second = together([(good, [*rows, wrong]), (picky, [*rows, large])])
    assert first.outcomes == (*[Outcome.OK] * 4, Outcome.INVALID)
    assert second.outcomes == (*[Outcome.OK] * 4, Outcome.FAILED)
    equal(first, good.predict([*rows, wrong]))
    assert [each.outcomes for each in together([(good, [wrong]), (picky, [wrong])])] == [(Outcome.INVALID,)] * 2


def test_if_the_trunk_fails_each_model_is_asked_by_itself(tmp_path: Path) -> None:
    """Here it raises at batches; whole networks are then halved until single rows are answered."""
    copies = [copy(package(tmp_path, name)) for name in ("one", "two")]

    def refuse(_module: object, given: tuple[Any, ...]) -> None:
        if len(given[0]) > 3:
            raise RuntimeError("too many")

    trunk = copies[0].headed.trunk  # type: ignore[union-attr] # a network has one
    trunk.module.register_forward_pre_hook(refuse)  # type: ignore[attr-defined]
    for found in together([(each, inputs(X[:3])) for each in copies]):
        assert found.outcomes == (Outcome.OK,) * 3


def test_models_of_other_trunks_and_of_none_are_asked_by_themselves(tmp_path: Path) -> None:
    """They may stand in one batch all the same."""
    copies = [copy(package(tmp_path, "one")), copy(package(tmp_path, "other", seed=1))]
    for each, found in zip(copies, together([(each, inputs(X[:3])) for each in copies]), strict=True):
        equal(found, each.predict(inputs(X[:3])))


def test_a_pipeline_in_stages_has_its_steps_but_the_last_as_trunk(tmp_path: Path) -> None:
    """Two that were fitted on one scaler share it."""
    linear, pipelines = importlib.import_module("sklearn.linear_model"), importlib.import_module("sklearn.pipeline")
    scaler = importlib.import_module("sklearn.preprocessing").StandardScaler().fit(X)
    copies = []
    for name, labels in (("one", X[:, 0] > 0), ("two", X[:, 1] > 0)):
        last = linear.LogisticRegression().fit(scaler.transform(X.astype(np.float64)), labels)
        pipeline = pipelines.Pipeline([("scale", scaler), ("last", last)])
        sample = X[:5].astype(np.float64)
        package_sklearn(pipeline, tmp_path / name, name, "1", sample, convert="stages", output="scores")
        copies.append(copy(load_package(tmp_path / name)))
    assert model_record(tmp_path / "one").trunk == model_record(tmp_path / "two").trunk != ""
    parts = [(copies[0], inputs(X[:7])), (copies[1], inputs(X[3:20]))]
    for (each, rows), found in zip(parts, together(parts), strict=True):
        equal(found, each.predict(rows))


def test_a_trunk_needs_what_builds_it(tmp_path: Path) -> None:
    """Nothing is left behind; a package without a trunk has none."""
    network = nets.seeded(nets.mlp(INPUTS, 3))
    known: dict[str, Any] = {
        "architecture": "tests.toy_nets:mlp",
        "arguments": {"inputs": INPUTS, "outputs": 3},
    }
    with pytest.raises(PackageError, match="a trunk needs what builds it"):
        package_torch(network, tmp_path / "m", "m", "1", X[:3], trunk=network, **known)
    assert not (tmp_path / "m").exists()
    package_torch(network, tmp_path / "m", "m", "1", X[:3], **known)
    assert trunk_of(read(tmp_path / "m")).digest == model_record(tmp_path / "m").trunk == ""
