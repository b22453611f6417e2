"""The lanes of `graph` in virtual time: selection's own kernel and the worker's own batcher, between simulated models.

    query ─leg─▶ Selection ─leg─▶ a batcher of `detector` ─ its batch ─▶ leg ─▶ Selection ─leg─▶ `car-net` ...

Batches take what Clockwork published for a V100. What a picture holds is drawn from its number, so that it is the same
in every lane. Nothing else that the machine does counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.harness import arrivals
from policies.batching import create_controller
from policies.stage_split import StageLoad, evenly, split
from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Application,
    Model,
    ModelPredictions,
    ModelQueries,
    Outcome,
    Prediction,
    Query,
    Stage,
    Status,
    Tensor,
)
from streams.operators.contract import Emit, FetchStates, Record
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.role.local import LocalCodec
from workers.kernel.model.batcher import Batcher
from workers.simulation.events import Events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.packing.work import BatchTimes
    from policies.stage_split import Split
    from streams.operators.contract import Effects
    from workers.kernel.model.batcher import Waiting

LEG_US: Final = 1_200  # the median leg over one broker, as measured (`selection.kernel`)
MARGIN_US: Final = 2_400  # before the deadline: the leg back, and as much again
START_US: Final = 1_700_000_000_000_000
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
    busy_us: dict[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Of all queries: those that were answered whole and in time."""
        return self.whole / max(1, self.whole + self.partial + self.defaults)


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
    return _Run(times, lane, slo_ms, queries, seed).play(rate)


class _Worker:
    """One replica: the worker's own batcher, and a model that takes its time."""

    def __init__(self, run: _Run, model: str, rows: int, times: BatchTimes) -> None:
        self._run, self._model, self._times = run, model, times
        self._batcher: Batcher[str] = Batcher(create_controller("fixed", {"rows": float(rows)}))
        self._is_free = True

    def arrive(self, now_us: int, batch: ModelQueries) -> None:
        """Take the rows of a record."""
        self._batcher.offer([*zip(batch.due_us, batch.query_ids, strict=True)], now_us)
        self._start(now_us)

    def _start(self, now_us: int, _about: object = None) -> None:
        while self._is_free and len(self._batcher):
            take = self._batcher.take(now_us)
            self._run.answer(self._model, take.expired, Outcome.EXPIRED, now_us)
            if take.rows:
                took_us = round(self._times.of(len(take.rows)))
                self._is_free = False
                self._run.played.busy_us[self._model] = self._run.played.busy_us.get(self._model, 0) + took_us
                self._run.events.add(now_us + took_us, self._done, (take.rows, took_us))
            elif not take.expired:
                return

    def _done(self, now_us: int, about: tuple[tuple[Waiting[str], ...], int]) -> None:
        rows, took_us = about
        self._is_free = True
        self._batcher.done(len(rows), took_us, now_us)
        self._run.answer(self._model, rows, Outcome.OK, now_us)
        self._start(now_us)


