"""`conformal`: sets of labels under drift: the coverage that is promised, and the one that is held, window by window.

Two parts. In the first the arithmetic alone is played against MNIST predictions of seven public models, which vote
alike; after half of the queries the best three answer at random. In the second, on real Kafka, a random forest and a
linear model answer MNIST images with scores; after half of the queries the images are noisy. Two applications promise
the same: `single` asks the forest alone, `vote` asks both by `exp4`, which also learns whom to believe. All labels come
back as feedback. Beside each stand sets by split conformal prediction, on the same weights of labels: their threshold
follows from the first thousand queries for good. Without the files, digits take the place of MNIST.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from load.figures import ERROR, IN_FULL, NONE, SHOWN, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.data import MNIST_ANSWERS
from load.harness.driving import FAULTS_OF_A_STRETCH, deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows
from load.models.training import Digits, digits, rivals, scored
from load.research.learning.cascade import load_images
from load.research.learning.label_sets import Sets, adaptive, fixed
from load.research.learning.replay import InOrder
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from schemas.records import Application, Tensor
from streams.evaluation.drawing import COLOURS, panels, png
from streams.operators.label_sets import holds
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.driving import Driver, Stretch
    from load.harness.system import Stage
    from schemas.records import LabelSet, Prediction

NAME: Final = "conformal"
LANES: Final = ("single", "vote")
PARTS: Final = ("replayed", *LANES)
COVERAGE: Final = 0.9
MODELS: Final = ("forest", "linear")
_FAILING: Final = 3  # of the public models: the best ones
_NOISE: Final = 0.4  # standard deviation, of pixels in [0, 1]
_RATE: Final = 150.0  # queries a second
_SLO_MS: Final = 10_000.0  # what sets hold is measured here, not how fast they come
_QUERIES, _FEW = 10_000, 3_000
FIRST: Final = 1_000  # queries by which the fixed sets are made
WINDOWS: Final = 20

_HELD = Kind("", Better.HIGHER, 0.0, 0.02)
_BELOW = Kind("", Better.LOWER, 0.0, 0.01)
FIGURES = Figures(
    # The law allows 0.018 of 10,000 observations. Above the promise is no fault: the likeliest label is always there.
    _BELOW(*(f"{part}_below" for part in PARTS), must=at_most(0.02, IN_FULL)),
    _HELD(*(f"{part}_held_after" for part in PARTS), must=at_least(COVERAGE - 0.02, IN_FULL)),
    _HELD(*(f"{part}_held_before" for part in PARTS)),
    SHOWN(*(f"{part}_fixed_{name}" for part in PARTS for name in ("held_before", "held_after", "lowest"))),
    SHOWN(*(f"{part}_{name}" for part in PARTS for name in ("lowest", "size_before", "size_after"))),
    SHOWN(*(f"{part}_fixed_{name}" for part in PARTS for name in ("size_before", "size_after"))),
    ERROR(*(f"{lane}_error_{when}" for lane in LANES for when in ("before", "after"))),
    *(recorded(f"{lane}_", "p50_ms", "p99_ms", *FAULTS_OF_A_STRETCH, lost=NONE) for lane in LANES),
)


@dataclass
class Told(InOrder):
    """What an application answered.

    Attributes:
        sets: by query.
        wrong: by query.
    """

    sets: dict[int, LabelSet] = field(default_factory=dict)
    wrong: dict[int, bool] = field(default_factory=dict)

    def judge(self, predictions: Sequence[Prediction]) -> None:
        """Note what has been answered."""
        for prediction in predictions:
            index = self.order.get(prediction.query_id)
            if index is not None and prediction.label_set is not None:
                self.sets[index] = prediction.label_set
                self.wrong[index] = prediction.answer != self.workload.labels[index]

    def served(self, labels: Sequence[int]) -> Sets:
        """Return what became of the sets that were answered, in the order of the queries."""
        found = [self.sets[index] for index in sorted(self.sets)]
        truths = [labels[index] for index in sorted(self.sets)]
        held = [holds(made, label) for made, label in zip(found, truths, strict=True)]
        sizes = [len({*labels}) if made.is_all else len(made.labels) for made in found]
        return Sets(np.array(held), np.array(sizes))

    def weights(self) -> list[Mapping[int | str, float]]:
        """Return the weights of labels by query, as they were answered."""
        found = [self.sets[index] for index in sorted(self.sets)]
        return [dict(zip((*made.labels, *made.others), made.weights, strict=True)) for made in found]

    def error(self, part: slice) -> float:
        """The share of wrong answers among some queries."""
        return float(np.mean([self.wrong[index] for index in sorted(self.wrong)][part]))


async def run(stage: Stage) -> Result:
    """Play the public predictions, then ask both applications one after the other."""
    figures, series = replayed(stage.seed)
    data, source = load_images(_FEW if stage.short else _QUERIES)
    rows, labels = drifted(data, stage.seed), data.labels
    applications = tuple(
        Application(lane, models, policy, slo_ms=_SLO_MS, coverage=COVERAGE)
        for lane, models, policy in (("single", MODELS[:1], "single"), ("vote", MODELS, "exp4"))
    )
    packages = package(data, stage.folder)
    deployment = Deployment(topics.new_prefix(NAME), applications, packages, settings={"log_level": "warning"})
    async with deployed(stage, deployment, rows[0]) as driver:
        for turn, lane in enumerate(LANES):
            told, stretch = await _asked(driver, lane, rows, labels, stage.seed + turn)
            half = len(told.sets) // 2
            truths = [labels[index] for index in sorted(told.sets)]
            beside = fixed(told.weights(), truths, COVERAGE, FIRST)
            more, curve = compared(lane, told.served(labels), beside)
            latency = stretch.recorder.latency_ms()
            figures |= more | {f"{lane}_{name}_ms": latency[name] for name in ("p50", "p99")}
            figures |= {
                f"{lane}_error_before": told.error(slice(half)),
                f"{lane}_error_after": told.error(slice(half, None)),
            }
            figures |= {f"{lane}_{name}": number for name, number in stretch.faults.items()}
            series[lane] = curve
    parameters: dict[str, float | str] = {"form": stage.form, "seed": stage.seed, "source": source}
    parameters |= {"queries": len(labels), "rate": _RATE, "coverage": COVERAGE, "noise": _NOISE}
    return Result(NAME, figures, parameters, series)


async def _asked(
    driver: Driver, lane: str, rows: Sequence[Tensor], labels: Sequence[int], seed: int
) -> tuple[Told, Stretch]:
    told = Told(Rows(lane, rows, labels, seed=seed))
    offsets_us = [int(index * 1e6 / _RATE) for index in range(len(rows))]
    return told, await driver.drive(offsets_us, told, int(_SLO_MS * 1e3), told.judge, drain_s=15)


def drifted(data: Digits, seed: int) -> list[Tensor]:
    """Return the rows to ask, those of the second half with noise."""
    rows, half = data.test_x.copy(), len(data.test_x) // 2
    noise = np.random.default_rng(seed).normal(0.0, _NOISE, rows[half:].shape)
    rows[half:] = np.clip(rows[half:] + noise, 0.0, 1.0)
    return [Tensor.of(row) for row in rows]


def package(data: Digits, folder: Path) -> dict[str, Path]:
    """Fit and package both models; return their folders."""
    folders = {name: folder / f"{name}-1" for name in MODELS}
    for name, model in zip(MODELS, scored(data), strict=True):
        package_sklearn(model, folders[name], name, "1", data.train_x[:256], output="scores")
    return folders


def replayed(seed: int) -> tuple[dict[str, float], dict[str, list[dict[str, float]]]]:
    """Play both kinds of sets against public predictions of MNIST, or those of small models of digits."""
    labels, answers = load_answers()
    half, random = len(labels) // 2, np.random.default_rng(seed)
    best = (answers == labels[:, None]).mean(axis=0).argsort()[-_FAILING:]
    answers[half:, best] = random.integers(0, 10, (len(labels) - half, len(best)))
    weights, truths = [votes(row) for row in answers.tolist()], labels.tolist()
    figures, curve = compared("replayed", adaptive(weights, truths, COVERAGE), fixed(weights, truths, COVERAGE, FIRST))
    return figures, {"replayed": curve}


def load_answers() -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the true labels, and what some models answered: (n,) and (n, models)."""
    if not MNIST_ANSWERS.exists():
        rows, labels = rivals(digits(), 10_000)
        return labels, rows
    with np.load(MNIST_ANSWERS, allow_pickle=False) as held:
        return held["labels"].astype(np.int64), held["preds"].astype(np.int64)


