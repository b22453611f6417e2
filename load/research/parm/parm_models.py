"""ParM's networks and their parity models: trained, packaged, and how often what they decode is right."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from load.errors import MissingDataError
from load.harness.data import DATA, mnist, need
from load.research.harness import fashion
from load.research.parm.parm_virtual import NET, PARITY
from policies.calibration import along
from policies.confidence import best_share
from schemas.records import Tensor
from streams.operators.selection.coded.code import decoded
from workers.entry_point import resolve
from workers.packages.loading import load_package
from workers.packages.packaging import package_torch
from workers.packages.parity import Training, package_parity

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_WEIGHTS: Final = DATA / "vectors/parm"
WEIGHTS, IMAGES = _WEIGHTS / "mnist-base-mlp.t7", DATA / "labelled/mnist"
_FASHION_WEIGHTS: Final = _WEIGHTS / "fashion-mnist-base-mlp.t7"
FAST, SLOW, FASHION = "fast", "slow", "fashion"  # folders of packages; asked lanes run the slow ones
_STATE: Final = "model.safetensors"
_BUILD, _BUILD_SLOW = "load.research.models.parm_network:build", "load.research.models.parm_network:build_slow"
_SAMPLE: Final = np.zeros((5, 784), np.float32)
_TESTED: Final = 10_000


def package_networks(folder: Path) -> None:
    """Package the network for MNIST, fast for training and slow to be asked."""
    base = _packaged(WEIGHTS, folder / FAST / NET)
    package_torch(base / _STATE, folder / SLOW / NET, NET, "1", _SAMPLE, architecture=_BUILD_SLOW, output="scores")


def trained(folder: Path, k: int, epochs: int, seed: int) -> dict[str, float]:
    """Package the parity model for groups of k, fast and slow; returns its accuracies.

    Args:
        folder: of `package_networks`.
        k: rows of a group.
        epochs: how often all training images are taken.
        seed: of the training.
    """
    pixels, digits = mnist(IMAGES, "train", 60_000)
    base, name = folder / FAST / NET, f"{PARITY}-{k}"
    training = Training(k=k, epochs=epochs, seed=seed)
    made = package_parity(base, folder / FAST / name, PARITY, "1", scaled(pixels), training, labels=digits)
    package_torch(
        folder / FAST / name / _STATE, folder / SLOW / name, PARITY, "1", _SAMPLE, architecture=_BUILD_SLOW,
        output="scores", parity=made.options["parity"],
    )  # fmt: skip
    pixels, digits = mnist(IMAGES, "t10k", _TESTED)
    return _judged(f"k{k}", epochs, decoding(base, folder / FAST / name, scaled(pixels), digits, k))


class Fetched(NamedTuple):
    """Where Fashion-MNIST's images are; None = nowhere, and why."""

    package: Path | None = None
    notes: tuple[str, ...] = ()


def fashion_fetched(folder: Path) -> Fetched:
    """Find Fashion-MNIST's images, or fetch them into a folder; package the network for them."""
    try:
        need(_FASHION_WEIGHTS)
        package = fashion.found(folder)
    except MissingDataError as error:
        return Fetched(None, (f"Fashion-MNIST is left out: {error}.",))
    _packaged(_FASHION_WEIGHTS, folder / FASHION / NET)
    return Fetched(package)


def fashion_trained(folder: Path, package: Path, k: int, epochs: int, seed: int) -> dict[str, float]:
    """Make the parity model of the network for Fashion-MNIST, trained on 60,000 images; returns its accuracies.

    Args:
        folder: of `fashion_fetched`.
        package: with the images, as it says.
        k: rows of a group.
        epochs: how often all training images are taken.
        seed: of the training, and of which images are not trained on.
    """
    pixels, labels = fashion.images(package)
    order = np.random.default_rng(seed).permutation(len(pixels))
    rows, labels = scaled(pixels[order]), labels[order]
    base, parity = folder / FASHION / NET, folder / FASHION / f"{PARITY}-{k}"
    training = Training(k=k, epochs=epochs, seed=seed)
    package_parity(base, parity, PARITY, "1", rows[_TESTED:], training, labels=labels[_TESTED:])
    return _judged(f"{FASHION}_k{k}", epochs, decoding(base, parity, rows[:_TESTED], labels[:_TESTED], k))


def _packaged(weights: Path, folder: Path) -> Path:
    network = resolve("load.research.models.parm_network:load_published")(weights)
    package_torch(network, folder, NET, "1", _SAMPLE, architecture=_BUILD, output="scores")
    return folder


class Decoding(NamedTuple):
    """What became of images that were decoded, each once.

    Attributes:
        own: share of the network's own answers that are right.
        accuracy: share of the decoded answers that are right.
        raw_confidence: how sure the decoded scores seem, on the average.
        confidence: how sure decoded answers say they are.
    """

    own: float
    accuracy: float
    raw_confidence: float
    confidence: float


def _judged(name: str, epochs: int, found: Decoding) -> dict[str, float]:
    figures = {f"{name}_epochs": epochs, f"{name}_own_accuracy": found.own, f"{name}_accuracy": found.accuracy}
    figures |= {f"{name}_raw_confidence": found.raw_confidence, f"{name}_confidence": found.confidence}
    return figures | {f"{name}_accuracy_lost_points": 100 * (found.own - found.accuracy)}


def decoding(base: Path, parity: Path, images: NDArray[np.float32], labels: NDArray[np.int64], k: int) -> Decoding:
    """Decode each image once, as if its output were missing.

    Args:
        base: package of the network.
        parity: of its parity model.
        images: that neither was trained on, (n, 784).
        labels: of them, (n,).
        k: images of a group, which follow each other.
    """
    model = load_package(parity)
    asked = partial(scores_of, load_package(base).runtime)
    own = asked(images)
    groups = np.arange(len(images) // k * k).reshape(-1, k)
    sums = scores_of(model.runtime, images[groups].sum(axis=1))
    outputs = np.concatenate(
        [decoded(sums, [own[groups[:, other]] for other in range(k) if other != missing]) for missing in range(k)]
    )
    right = outputs.argmax(axis=1) == labels[groups.T.reshape(-1)]
    sure = [best_share(Tensor.of(row)) for row in outputs]
    told = [along(model.manifest.options["parity"]["right"], confidence) for confidence in sure]
    return Decoding(
        float((own.argmax(axis=1) == labels).mean()), float(right.mean()), float(np.mean(sure)), float(np.mean(told))
    )


def scaled(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images as the network takes them, in [0, 1]."""
    return (pixels / np.float32(255)).astype(np.float32)


def scores_of(runtime: Any, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what a package's model answers to rows (n, 784): scores (n, 10)."""
    found: NDArray[np.float32] = runtime.predict_batch(rows).scores
    return found
