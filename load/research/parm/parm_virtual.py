"""The lanes of `parm` in virtual time: selection's own kernel, its groups and its decoding, between simulated workers.

    query ─leg─▶ Selection ─leg─▶ a worker's queue ─ 25 to 50 ms, and stalls ─▶ leg ─▶ Selection ─leg─▶ answer

Outputs are the network's and the parity model's real ones. So 100,000 queries take half a minute, and nothing else that
the machine does counts.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from load.harness import arrivals
from load.research.harness.stalls import pairs
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
    Status,
    Tensor,
)
from streams.operators.contract import Emit, FetchStates, Record
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.role.local import LocalCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from load.research.parm.parm_forms import Lane
    from streams.operators.contract import Effects

LEG_US = 1_200  # the median leg over one broker, as measured (`selection.kernel`)
START_US = 1_700_000_000_000_000
NET, PARITY, APPLICATION = "mnist", "mnist-parity", "digits"


@dataclass(frozen=True, slots=True)
class World:
    """What is asked, and what networks answer.

    Attributes:
        rows: images, (n, ...).
        labels: of them, (n,).
        own: the network's scores, (n, m).
        parity: what the parity model for groups of k answers to sums, by k.
        right: how often what it decodes is right, by k; see `Model.parity_right`.
        service_s: the shortest and the longest call.
        every_s: for each worker, how long it runs between two stalls; 0 = nothing stands still.
        for_s: the shortest and the longest stall.
        slo_ms: the objective.
    """

    rows: NDArray[np.float32]
    labels: NDArray[np.int64]
    own: NDArray[np.float32]
    parity: dict[int, Callable[[NDArray[np.float32]], NDArray[np.float32]]]
    service_s: tuple[float, float]
    every_s: float
    for_s: tuple[float, float]
    slo_ms: float
    right: dict[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Played:
    """What became of the queries of one run.

    Attributes:
        latencies_ms: of each answer, in order of the answers.
        own: answers that are the network's, and how many of them are right.
        decoded: likewise of those that were decoded.
        sure: of how many decoded answers it is said that they are right: the sum of their confidences.
        defaults: answers by default.
        rows: that the network was asked, again ones among them.
        sums: that the parity model was asked.
    """

    latencies_ms: list[float] = field(default_factory=list)
    own: list[int] = field(default_factory=lambda: [0, 0])
    decoded: list[int] = field(default_factory=lambda: [0, 0])
    sure: float = 0.0
    defaults: int = 0
    rows: int = 0
    sums: int = 0

    @property
    def more_work(self) -> float:
        """Rows that all models were asked beyond one a query, as a share of the queries."""
        return (self.rows + self.sums) / len(self.latencies_ms) - 1.0

    def quantiles(self, *points: float) -> list[float]:
        """Return quantiles of the latencies, in ms."""
        return [float(value) for value in np.quantile(self.latencies_ms, points)]

    def add(self, other: Played) -> None:
        """Take another run's queries as well."""
        self.latencies_ms += other.latencies_ms
        self.own = [a + b for a, b in zip(self.own, other.own, strict=True)]
        self.decoded = [a + b for a, b in zip(self.decoded, other.decoded, strict=True)]
        self.sure += other.sure
        self.defaults += other.defaults
        self.rows += other.rows
        self.sums += other.sums


class _Workers:
    """One model's workers: one call at a time each, in order of arrival."""

    def __init__(self, calls_us: Callable[[], int], stalls: Sequence[Sequence[tuple[int, int]]]) -> None:
        self._calls_us = calls_us
        self._stalls = stalls
        self._free_us = [0] * len(stalls)

    def done_us(self, place: int, now_us: int) -> int:
        """Return when a worker has answered a row that comes now."""
        stalls, end_us = self._stalls[place], max(now_us, self._free_us[place])
        left_us, at = self._calls_us(), max(0, bisect_right(stalls, (end_us, end_us)) - 1)
        for from_us, until_us in stalls[at:]:
            if from_us >= end_us + left_us:
                break
            if until_us > end_us:
                left_us -= max(0, from_us - end_us)
                end_us = until_us
        self._free_us[place] = end_us + left_us
        return self._free_us[place]


def play(world: World, lane: Lane, rate: float, queries: int, seed: int) -> Played:
    """Ask a lane so many queries, at Poisson arrivals."""
    return _Run(world, lane, rate, queries, seed).play()


