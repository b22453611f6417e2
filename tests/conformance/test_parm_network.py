"""ParM's published MNIST network (SOSP'19), packaged and run offline: exactly 9,793 of 10,000 right, in any batches."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas.records import Outcome, Tensor
from workers.inputs.rows import predict_rows
from workers.packages.loading import load_package
from workers.packages.packaging import package_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from streams.operators.contract import Predicted
    from workers.packages.loading import LoadedModel

DATA = Path(__file__).parents[3] / "shared/data"
NETWORK = DATA / "vectors/parm/mnist-base-mlp.t7"
IMAGES = DATA / "labelled/mnist/t10k-images-idx3-ubyte.gz"
LABELS = DATA / "labelled/mnist/t10k-labels-idx1-ubyte.gz"
RIGHT = 9_793
ARGUMENTS: dict[str, Any] = {"inputs": 784, "outputs": 10, "hidden": [200, 100]}

torch = pytest.importorskip("torch", reason="torch is not installed")
nets = pytest.importorskip("tests.toy_nets")
if not (NETWORK.is_file() and IMAGES.is_file()):
    pytest.skip("../shared/data is not on this machine", allow_module_level=True)


@pytest.fixture(scope="module")
def rows() -> NDArray[np.float32]:
    """Return the 10,000 test images, one a row, 0 to 1."""
    pixels = np.frombuffer(gzip.decompress(IMAGES.read_bytes()), dtype=np.uint8, offset=16)
    return (pixels.reshape(-1, 784) / np.float32(255)).astype(np.float32)


@pytest.fixture(scope="module")
def labels() -> NDArray[np.uint8]:
    """Return their digits."""
    return np.frombuffer(gzip.decompress(LABELS.read_bytes()), dtype=np.uint8, offset=8)


@pytest.fixture(scope="module")
def published() -> torch.nn.Module:
    """Return the published network, for torch alone."""
    module: torch.nn.Module = nets.mlp(**ARGUMENTS)
    states = torch.load(NETWORK, weights_only=True, map_location="cpu")
    module.load_state_dict({name.removeprefix("nn."): state for name, state in states.items()})
    return module.eval()


@pytest.fixture(scope="module")
def packaged(
    published: torch.nn.Module, rows: NDArray[np.float32], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int | None], LoadedModel]:
    """Return a function that packages the published network, for batches of at least so many rows, and loads it."""

    @cache
    def load(min_rows: int | None) -> LoadedModel:
        folder = tmp_path_factory.mktemp("parm") / "package"
        form: dict[str, Any] = {"architecture": "tests.toy_nets:mlp", "arguments": ARGUMENTS, "output": "scores"}
        package_torch(published, folder, "parm", "1", rows[:2], **form, min_rows=min_rows)
        return load_package(folder)

    return load


def logits_of(module: torch.nn.Module, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what torch itself gives for these rows, asked together."""
    with torch.inference_mode():
        return np.asarray(module(torch.from_numpy(rows)).numpy())


def test_the_published_accuracy_is_that_of_direct_torch(
    published: torch.nn.Module, rows: NDArray[np.float32], labels: NDArray[np.uint8]
) -> None:
    """The weights are the published ones."""
    assert int((logits_of(published, rows).argmax(axis=1) == labels).sum()) == RIGHT


@pytest.mark.parametrize(("limit", "count"), [(1, 2_000), (37, 10_000), (10_000, 10_000)])
@pytest.mark.parametrize("min_rows", [None, 16])
def test_every_answer_is_that_of_direct_torch_whatever_the_batches(
    published: torch.nn.Module,
    packaged: Callable[[int | None], LoadedModel],
    rows: NDArray[np.float32],
    min_rows: int | None,
    limit: int,
    count: int,
) -> None:
    """The first `count` images in batches of 1 to `limit`: the digits of all at once, the logits of the same batch.

    Filled up to 16 rows they are those of all at once, too, which is what `min_rows` is for: without it torch's own are
    up to 1.5e-5 apart, which depends on the CPU.
    """
    direct = logits_of(published, rows)
    for start, end in spans(limit, count):
        predicted = scored(packaged(min_rows), rows[start:end])
        expected = direct[start:end] if min_rows else logits_of(published, rows[start:end])
        np.testing.assert_allclose(predicted.scores, expected, rtol=0, atol=1e-5)
        assert np.array_equal(np.asarray(predicted.answers), direct[start:end].argmax(axis=1))


def scored(model: LoadedModel, rows: NDArray[np.float32]) -> Predicted:
    """Return the answers of a batch, every one of which must be there."""
    predicted = predict_rows(model.runtime, model.manifest, [Tensor.of(row) for row in rows])
    assert set(predicted.outcomes) == {Outcome.OK}
    assert predicted.scores is not None
    return predicted


def spans(limit: int, count: int) -> Iterator[tuple[int, int]]:
    """Cut `count` rows into batches of 1 to `limit`."""
    sizes = np.random.default_rng(limit)
    start = 0
    while start < count:
        end = min(count, start + int(sizes.integers(1, limit + 1)))
        yield start, end
        start = end