class _Run:
    def __init__(self, times: Mapping[str, BatchTimes], lane: Lane, slo_ms: float, queries: int, seed: int) -> None:
        self._lane, self._slo_ms, self._queries, self._seed = lane, slo_ms, queries, seed
        self._codec = LocalCodec(Codec())
        self._kernel = Selection(self._codec, SelectionSettings(1, margin_us=MARGIN_US))
        self._cars = np.random.default_rng((seed, 1)).poisson(CARS, queries)
        self._faces = np.random.default_rng((seed, 2)).poisson(FACES, queries)
        self._workers = {
            model: [_Worker(self, model, lane.rows[name], times[model]) for _ in range(lane.workers[name])]
            for name, model, _, _, _ in STAGES
        }
        self._wake_us = -1
        self.events = Events()
        self.played = Played()

    def play(self, rate: float) -> Played:
        """Return what became of the queries."""
        self._configure()
        for number, (_, after_us) in enumerate(
            zip(range(self._queries), arrivals.poisson(rate, self._seed), strict=False)
        ):
            self.events.add(START_US + after_us + LEG_US, self._ask, (number, START_US + after_us))
        self.events.run()
        return self.played

    def answer(self, model: str, rows: Sequence[Waiting[str]], outcome: Outcome, now_us: int) -> None:
        """Send the outputs of rows on their way back."""
        if rows:
            ids = tuple([row.item for row in rows])
            answers = tuple([self._said(model, row_id) for row_id in ids])
            outcomes = (outcome,) * len(ids)
            batch = ModelPredictions(
                model, "1", "w", ids, outcomes, answers, None, (0,) * len(ids), 1, len(ids), 1, 0
            )  # fmt: skip
            self.events.add(now_us + LEG_US, self._tell, batch)

    def _said(self, model: str, row_id: str) -> str:
        if model != "detector":
            return "known"
        number = int(row_id[1:].partition("/")[0])
        items = ["car"] * int(self._cars[number]) + ["face"] * int(self._faces[number])
        return json.dumps([{"label": label} for label in items])

    def _configure(self) -> None:
        stages = tuple(
            Stage(name, "" if name == "cars" else model, before, "query", "", where, MOST, self._lane.shares[name])
            for name, model, before, where, _ in STAGES
        )
        application = Application(APPLICATION, ("car-net",), "single", slo_ms=self._slo_ms, stages=stages)
        self._publish(topics.APPLICATIONS, APPLICATION, application)
        for model, workers in self._workers.items():
            record = Model(model, "1", "function", "", "", "label", "float32", (1,), partitions=len(workers))
            self._publish(topics.MODELS, model, record)

    def _publish(self, topic: str, name: str, value: object) -> None:
        record = Record(topic, 0, 0, START_US, name.encode(), self._codec.encode(value))
        self._perform(self._kernel.on_records([record], START_US), START_US)

    def _ask(self, now_us: int, about: tuple[int, int]) -> None:
        number, sent_us = about
        value = self._codec.encode(Query(f"q{number}", APPLICATION, _ROW, None, sent_us))
        record = Record(topics.QUERIES, 0, number, now_us, None, value)
        self._perform(self._kernel.on_records([record], now_us), now_us)

    def _tell(self, now_us: int, batch: ModelPredictions) -> None:
        record = Record(topics.MODEL_PREDICTIONS, 0, 0, now_us, None, self._codec.encode(batch))
        self._perform(self._kernel.on_records([record], now_us), now_us)

    def _wake(self, now_us: int, _about: object) -> None:
        self._wake_us = -1
        self._perform(self._kernel.on_timer(now_us), now_us)

    def _perform(self, effects: Effects, now_us: int) -> None:
        for effect in effects:
            if isinstance(effect, FetchStates):
                self._perform(self._kernel.on_states(dict.fromkeys(effect.keys), now_us), now_us)
            elif isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS:
                self._count(self._codec.decode(Prediction, effect.value), now_us + LEG_US)
            elif isinstance(effect, Emit) and effect.topic != topics.SHADOWS:
                worker = self._workers[topics.asked_model(effect.topic)][effect.partition or 0]
                self.events.add(now_us + LEG_US, worker.arrive, self._codec.decode(ModelQueries, effect.value))
        due_us = self._kernel.next_deadline()
        if due_us is not None and (self._wake_us < 0 or due_us < self._wake_us):
            self._wake_us = max(due_us, now_us)
            self.events.add(self._wake_us, self._wake)

    def _count(self, prediction: Prediction, at_us: int) -> None:
        is_in_time = at_us <= prediction.deadline_us
        self.played.whole += prediction.status is Status.COMPLETE and is_in_time
        self.played.partial += prediction.status is Status.PARTIAL or not is_in_time
        self.played.defaults += prediction.status is Status.DEFAULT and is_in_time
