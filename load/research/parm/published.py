"""`published`: a published network gives the published answers through the whole system, for any batches.

ParM's base network for MNIST (784-200-100-10; Kosaian et al., SOSP 2019) answers the 10,000 test images: 9,793 right.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np

from load.figures import NONE, RIGHT, Better, Figures, Kind, at_most, exactly
from load.harness import topics
from load.harness.data import DATA, need
from load.harness.driving import deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows, query_id
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Tensor
from workers.entry_point import resolve
from workers.packages.packaging import package_torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.driving import Stretch
    from load.harness.system import Stage
    from schemas.records import Prediction

NAME = "published"
WEIGHTS = DATA / "vectors/parm/mnist-base-mlp.t7"
IMAGES = DATA / "labelled/mnist"
_MODEL = "mnist-mlp"
_MIN_ROWS = 16  # so that logits do not depend on the batch
_RATE = 800.0
_SLO_MS = 120_000.0  # which answers come is measured here, not how fast: one by one they take longest
_DRAIN_S = 120.0
# Any batch limits: adaptive, one by one, odd, large.
LIMITS: dict[str, dict[str, Any]] = {
    "aimd": {"controller": "aimd"},
    "rows_1": {"controller": "fixed", "parameters": {"rows": 1.0}},
    "rows_7": {"controller": "fixed", "parameters": {"rows": 7.0}},
    "rows_512": {"controller": "fixed", "parameters": {"rows": 512.0}},
}


_PUBLISHED_RIGHT = 9_793
_DIFFERENCE = Kind("", Better.LOWER, 0.0, 1e-5)
FIGURES = Figures(
    RIGHT("least_right", "most_right", must=exactly(_PUBLISHED_RIGHT)),
    RIGHT("direct_right", *(f"{limit}_right" for limit in LIMITS)),
    _DIFFERENCE("largest_logit_difference", must=at_most(1e-5)),
    _DIFFERENCE(*(f"{limit}_logit_difference" for limit in LIMITS)),
    recorded("", "lost", "defaults", lost=NONE),
)


async def run(stage: Stage) -> Result:
    """Ask all test images under each batch limit and compare with direct torch.

    Raises:
        MissingDataError: the published weights or MNIST are not there.
        PackageError: torch is not installed.
    """
    need(WEIGHTS, IMAGES)
    # By dotted path, as the worker does it: who lists scenarios needs no torch.
    network = resolve("load.research.models.parm_network:load_published")(WEIGHTS)
    images, labels = read_images(IMAGES), read_labels(IMAGES)
    form: dict[str, Any] = {
        "architecture": "load.research.models.parm_network:build",
        "output": "scores",
        "min_rows": _MIN_ROWS,
    }
    package_torch(network, stage.folder / _MODEL, _MODEL, "1", images[:5], **form)
    expected = np.asarray(resolve("load.research.models.parm_network:logits")(network, images))
    figures: dict[str, float] = {"direct_right": int((expected.argmax(axis=1) == labels).sum())}
    stretches: list[tuple[Stretch, _Check]] = []
    for limit, worker in LIMITS.items():
        check = _Check(expected, labels, stage.seed)
        stretch = await _ask(stage, worker, images, check)
        figures |= {f"{limit}_right": check.right, f"{limit}_logit_difference": check.difference}
        stretches.append((stretch, check))
    return Result(
        NAME,
        figures={
            **figures,
            "least_right": min(check.right for _, check in stretches),
            "most_right": max(check.right for _, check in stretches),
            "largest_logit_difference": max(check.difference for _, check in stretches),
            "lost": sum(stretch.recorder.open for stretch, _ in stretches),
            "defaults": sum(stretch.recorder.total.defaults for stretch, _ in stretches),
        },
        parameters={"images": len(images), "rate": _RATE},
    )


class _Check:
    """Compares predictions with direct torch: how many are right, and the largest difference of a logit."""

    def __init__(self, expected: NDArray[np.float32], labels: NDArray[np.uint8], seed: int) -> None:
        self._expected, self._labels = expected, labels
        self._rows = {query_id(seed, row): row for row in range(len(labels))}
        self.right = 0
        self.difference = 0.0

    def take(self, predictions: Sequence[Prediction]) -> None:
        for prediction in predictions:
            row = self._rows[prediction.query_id]
            self.right += prediction.answer == int(self._labels[row])
            scores = prediction.outputs[0].scores if prediction.outputs else None
            away = np.inf if scores is None else np.abs(scores.numpy() - self._expected[row]).max()
            self.difference = max(self.difference, float(away))


async def _ask(stage: Stage, worker: dict[str, Any], images: NDArray[np.float32], check: _Check) -> Stretch:
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application("mnist", (_MODEL,), "single", slo_ms=_SLO_MS),),
        {_MODEL: stage.folder / _MODEL},
        roles=("selection", "worker"),
        settings={"worker": worker},
    )
    workload = Rows("mnist", [Tensor.of(image) for image in images], seed=stage.seed)
    offsets_us = [int(i * 1e6 / _RATE) for i in range(len(images))]
    async with deployed(stage, deployment) as driver:
        return await driver.drive(offsets_us, workload, int(_SLO_MS * 1e3), check.take, drain_s=_DRAIN_S)


def read_images(folder: Path) -> NDArray[np.float32]:
    """Return MNIST's test images, (10000, 784) in [0, 1]."""
    raw = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / np.float32(255)


def read_labels(folder: Path) -> NDArray[np.uint8]:
    """Return their labels, (10000,)."""
    return np.frombuffer(gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "ParM's published MNIST network: every answer and logit as direct torch, any batch limits",
)