class _Run:
    def __init__(self, world: World, lane: Lane, rate: float, queries: int, seed: int) -> None:
        self._world, self._lane, self._queries = world, lane, queries
        self._codec = LocalCodec(Codec())
        self._kernel = Selection(self._codec, SelectionSettings(1))
        self._arrivals = arrivals.poisson(rate, seed)
        self._workers = dict(_workers(world, lane, 2 * queries / rate, seed))
        self._events: list[tuple[int, int, Record]] = []
        self._order = count()
        self._sent_us: dict[str, int] = {}
        self.found = Played()

    def play(self) -> Played:
        """Return what became of the queries."""
        self._configure()
        self._send(0)
        while self._events or self._kernel.next_deadline() is not None:
            due_us = self._kernel.next_deadline()
            if self._events and (due_us is None or self._events[0][0] <= due_us):
                now_us, _, record = heapq.heappop(self._events)
                self._perform(self._kernel.on_records([record], now_us), now_us)
                if record.topic == topics.QUERIES:
                    self._send(record.offset + 1)
            elif due_us is not None:
                self._perform(self._kernel.on_timer(due_us), due_us)
        return self.found

    def _configure(self) -> None:
        lane, width = self._lane, self._world.own.shape[1]
        shape, classes = self._world.rows.shape[1:], tuple(map(str, range(width)))
        net = Model(NET, "1", "torch", "", "", "scores", "float32", shape, classes, partitions=lane.workers)
        parity = Model(
            PARITY, "1", "torch", "", "", "scores", "float32", shape, classes, partitions=max(1, lane.parity_workers),
            parity_of=f"{NET}@1", parity_k=lane.k, parity_right=self._world.right.get(lane.k, ()),
        )  # fmt: skip
        named = PARITY if lane.k else ""
        application = Application(
            APPLICATION, (NET,), "single", slo_ms=self._world.slo_ms, parity=named, hedge=lane.hedge
        )
        for topic, key, value in (
            (topics.MODELS, NET, net),
            (topics.MODELS, PARITY, parity),
            (topics.APPLICATIONS, APPLICATION, application),
        ):
            record = Record(topic, 0, 0, START_US, key.encode(), self._codec.encode(value))
            self._perform(self._kernel.on_records([record], START_US), START_US)

    def _send(self, number: int) -> None:
        """Have the next query come."""
        if number >= self._queries:
            return
        sent_us = START_US + next(self._arrivals)
        query_id = f"q{number}"
        self._sent_us[query_id] = sent_us
        row = Tensor.of(self._world.rows[number % len(self._world.rows)])
        query = Query(query_id, APPLICATION, row, None, sent_us)
        self._later(sent_us + LEG_US, topics.QUERIES, number, query)

    def _later(self, at_us: int, topic: str, offset: int, value: object) -> None:
        record = Record(topic, 0, offset, at_us, None, self._codec.encode(value))
        heapq.heappush(self._events, (at_us, next(self._order), record))

    def _perform(self, effects: Effects, now_us: int) -> None:
        for effect in effects:
            if isinstance(effect, FetchStates):
                self._perform(self._kernel.on_states(dict.fromkeys(effect.keys), now_us), now_us)
            elif isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS:
                self._answered(self._codec.decode(Prediction, effect.value), now_us + LEG_US)
            elif isinstance(effect, Emit) and effect.topic != topics.SHADOWS:
                batch = self._codec.decode(ModelQueries, effect.value)
                self._asked(topics.asked_model(effect.topic), effect.partition, batch, now_us)

    def _asked(self, model: str, place: int | None, batch: ModelQueries, now_us: int) -> None:
        """Have a worker answer each row of a record by itself."""
        assert isinstance(batch.inputs, Tensor)
        self.found.rows += len(batch.query_ids) if model == NET else 0
        self.found.sums += len(batch.query_ids) if model == PARITY else 0
        for query_id, row in zip(batch.query_ids, batch.inputs.numpy(), strict=True):
            at_us = self._workers[model].done_us(place or 0, now_us + LEG_US)
            self._later(
                at_us + LEG_US, topics.MODEL_PREDICTIONS, 0, _answer(model, query_id, self._scores(query_id, row))
            )

    def _scores(self, query_id: str, row: NDArray[Any]) -> NDArray[np.float32]:
        if query_id in self._sent_us:
            return self._world.own[int(query_id[1:]) % len(self._world.own), np.newaxis]
        return self._world.parity[self._lane.k](row[np.newaxis].copy())  # torch warns of what cannot be written

    def _answered(self, prediction: Prediction, at_us: int) -> None:
        found, number = self.found, int(prediction.query_id[1:])
        found.latencies_ms.append((at_us - self._sent_us[prediction.query_id]) / 1e3)
        if prediction.status is Status.DEFAULT:
            found.defaults += 1
            return
        is_decoded = any(output.reconstructed for output in prediction.outputs)
        found.sure += prediction.confidence if is_decoded else 0.0
        counted = found.decoded if is_decoded else found.own
        counted[0] += 1
        counted[1] += prediction.answer == int(self._world.labels[number % len(self._world.labels)])


def _answer(model: str, query_id: str, scores: NDArray[np.float32]) -> ModelPredictions:
    label = Tensor.of(np.array([int(scores[0].argmax())]))
    return ModelPredictions(
        model, "1", "w", (query_id,), (Outcome.OK,), label, Tensor.of(scores), (0,), 1, 1, 1, 0
    )  # fmt: skip


def _workers(world: World, lane: Lane, seconds: float, seed: int) -> Iterator[tuple[str, _Workers]]:
    """Yield the workers of each model; what stands still is drawn from all of them."""
    total = lane.workers + lane.parity_workers
    stalls: list[list[tuple[int, int]]] = [[] for _ in range(total)]
    now_s = 0.0
    for stall in pairs(total, world.every_s, world.for_s, seed) if world.every_s else ():
        now_s += stall.after_s
        for place in stall.places:
            stalls[place].append((START_US + int(now_s * 1e6), START_US + int((now_s + stall.for_s) * 1e6)))
        now_s += stall.for_s
        if now_s > seconds:
            break
    random = np.random.default_rng((seed, total))

    def call_us() -> int:
        return int(random.uniform(*world.service_s) * 1e6)

    yield NET, _Workers(call_us, stalls[: lane.workers])
    yield PARITY, _Workers(call_us, stalls[lane.workers :])
