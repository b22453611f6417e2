"""The lanes of `graph` in virtual time: selection's own kernel and the worker's own batcher, between simulated models.

    query ─leg─▶ Selection ─leg─▶ a batcher of `detector` ─ its batch ─▶ leg ─▶ Selection ─leg─▶ `car-net` ...

Batches take what Clockwork published for a V100. What a picture holds is drawn from its number, so that it is the same
in every lane. Nothing else that the machine does counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from load.harness import arrivals
from load.research.harness.virtual import LEG_US, Fleet, Scene
from policies.batching import create_controller
from policies.stage_split import StageLoad, evenly, split
from schemas.codec import Codec
from schemas.records import Application, Model, Outcome, Query, Stage, Status, Tensor
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.role.local import LocalCodec
from streams.testing import START_US
from workers.kernel.model.batcher import Batcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.packing.work import BatchTimes
    from policies.stage_split import Split
    from schemas.records import ModelQueries, Prediction
    from streams.operators.contract import Effects
    from workers.kernel.model.batcher import Waiting

MARGIN_US: Final = 2_400  # before the deadline: the leg back, and as much again
APPLICATION: Final = "traffic"
MODELS: Final = {"detector": "resnet152", "car-net": "resnet18", "face-net": "resnet50"}
WANTED: Final = 0.99  # of the pictures: whole and in time
CARS, FACES = 3.0, 1.0  # of a picture, on the average
MOST: Final = 16
_RANGE: Final = (0.2, 1.0)  # of what the workers could do if none ever waited for rows
_ROW: Final = Tensor.of(np.zeros(1, np.float32))
# Stage, model, the stage before, what it is asked about, and rows a picture.
STAGES: Final = (
    ("detect", "detector", "", "", 1.0),
    ("cars", "car-net", "detect", "label == car", CARS),
    ("faces", "face-net", "detect", "label == face", FACES),
)


class Lane(NamedTuple):
    """How a graph is deployed.

    Attributes:
        shares: by when each stage must have answered, of the time to answer.
        workers: of each stage's model.
        rows: of its batches.
    """

    shares: Mapping[str, float]
    workers: Mapping[str, int]
    rows: Mapping[str, int]


@dataclass(slots=True)
class Played:
    """What became of the queries of one run: how many were answered whole and in time, in part, and by default."""

    whole: int = 0
    partial: int = 0
    defaults: int = 0

    @property
    def share(self) -> float:
        """Of all queries: those that were answered whole and in time."""
        return self.whole / max(1, self.whole + self.partial + self.defaults)

    def take(self, prediction: Prediction, at_us: int) -> None:
        """Count an answer that its client has at a time."""
        is_in_time = at_us <= prediction.deadline_us
        self.whole += prediction.status is Status.COMPLETE and is_in_time
        self.partial += prediction.status is Status.PARTIAL or not is_in_time
        self.defaults += prediction.status is Status.DEFAULT and is_in_time


class Form(NamedTuple):
    """With what lanes are made.

    Attributes:
        workers: of all stages together.
        per_s: pictures a second that the time is split for.
        way_us: to a model and back.
        apart_us: of the time to answer, what is not split.
    """

    workers: int
    per_s: float
    way_us: int = 2 * LEG_US
    apart_us: int = LEG_US + MARGIN_US


def loads(times: Mapping[str, BatchTimes], form: Form) -> list[StageLoad]:
    """Return the stages with the times of their models."""
    return [
        StageLoad(
            name,
            (before,) if before else (),
            form.per_s * rows,
            tuple((n + 1, round(us)) for n, us in enumerate(times[model].table)),
            form.way_us,
        )
        for name, model, before, _, rows in STAGES
    ]


def lanes(times: Mapping[str, BatchTimes], slo_ms: float, form: Form) -> dict[str, tuple[Lane, float]]:
    """Return the lanes by name, and what their workers could do at most (pictures a second)."""
    objective_us, given = int(slo_ms * 1e3) - form.apart_us, loads(times, form)
    return {
        name: (lane_of(given, made, objective_us, form.workers), form.workers / made.workers * form.per_s)
        for name, made in (("split", split(given, objective_us)), ("even", evenly(given, objective_us)))
    }


def lane_of(given: Sequence[StageLoad], split: Split, objective_us: int, workers: int) -> Lane:
    """Return the lane of a split: workers as the stages need them, each at least one."""
    last = {load.name for load in given}.difference(*[load.before for load in given])
    until_us = split.until_us(given)
    shares = {load.name: 1.0 if load.name in last else until_us[load.name] / objective_us for load in given}
    needed = {load.name: load.workers(split.budgets_us[load.name]) for load in given}
    counts = dict.fromkeys(needed, 1)
    for _ in range(workers - len(counts)):
        counts[max(needed, key=lambda name: needed[name] / counts[name])] += 1
    rows = {load.name: max(1, load.batch(split.budgets_us[load.name])[0]) for load in given}
    return Lane(shares, counts, rows)


def highest(
    times: Mapping[str, BatchTimes], lane: Lane, most: float, slo_ms: float, *, queries: int, halvings: int, seed: int
) -> float:
    """Return the highest rate at which enough is answered whole and in time."""
    low, high = (share * most for share in _RANGE)
    for _ in range(halvings):
        rate = (low + high) / 2
        if play(times, lane, slo_ms, rate, queries, seed).share >= WANTED:
            low = rate
        else:
            high = rate
    return low


def play(times: Mapping[str, BatchTimes], lane: Lane, slo_ms: float, rate: float, queries: int, seed: int) -> Played:
    """Ask a lane so many queries, at Poisson arrivals."""
    codec, found, pictures = LocalCodec(Codec()), Played(), _Pictures(queries, seed)
    fleets = {
        model: _Workers(codec, model, lane.workers[name], lane.rows[name], times[model], pictures)
        for name, model, _, _, _ in STAGES
    }
    settings = SelectionSettings(1, margin_us=MARGIN_US)
    scene = Scene(codec, lambda: Selection(codec, settings), fleets, found.take)
    models = [
        Model(name, "1", "function", "", "", "label", "float32", (1,), partitions=fleet.partitions)
        for name, fleet in fleets.items()
    ]
    scene.configure(_application(lane, slo_ms), models)
    for number, after_us in zip(range(queries), arrivals.poisson(rate, seed), strict=False):
        scene.ask(Query(f"q{number}", APPLICATION, _ROW, None, START_US + after_us))
    scene.end(slo_ms)
    return found


def _application(lane: Lane, slo_ms: float) -> Application:
    stages = tuple(
        Stage(name, "" if name == "cars" else model, before, "query", "", where, MOST, lane.shares[name])
        for name, model, before, where, _ in STAGES
    )
    return Application(APPLICATION, ("car-net",), "single", slo_ms=slo_ms, stages=stages)


class _Pictures:
    """What is in pictures, by their numbers."""

    def __init__(self, queries: int, seed: int) -> None:
        self._cars = np.random.default_rng((seed, 1)).poisson(CARS, queries)
        self._faces = np.random.default_rng((seed, 2)).poisson(FACES, queries)

    def said(self, model: str, row_id: str) -> str:
        """Return what a model says of a row."""
        if model != "detector":
            return "known"
        number = int(row_id[1:].partition("/")[0])
        items = ["car"] * int(self._cars[number]) + ["face"] * int(self._faces[number])
        return json.dumps([{"label": label} for label in items])


class _Workers(Fleet):
    """Workers of a model: each has the worker's own batcher, and takes its time for a batch."""

    def __init__(
        self, codec: Codec, model: str, workers: int, rows: int, times: BatchTimes, pictures: _Pictures
    ) -> None:
        super().__init__(codec, model, workers)
        self._times, self._said = times, partial(pictures.said, model)
        controller = create_controller("fixed", {"rows": float(rows)})
        self._queues: list[Batcher[str]] = [Batcher(controller) for _ in range(workers)]
        self._is_free = [True] * workers

    def take(self, place: int, batch: ModelQueries, now_us: int) -> Effects:
        """Queue the rows of a record."""
        self._queues[place].offer([*zip(batch.due_us, batch.query_ids, strict=True)], now_us)
        return self._start(place, now_us)

    def _start(self, place: int, now_us: int) -> Effects:
        queue, effects = self._queues[place], list[Any]()
        while self._is_free[place] and len(queue):
            take = queue.take(now_us)
            effects += self._answers(take.expired, Outcome.EXPIRED)
            if take.rows:
                took_us = round(self._times.of(len(take.rows)))
                self._is_free[place] = False
                effects.append(self.run(took_us, partial(self._done, place, take.rows, took_us)))
            elif not take.expired:
                break
        return effects

    def _done(self, place: int, rows: Sequence[Waiting[str]], took_us: int, now_us: int) -> Effects:
        self._is_free[place] = True
        self._queues[place].done(len(rows), took_us, now_us)
        return self._answers(rows, Outcome.OK) + self._start(place, now_us)

    def _answers(self, rows: Sequence[Waiting[str]], outcome: Outcome) -> Effects:
        ids = [row.item for row in rows]
        return [self.answer(ids, [*map(self._said, ids)], outcome)] if ids else []
