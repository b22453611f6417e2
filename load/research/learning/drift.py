"""`drift`: how soon changes of real streams are told without labels, how often what stays is told, and what it costs.

Offline. Rows are drawn from real data; after some of them the data changes in a way that is known: images are noisy or
turned by a quarter, some classes alone come, or other people speak. The watch is given queries and predictions as it is
in a deployment, with a minute of them at a time. Beside it stand detectors of river on the same columns, one for each
column with the parameters that river gives them, and the test of Kolmogorov and Smirnov on windows with Bonferroni's
correction, as Alibi Detect makes it for each batch (alibi-detect itself has no free licence). None of these says how
often it is wrong in a year.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from load.figures import FAULTS, NONE, SHOWN, Better, Figures, Kind, at_most
from load.harness.data import DATA
from load.models.training import Digits, digits, forest, scored
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from schemas.records import Decision, ModelOutput, Outcome, Prediction, Query, Status, Tensor
from streams.control.drift.watch import MINUTE_US, DriftWatch
from streams.usual.columns import of_prediction, of_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from load.harness.system import Stage

NAME: Final = "drift"
CHANGES: Final = ("noise", "turned", "classes", "speakers")
_OURS, _KS = "watch", "ks_windows"
_RIVER: Final = {"adwin": "ADWIN", "page_hinkley": "PageHinkley", "kswin": "KSWIN"}
DETECTORS: Final = (_OURS, *_RIVER, _KS)
_BEFORE, _AFTER = 4_000, 1_000  # rows
_A_MINUTE: Final = 50  # rows of the watch's sample
_WINDOW: Final = 200  # rows that Kolmogorov and Smirnov's test looks at
_TREES: Final = 50
_CHANCE: Final = 0.05  # as Alibi Detect's
_FSDD: Final = DATA / "labelled/fsdd_mfcc.npz"
_DECISION: Final = Decision((0,), 0, NAME, "single()", ("forest",), (1.0,))

_ROWS = Kind("rows", Better.LOWER, 0.5, 200.0)
FIGURES = Figures(
    _ROWS(*(f"{change}_{_OURS}_rows" for change in CHANGES[:2]), must=at_most(500)),
    _ROWS(*(f"{change}_{_OURS}_rows" for change in CHANGES[2:]), must=at_most(_AFTER)),
    FAULTS(f"{_OURS}_false", must=NONE),
    SHOWN(*(f"{change}_{name}_rows" for change in CHANGES for name in DETECTORS[1:])),
    SHOWN(*(f"{name}_false" for name in DETECTORS[1:])),
    Kind("us", Better.LOWER, 0.5)(f"{_OURS}_cpu_us_per_row", must=at_most(2_000)),
    Kind("us")(*(f"{name}_cpu_us_per_row" for name in DETECTORS[1:])),
)


class Told(NamedTuple):
    """What a detector told of one stream: alarms before the change, rows after it until the first; None = none."""

    false: int
    rows: int | None
    cpu_us: float  # a row


async def run(stage: Stage) -> Result:
    """Play each change to each detector."""
    figures, there = await asyncio.to_thread(_played, stage.seed)
    return Result(NAME, figures, {"seed": stage.seed, "before": _BEFORE, "after": _AFTER, "river": there})


def _played(seed: int) -> tuple[dict[str, float], str]:
    found: dict[str, list[Told]] = {}
    figures: dict[str, float] = {}
    streams = streams_of(seed)
    there = "absent"
    for name in DETECTORS:
        try:
            for change, (rows, answers) in streams.items():
                told = _watched(rows, answers) if name == _OURS else _beside(name, columns_of(rows, answers))
                found.setdefault(name, []).append(told)
                if told.rows is not None:
                    figures[f"{change}_{name}_rows"] = told.rows
        except ImportError:
            continue
        there = "there" if name in _RIVER else there
    for name, each in found.items():
        figures |= {f"{name}_false": sum(told.false for told in each)}
        figures |= {f"{name}_cpu_us_per_row": median(told.cpu_us for told in each)}
    return figures, there


def streams_of(seed: int) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
    """Return rows and a model's scores for them, by change; without its files there are no speakers."""
    random, data = np.random.default_rng(seed), digits()
    model, _ = scored(data)
    images = data.test_x
    turned = np.rot90(images.reshape(-1, 8, 8), axes=(1, 2)).reshape(len(images), -1).astype(np.float32)
    noise = np.clip(images + random.normal(0.0, 0.4, images.shape), 0.0, 1.0).astype(np.float32)
    pairs = {"noise": (images, noise), "turned": (images, turned), "classes": (images, images[data.test_y < 5])}
    found = {name: _drawn(*pair, model.predict_proba, random) for name, pair in pairs.items()}
    if _FSDD.exists():
        with np.load(_FSDD, allow_pickle=False) as held:
            rows, labels, speakers = held["X"].astype(np.float32), held["digit"].astype(np.int64), held["speaker"]
        of_first = np.isin(speakers, np.unique(speakers)[:3])
        model = forest(Digits(rows[of_first][::2], labels[of_first][::2], rows[:0], labels[:0]), _TREES)
        found["speakers"] = _drawn(rows[of_first][1::2], rows[~of_first], model.predict_proba, random)
    return found


