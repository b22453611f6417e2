"""The lanes of `parm` in virtual time: selection's own kernel, its groups and its decoding, between simulated workers.

    query ─leg─▶ Selection ─leg─▶ a worker's queue ─ 25 to 50 ms, and stalls ─▶ leg ─▶ Selection ─leg─▶ answer

Outputs are the network's and the parity model's real ones. So 100,000 queries take half a minute, and nothing else that
the machine does counts.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from load.harness import arrivals
from load.research.harness.stalls import pairs
from load.research.harness.virtual import Fleet, Scene
from schemas.codec import Codec
from schemas.records import Application, Model, Query, Status, Tensor
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.role.local import LocalCodec
from streams.testing import START_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from load.research.parm.parm_forms import Lane
    from schemas.records import ModelQueries, Prediction
    from streams.operators.contract import Effects

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

    def take(self, prediction: Prediction, at_us: int, labels: NDArray[np.int64]) -> None:
        """Note an answer that its client has at a time."""
        self.latencies_ms.append((at_us - prediction.sent_us) / 1e3)
        if prediction.status is Status.DEFAULT:
            self.defaults += 1
            return
        is_decoded = any(output.reconstructed for output in prediction.outputs)
        self.sure += prediction.confidence if is_decoded else 0.0
        counted = self.decoded if is_decoded else self.own
        counted[0] += 1
        counted[1] += prediction.answer == int(labels[int(prediction.query_id[1:]) % len(labels)])

    def add(self, other: Played) -> None:
        """Take another run's queries as well."""
        self.latencies_ms += other.latencies_ms
        self.own = [a + b for a, b in zip(self.own, other.own, strict=True)]
        self.decoded = [a + b for a, b in zip(self.decoded, other.decoded, strict=True)]
        self.sure += other.sure
        self.defaults += other.defaults
        self.rows += other.rows
        self.sums += other.sums


class _Calls:
    """The calls of one model's workers: one at a time each, in order of arrival."""

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


class _Workers(Fleet):
    """Workers of a model that answer each row by itself; `scores` says what, by its id and input."""

    def __init__(
        self,
        codec: Codec,
        model: str,
        workers: int,
        calls: _Calls,
        scores: Callable[[str, NDArray[Any]], NDArray[np.float32]],
    ) -> None:
        super().__init__(codec, model, workers)
        self._calls, self._scores = calls, scores
        self.rows = 0

    def take(self, place: int, batch: ModelQueries, now_us: int) -> Effects:
        """Answer each row of a record when its turn is over."""
        assert isinstance(batch.inputs, Tensor)
        self.rows += len(batch.query_ids)
        return [
            self.run(self._calls.done_us(place, now_us) - now_us, partial(self._answered, query_id, row))
            for query_id, row in zip(batch.query_ids, batch.inputs.numpy(), strict=True)
        ]

    def _answered(self, query_id: str, row: NDArray[Any], _now_us: int) -> Effects:
        scores = self._scores(query_id, row)
        return [self.answer((query_id,), Tensor.of(np.array([int(scores[0].argmax())])), scores=scores)]


def play(world: World, lane: Lane, rate: float, queries: int, seed: int) -> Played:
    """Ask a lane so many queries, at Poisson arrivals."""
    codec, found = LocalCodec(Codec()), Played()
    calls = dict(_calls(world, lane, 2 * queries / rate, seed))
    net = _Workers(codec, NET, lane.workers, calls[NET], lambda query_id, _: world.own[_number(query_id, world.own)])
    coded = _Workers(
        codec, PARITY, max(1, lane.parity_workers), calls[PARITY], lambda _, row: _decoding(world, lane, row)
    )
    scene = Scene(
        codec,
        lambda: Selection(codec, SelectionSettings(1)),
        {NET: net, PARITY: coded},
        lambda prediction, at_us: found.take(prediction, at_us, world.labels),
    )
    scene.configure(*_configuration(world, lane))
    for number, after_us in zip(range(queries), arrivals.poisson(rate, seed), strict=False):
        row = Tensor.of(world.rows[number % len(world.rows)])
        scene.ask(Query(f"q{number}", APPLICATION, row, None, START_US + after_us))
    scene.end(world.slo_ms)
    found.rows, found.sums = net.rows, coded.rows
    return found


def _configuration(world: World, lane: Lane) -> tuple[Application, list[Model]]:
    width, shape = world.own.shape[1], world.rows.shape[1:]
    classes = tuple(map(str, range(width)))
    net = Model(NET, "1", "torch", "", "", "scores", "float32", shape, classes, partitions=lane.workers)
    parity = Model(
        PARITY, "1", "torch", "", "", "scores", "float32", shape, classes, partitions=max(1, lane.parity_workers),
        parity_of=f"{NET}@1", parity_k=lane.k, parity_right=world.right.get(lane.k, ()),
    )  # fmt: skip
    named = PARITY if lane.k else ""
    application = Application(APPLICATION, (NET,), "single", slo_ms=world.slo_ms, parity=named, hedge=lane.hedge)
    return application, [net, parity]


def _number(query_id: str, rows: NDArray[Any]) -> slice:
    """Return where a query's own row is."""
    at = int(query_id[1:]) % len(rows)
    return slice(at, at + 1)


def _decoding(world: World, lane: Lane, row: NDArray[Any]) -> NDArray[np.float32]:
    return world.parity[lane.k](row[np.newaxis].copy())  # torch warns of what cannot be written


def _calls(world: World, lane: Lane, seconds: float, seed: int) -> Iterator[tuple[str, _Calls]]:
    """Yield the calls of each model's workers; what stands still is drawn from all of them."""
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

    yield NET, _Calls(call_us, stalls[: lane.workers])
    yield PARITY, _Calls(call_us, stalls[lane.workers :])
