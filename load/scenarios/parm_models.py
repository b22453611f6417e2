"""ParM's network for MNIST and its parity models: trained, packaged, and how often what they decode is right."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from load.harness.data import DATA, mnist
from load.scenarios.parm_virtual import NET, PARITY
from streams.operators.selection.coding import decoded
from workers.entry_point import resolve
from workers.packages.loading import load_package
from workers.packages.packaging import package_torch
from workers.packages.parity import Training, package_parity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.system import Stage

WEIGHTS, IMAGES = DATA / "vectors/parm/mnist-base-mlp.t7", DATA / "labelled/mnist"
_STATE: Final = "model.safetensors"
_FAST, _SLOW = "load.models.parm_network:build", "load.models.parm_network:build_slow"


def trained(
    stage: Stage, epochs_of: Mapping[int, int], images: NDArray[np.float32], labels: NDArray[np.int64]
) -> dict[str, float]:
    """Package the network and its parity models, fast for training and slow to be asked; returns their accuracies."""
    network = resolve("load.models.parm_network:load_published")(WEIGHTS)
    fast = stage.folder / "fast"
    package_torch(network, fast / NET, NET, "1", images[:5], architecture=_FAST, output="scores")
    package_torch(fast / NET / _STATE, stage.folder / NET, NET, "1", images[:5], architecture=_SLOW, output="scores")
    pixels, _ = mnist(IMAGES, "train", 60_000)
    rows = scaled(pixels)
    figures: dict[str, float] = {}
    for k, epochs in epochs_of.items():
        folder = fast / f"{PARITY}-{k}"
        training = Training(k=k, epochs=epochs, seed=stage.seed)
        made = package_parity(fast / NET, folder, PARITY, "1", rows, training)
        package_torch(
            folder / _STATE, stage.folder / folder.name, PARITY, "1", images[:5], architecture=_SLOW, output="scores",
            parity=made.options["parity"],
        )  # fmt: skip
        own, accuracy = accuracies(fast / NET, folder, images, labels, k)
        figures |= {f"k{k}_epochs": epochs, f"k{k}_own_accuracy": own, f"k{k}_accuracy": accuracy}
        figures[f"k{k}_accuracy_lost_points"] = 100 * (own - accuracy)
    return figures


def accuracies(
    base: Path, parity: Path, images: NDArray[np.float32], labels: NDArray[np.int64], k: int
) -> tuple[float, float]:
    """Return how many answers are right: the network's own, and those decoded as if each image once were missing.

    Args:
        base: package of the network.
        parity: of its parity model.
        images: that neither was trained on, (n, 784).
        labels: of them, (n,).
        k: images of a group, which follow each other.
    """
    asked = partial(scores_of, load_package(base).runtime)
    own = asked(images)
    groups = np.arange(len(images) // k * k).reshape(-1, k)
    sums = scores_of(load_package(parity).runtime, images[groups].sum(axis=1))
    right = [
        decoded(sums, [own[groups[:, other]] for other in range(k) if other != missing]).argmax(axis=1)
        == labels[groups[:, missing]]
        for missing in range(k)
    ]
    return float((own.argmax(axis=1) == labels).mean()), float(np.mean(right))


def scaled(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images as the network takes them, in [0, 1]."""
    return (pixels / np.float32(255)).astype(np.float32)


def scores_of(runtime: Any, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what a package's model answers to rows (n, 784): scores (n, 10)."""
    found: NDArray[np.float32] = runtime.predict_batch(rows).scores
    return found
