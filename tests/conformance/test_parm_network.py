"""ParM's published MNIST network (SOSP'19), packaged and run offline: exactly 9,793 of 10,000 right, in any batches."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import Outcome, Tensor
from workers.loading import load_package
from workers.packaging import package_torch
from workers.rows import predict_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.loading import LoadedModel

DATA = Path(__file__).parents[3] / "shared/data"
NETWORK = DATA / "vectors/parm/mnist-base-mlp.t7"
IMAGES = DATA / "labelled/mnist/t10k-images-idx3-ubyte.gz"
LABELS = DATA / "labelled/mnist/t10k-labels-idx1-ubyte.gz"
RIGHT = 9_793

torch = pytest.importorskip("torch", reason="torch is not installed")
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
def packaged(
    rows: NDArray[np.float32], tmp_path_factory: pytest.TempPathFactory
) -> tuple[LoadedModel, NDArray[np.float32]]:
    """Package the published network; returns it loaded, and its logits as torch gives them directly."""
    nets = pytest.importorskip("tests.toy_nets")
    arguments = {"inputs": 784, "outputs": 10, "hidden": [200, 100]}
    module = nets.mlp(**arguments)
    published = torch.load(NETWORK, weights_only=True, map_location="cpu")
    module.load_state_dict({name.removeprefix("nn."): state for name, state in published.items()})
    with torch.inference_mode():
        direct = module.eval()(torch.from_numpy(rows)).numpy()
    folder = tmp_path_factory.mktemp("parm") / "package"
    package_torch(
        module, folder, "parm", "1", rows[:2], architecture="tests.toy_nets:mlp", arguments=arguments, output="scores"
    )
    return load_package(folder), direct


def test_the_published_accuracy_is_that_of_direct_torch(
    packaged: tuple[LoadedModel, NDArray[np.float32]], labels: NDArray[np.uint8]
) -> None:
    """The weights are the published ones."""
    assert int((packaged[1].argmax(axis=1) == labels).sum()) == RIGHT


@pytest.mark.parametrize(("limit", "count"), [(1, 2_000), (37, 10_000), (10_000, 10_000)])
def test_every_answer_is_that_of_direct_torch_whatever_the_batches(
    packaged: tuple[LoadedModel, NDArray[np.float32]], rows: NDArray[np.float32], limit: int, count: int
) -> None:
    """The first `count` images in batches of 1 to `limit`: equal digits, every logit within 1e-5."""
    model, direct = packaged
    sizes = np.random.default_rng(limit)
    start = 0
    while start < count:
        end = min(count, start + int(sizes.integers(1, limit + 1)))
        predicted = predict_rows(model.runtime, model.manifest, [Tensor.of(row) for row in rows[start:end]])
        assert set(predicted.outcomes) == {Outcome.OK}
        assert predicted.scores is not None
        np.testing.assert_allclose(predicted.scores, direct[start:end], rtol=0, atol=1e-5)
        assert np.array_equal(np.asarray(predicted.answers), direct[start:end].argmax(axis=1))
        start = end