def _drawn(
    before: NDArray[Any], after: NDArray[Any], score: Callable[[Any], Any], random: np.random.Generator
) -> tuple[list[Tensor], list[Tensor]]:
    drawn = [part[random.integers(0, len(part), count)] for part, count in ((before, _BEFORE), (after, _AFTER))]
    rows = np.concatenate(drawn)
    return [Tensor.of(row) for row in rows], [Tensor.of(each) for each in score(rows)]


def _prediction(scores: Tensor) -> Prediction:
    answer = int(scores.numpy().argmax())
    outputs = (ModelOutput("forest", "1", Outcome.OK, answer, scores),)
    return Prediction("q", NAME, None, _DECISION, Status.COMPLETE, None, answer, 1.0, outputs, 0, 0, 0, 0)


def columns_of(rows: Sequence[Tensor], scores: Sequence[Tensor]) -> NDArray[np.float64]:
    """Return the numbers (rows, columns) that the watch sees, and the answers as numbers."""
    made = [of_query(Query("q", NAME, row)) for row in rows]
    told = [of_prediction(_prediction(each)) for each in scores]
    return np.array(
        [[float(value or 0) for value in (*a.values(), *b.values())] for a, b in zip(made, told, strict=True)]
    )


def _watched(rows: Sequence[Tensor], scores: Sequence[Tensor]) -> Told:
    """Give the rows to the watch, a minute of them at a time."""
    watch, false, was = DriftWatch(), 0, False
    since = time.process_time()
    for place in range(0, len(rows), _A_MINUTE):
        now_us = place // _A_MINUTE * MINUTE_US
        for each in scores[place : place + _A_MINUTE]:
            watch.prediction(_prediction(each), now_us)
        for row in rows[place : place + _A_MINUTE]:
            watch.query(Query("q", NAME, row), now_us)
        watch.judge(NAME, now_us)
        if (told := bool(watch.drifted())) and place >= _BEFORE:
            return Told(false, place + _A_MINUTE - _BEFORE, (time.process_time() - since) * 1e6 / (place + _A_MINUTE))
        false, was = false + (told and not was), told
    return Told(false, None, (time.process_time() - since) * 1e6 / len(rows))


def _beside(name: str, columns: NDArray[np.float64]) -> Told:
    """Give the columns to a detector of each; an alarm of any is one of the stream.

    Raises:
        ImportError: river is not installed.
    """
    told = _kolmogorov() if name == _KS else _river(_RIVER[name], columns.shape[1])
    false, since = 0, time.process_time()
    for place, row in enumerate(columns):
        if told(row):
            if place >= _BEFORE:
                return Told(false, place + 1 - _BEFORE, (time.process_time() - since) * 1e6 / (place + 1))
            false += 1
    return Told(false, None, (time.process_time() - since) * 1e6 / len(columns))


def _river(name: str, columns: int) -> Callable[[NDArray[np.float64]], bool]:
    made = getattr(importlib.import_module("river.drift"), name)
    detectors = [made(seed=1) if name == "KSWIN" else made() for _ in range(columns)]

    def told(row: NDArray[np.float64]) -> bool:
        for detector, value in zip(detectors, row.tolist(), strict=True):
            detector.update(value)
        return any(detector.drift_detected for detector in detectors)

    return told


def _kolmogorov() -> Callable[[NDArray[np.float64]], bool]:
    from scipy.stats import ks_2samp

    reference: list[NDArray[np.float64]] = []
    window: list[NDArray[np.float64]] = []

    def told(row: NDArray[np.float64]) -> bool:
        if len(reference) < _BEFORE // 2:
            reference.append(row)
            return False
        window.append(row)
        if len(window) < _WINDOW:
            return False
        pairs = zip(np.array(reference).T, np.array(window).T, strict=True)
        window.clear()
        return min(float(ks_2samp(one, other).pvalue) for one, other in pairs) < _CHANCE / len(row)

    return told


def tables(result: Result) -> list[Table]:
    """Return rows until each change was told, false alarms, and the cost."""
    rows = [
        (
            name,
            *(_rows(result, f"{change}_{name}_rows") for change in CHANGES),
            f"{result.figures[f'{name}_false']:.0f}",
            f"{result.figures[f'{name}_cpu_us_per_row']:.0f}",
        )
        for name in DETECTORS
        if f"{name}_false" in result.figures
    ]
    heads = ("detector", *CHANGES, "false alarms", "CPU us a row")
    return [Table("Rows until a change is told", heads, tuple(rows))]


def _rows(result: Result, name: str) -> str:
    return f"{result.figures[name]:,.0f}" if name in result.figures else "never"


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "changes of inputs and answers told without labels: how soon, how often wrongly, beside river's detectors",
    tables=tables,
    page="research/learning/drift.md.j2",
    offline=True,
)