def votes(answers: Sequence[int]) -> Mapping[int | str, float]:
    """Return the weight of each label where all models count the same."""
    return {label: answers.count(label) / len(answers) for label in answers}


def compared(name: str, ours: Sets, beside: Sets) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return figures of both kinds of sets before and after the change, and their curves by windows."""
    half, size = len(ours.held) // 2, len(ours.held) // WINDOWS
    figures = {f"{name}_below": max(0.0, COVERAGE - float(ours.held.mean()))}
    for what, sets in (("", ours), ("fixed_", beside)):
        figures[f"{name}_{what}lowest"] = min(sets.windows(size)[1:])
        for when, part in (("before", slice(FIRST, half)), ("after", slice(half, None))):
            its = sets.of(part)
            figures |= {
                f"{name}_{what}held_{when}": float(its.held.mean()),
                f"{name}_{what}size_{when}": float(its.sizes.mean()),
            }
    sizes = [float(ours.sizes[at : at + size].mean()) for at in range(0, size * WINDOWS, size)]
    columns = zip(ours.windows(size), beside.windows(size), sizes, strict=False)
    curve = [{"queries": (at + 1) * size, "held": a, "fixed": b, "size": c} for at, (a, b, c) in enumerate(columns)]
    return figures, curve


_PICTURE: Final = "coverage.png"
_PARTS: Final = {"replayed": "seven models vote", "single": "forest alone", "vote": "forest and linear, exp4"}


def tables(result: Result) -> list[Table]:
    """Return what was held before and after the change, by kind of set, and how large the sets were."""
    names = ("held_before", "held_after", "lowest", "size_before", "size_after")
    rows = [
        (
            _PARTS[part] + (", fixed" if what else ""),
            *(f"{result.figures[f'{part}_{what}{name}']:.3f}" for name in names[:3]),
            *(f"{result.figures[f'{part}_{what}{name}']:.2f}" for name in names[3:]),
        )
        for part in PARTS
        for what in ("", "fixed_")
    ]
    heads = ("", "held before", "held after", "lowest window", "labels before", "labels after")
    return [Table(f"Promised: {COVERAGE:g}", heads, tuple(rows))]


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: coverage held by windows, beside that of fixed sets; labels in a set."""
    figure, (left, right) = panels(2, (8.6, 3.4))
    for (part, name), colour in zip(_PARTS.items(), COLOURS, strict=False):
        rows = result.series[part]
        share = [row["queries"] / rows[-1]["queries"] for row in rows]
        left.plot(share, [row["held"] for row in rows], marker="o", markersize=3, label=name, color=colour)
        left.plot(share, [row["fixed"] for row in rows], linestyle="--", label=f"{name}, fixed", color=colour)
        right.plot(share, [row["size"] for row in rows], marker="o", markersize=3, label=name, color=colour)
    left.axhline(COVERAGE, color="black", linewidth=0.8, linestyle=":")
    for axes in (left, right):
        axes.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
        axes.set_xlabel("share of the queries")
    left.set_ylabel("sets that held the true label")
    right.set_ylabel("labels in a set")
    right.set_ylim(bottom=0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return {_PICTURE: png(figure)}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "sets of labels while inputs change: coverage promised and held by windows, beside fixed sets",
    short=True,
    tables=tables,
    page="research/learning/conformal.md.j2",
    plots=plots,
)
