"""Clients of a host's models in a closed loop: each asks, waits for the answers, and asks again.

`own`: each model has clients of its own, who ask about rows of their own. `same`: a client asks all models about one
row at a time, as an application does that asks an ensemble.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from load.harness.wire import Wire
from load.harness.workload import query_id
from schemas import topics
from schemas.codec import Codec
from schemas.records import ModelPredictions, ModelQueries, Outcome, Tensor
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from load.harness.system import Stage

_DUE_US = 600_000_000
_POLL_S = 0.02
# A query's number is the first columns of its row, to this base: bytes hold them.
_BASE = 251
_PLACES = (1, _BASE, _BASE**2)
_PATIENCE_S = 60.0


class Answered(NamedTuple):
    """What clients have had: rows a second, their latencies (ms), the mean rows of a batch, and rows that failed."""

    per_s: float
    p50_ms: float
    p99_ms: float
    rows_a_batch: float
    failed: int


@dataclass(slots=True)
class _Query:
    """A query: the models that have not answered it, and since when it waits (s)."""

    models: Sequence[str]
    left: int
    since_s: float


@dataclass(slots=True)
class Clients:
    """Clients of one deployment; a context.

    Attributes:
        stage: where.
        prefix: of the deployment.
        rows: (n, columns), as the models take them. The first columns are overwritten: no row is asked twice.
    """

    stage: Stage
    prefix: str
    rows: NDArray[np.generic]
    _wire: Wire = field(init=False)
    _codec: Codec = field(default_factory=Codec)
    _clock: SystemClock = field(default_factory=SystemClock)
    _asked: int = 0
    _open: dict[str, _Query] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Connect."""
        self._wire = Wire(self.stage.bootstrap, self.prefix, self.stage.properties)
        self._wire.follow((topics.MODEL_PREDICTIONS,))
        return self

    def __exit__(self, *_: object) -> None:
        """Leave."""
        self._wire.close()

    def ask(self, models: Sequence[str], window: int, seconds: float, *, is_same: bool) -> Answered:
        """Ask for so long, and wait for the last answers, which count no more.

        Args:
            models: that are asked.
            window: clients of each model, or of all.
            seconds: how long.
            is_same: whether a client asks all models about one row.

        Raises:
            TimeoutError: there are no answers in time.
        """
        for _ in range(window):
            for asked in [models] if is_same else [[model] for model in models]:
                self._ask(asked)
        start_s = time.perf_counter()
        end_s = start_s + seconds
        took_ms: list[float] = []
        batches, failed = 0.0, 0
        for now_s, answer, queries in self._answers():
            if now_s >= end_s:
                continue
            batches += len(answer.query_ids) / max(1, answer.batch_rows)
            failed += len(answer.outcomes) - answer.outcomes.count(Outcome.OK)
            took_ms += [(now_s - query.since_s) * 1e3 for query in queries]
            for query in queries:
                if not query.left:
                    self._ask(query.models)
        if not took_ms:
            raise TimeoutError(f"nothing was answered within {seconds:g} s")
        p50, p99 = np.percentile(took_ms, (50, 99)).tolist()
        return Answered(len(took_ms) / seconds, p50, p99, len(took_ms) / max(1.0, batches), failed)

    def greet(self, models: Sequence[str]) -> None:
        """Ask each model once, and wait for the answers: all are loaded then.

        Raises:
            TimeoutError: one does not answer.
        """
        self._ask(models)
        for _ in self._answers():
            pass

    def _answers(self) -> Iterator[tuple[float, ModelPredictions, list[_Query]]]:
        """Yield answers as they come, when (s) and to which queries, until there is none to wait for."""
        last_s = time.perf_counter()
        while self._open:
            if time.perf_counter() > last_s + _PATIENCE_S:
                raise TimeoutError(f"{len(self._open)} queries were not answered within {_PATIENCE_S:g} s")
            for arrival in self._wire.poll(_POLL_S):
                last_s = time.perf_counter()
                answer = self._codec.decode(ModelPredictions, arrival.value)
                yield last_s, answer, self._taken(answer.query_ids)

    def _taken(self, query_ids: Sequence[str]) -> list[_Query]:
        """Return the queries of answered rows; one that all models have answered is open no more."""
        found = []
        for name in query_ids:
            query = self._open[name]
            query.left -= 1
            if not query.left:
                del self._open[name]
            found.append(query)
        return found

    def _ask(self, models: Sequence[str]) -> None:
        row = self.rows[self._asked % len(self.rows)][np.newaxis].copy()
        row[0, : len(_PLACES)] = [self._asked // place % _BASE for place in _PLACES]  # no row comes again
        its, due_us = query_id(self.stage.seed, self._asked), self._clock.now_us() + _DUE_US
        record = self._codec.encode(ModelQueries((its,), 0, (due_us,), Tensor.of(row)))
        self._open[its] = _Query(models, len(models), time.perf_counter())
        for model in models:
            self._wire.produce(topics.model_queries(model), b"", record)
        self._asked += 1
