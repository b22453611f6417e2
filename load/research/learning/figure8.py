"""`figure8`: the best model breaks for a quarter of the run, and feedback shows it (Clipper, NSDI 2017, figure 8).

20,000 queries go through Kafka for each of three applications side by side: `exp3`, `exp4`, and `single` on the model
that breaks. The models replay real predictions, which the input carries: of five public MNIST models or, without that
file, of five models trained on digits. Permutation and failure are those of the numpy reference, so the errors can be
compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from load.figures import ERROR, NONE, Figures, at_most
from load.harness import topics
from load.harness.data import MNIST_ANSWERS
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.models.functions import COLUMNS
from load.models.training import digits, rivals
from load.research.learning.replay import Replay
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from load.harness.system import Stage

NAME = "figure8"
MODELS = ("tree", "sgd-hinge", "logreg", "rf40", "knn3")  # the last one is the best, and breaks
QUERIES = 20_000
BROKEN = slice(5_000, 10_000)
POLICIES = ("exp3", "exp4", "single")
_BEST = len(MODELS) - 1
_SEED = 12345  # of the reference
_RATE = 600.0  # queries a second, all three applications; 20,000 each take 100 s
_SLO_MS = 10_000.0  # what is learnt is measured here, not how fast answers come
_POINTS = 100  # of each curve
_SECTIONS = {"before": slice(0, 5_000), "during": BROKEN, "after": slice(10_000, QUERIES), "total": slice(0, QUERIES)}


def curves(replay: Replay) -> list[dict[str, float]]:
    """Return the error since the start at equal steps: of every application, and of every model had it been alone."""
    losses = np.cumsum(replay.rows != replay.labels[:, None], axis=0)
    sums = dict(zip(POLICIES, np.cumsum(replay.wrong, axis=1), strict=True))
    step = max(1, len(losses) // _POINTS)
    return [
        {
            "queries": end,
            **{policy: float(total[end - 1] / end) for policy, total in sums.items()},
            **{name: float(losses[end - 1, k] / end) for k, name in enumerate(MODELS)},
        }
        for end in range(step, len(losses) + 1, step)
    ]


_ON_MNIST = ("source", "mnist")  # the published errors belong to the published predictions
FIGURES = Figures(
    ERROR("exp3_error_total", must=at_most(0.082, _ON_MNIST)),
    ERROR("exp4_error_total", must=at_most(0.066, _ON_MNIST)),
    ERROR(*(f"{policy}_error_{part}" for policy in POLICIES for part in _SECTIONS)),
    ERROR("hindsight_error_*"),
    recorded("", *FAULTS_OF_A_STRETCH, lost=NONE),
)


async def run(stage: Stage) -> Result:
    """Replay, and set the errors beside those of the single models in hindsight."""
    rows, labels, source = load_rows()
    replay = Replay(POLICIES, rows, labels, stage.seed)
    folders = {name: stage.folder / name for name in MODELS}
    for name, function in zip(MODELS, COLUMNS, strict=True):
        package_function(function, folders[name], name, "1", rows[:5])
    deployment = Deployment(
        topics.new_prefix(NAME), tuple(_application(p) for p in POLICIES), folders, settings={"log_level": "warning"}
    )
    async with deployed(stage, deployment) as driver:
        stretch = await driver.drive(_offsets(stage), replay, int(_SLO_MS * 1e3), replay.judge, drain_s=30)
    losses = rows != labels[:, None]
    figures = {
        f"{policy}_error_{name}": float(replay.wrong[lane, section].mean())
        for lane, policy in enumerate(POLICIES)
        for name, section in _SECTIONS.items()
    }
    hindsight = {f"hindsight_error_{name}": float(losses[:, k].mean()) for k, name in enumerate(MODELS)}
    counted = {name: stretch.recorder.figures()[name] for name in FAULTS_OF_A_STRETCH}
    return Result(
        NAME,
        figures={**figures, **hindsight, **counted, "hindsight_error_best": min(hindsight.values())},
        parameters={"queries": QUERIES, "rate": _RATE, "seed": stage.seed, "source": source},
        series={"error": curves(replay)},
    )


def load_rows() -> tuple[NDArray[np.uint8], NDArray[np.uint8], str]:
    """Return predictions (20,000, 5) with the failure in them, labels (20,000,), and where they come from."""
    if MNIST_ANSWERS.exists():
        with np.load(MNIST_ANSWERS) as file:
            names = [str(name) for name in file["models"]]
            use = [names.index(name.replace("-", "_")) for name in MODELS]
            rows, labels, source = file["preds"][:, use], file["labels"], "mnist"
    else:
        rows, labels = rivals(digits(), QUERIES)
        source = "digits"
    return *shuffle_and_break(rows, labels), source


def shuffle_and_break(
    rows: NDArray[np.uint8], labels: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Permute both alike, then make the best model always wrong within `BROKEN`; draws as the reference draws."""
    random = np.random.default_rng(_SEED)
    order = random.permutation(len(labels))
    rows, labels = rows[order].copy(), labels[order]
    shift = random.integers(1, 10, BROKEN.stop - BROKEN.start)
    rows[BROKEN, _BEST] = (labels[BROKEN].astype(int) + shift) % 10
    return np.ascontiguousarray(rows), labels


def _application(policy: str) -> Application:
    parameters = {"arm": float(_BEST)} if policy == "single" else {}
    return Application(policy, MODELS, policy, parameters, slo_ms=_SLO_MS)


def _offsets(stage: Stage) -> list[int]:
    gaps = np.random.default_rng(stage.seed).exponential(1e6 / _RATE, QUERIES * len(POLICIES))
    return np.cumsum(gaps).astype(np.int64).tolist()  # type: ignore[no-any-return]  # numpy says Any


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "the best model breaks and feedback tells: exp3, exp4 and single side by side",
)
