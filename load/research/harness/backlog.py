"""Model queries for the workers of one model, without the roles before them: who answers which of them, and when."""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from load.harness.wire import Wire
from load.harness.workload import query_id
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import ModelPredictions, ModelQueries, Tensor
from streams.runtime.clock import SystemClock
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from load.harness.system import Stage

_DUE_US = 600_000_000
_TOGETHER = 50  # rows of a record, as the selection role puts together what it asks in one go
_LEAST_WAITING = 200
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Answered:
    """One batch as its worker reported it, and when its record was read."""

    worker: str
    rows: int
    cap: int
    predict_us: int
    at_us: int


@dataclass(slots=True)
class Asker:
    """Asks a model's workers about `rows` (n, ...), over and over, and reads what they answer; a context.

    Attributes:
        stage: where.
        prefix: of the deployment.
        model: whose workers run.
        rows: as the model takes them.
    """

    stage: Stage
    prefix: str
    model: str
    rows: NDArray[np.generic]
    asked: int = 0
    answered: int = 0
    _wire: Wire = field(init=False)
    _codec: Codec = field(default_factory=Codec)
    _clock: SystemClock = field(default_factory=SystemClock)

    def __enter__(self) -> Self:
        """Connect."""
        self._wire = Wire(self.stage.bootstrap, self.prefix, self.stage.properties, linger_ms=2)
        self._wire.follow((names.MODEL_PREDICTIONS,))
        return self

    def __exit__(self, *_: object) -> None:
        """Leave."""
        self._wire.close()

    def drain(self, count: int, timeout_s: float = 120.0) -> tuple[list[Answered], int]:
        """Ask `count` rows at once, evenly over the partitions, and wait for all answers.

        Returns:
            The batches in the order in which they were read, and when the first query was written (us).

        Raises:
            TimeoutError: not all rows were answered in time.
        """
        start_us = self._clock.now_us()
        while self.asked < count:
            self._send(min(_TOGETHER, count - self.asked))
        return self._rest(timeout_s), start_us

    def keep_busy(self, seconds: float, timeout_s: float = 30.0) -> list[Answered]:
        """Ask for so long, always about as many rows ahead as the workers answer in half a second.

        Raises:
            TimeoutError: what was asked is not answered soon after.
        """
        end_us = self._clock.now_us() + int(seconds * 1e6)
        lately: deque[tuple[int, int]] = deque()
        batches: list[Answered] = []
        while (now_us := self._clock.now_us()) < end_us:
            while lately and lately[0][0] < now_us - 500_000:
                lately.popleft()
            ahead = max(_LEAST_WAITING, sum(rows for _, rows in lately))
            while self.asked - self.answered < ahead:
                self._send(_TOGETHER)
            arrived = self._take()
            lately.extend((batch.at_us, batch.rows) for batch in arrived)
            batches += arrived
        return batches + self._rest(timeout_s)

    def once(self, rows: int, timeout_s: float = 30.0) -> list[Answered]:
        """Ask `rows` in one record, and wait for the answer: a batch of so many, if the cap lets it.

        Raises:
            TimeoutError: there is none in time.
        """
        self._send(rows)
        self._wire.flush()
        return self._rest(timeout_s)

    def _rest(self, timeout_s: float) -> list[Answered]:
        batches: list[Answered] = []
        end_us = self._clock.now_us() + int(timeout_s * 1e6)
        while self.answered < self.asked:
            if self._clock.now_us() > end_us:
                missing = self.asked - self.answered
                raise TimeoutError(f"{missing} rows were not answered by {self.model} within {timeout_s:g} s")
            batches += self._take()
        return batches

    def _take(self) -> list[Answered]:
        arrivals = self._wire.poll(_POLL_S)
        now_us = self._clock.now_us()
        answers = [self._codec.decode(ModelPredictions, arrival.value) for arrival in arrivals]
        self.answered += sum(len(answer.query_ids) for answer in answers)
        return [Answered(a.worker, a.batch_rows, a.batch_cap, a.predict_us, now_us) for a in answers]

    def _send(self, count: int) -> None:
        numbers = range(self.asked, self.asked + count)
        some = np.ascontiguousarray(self.rows[np.arange(self.asked, self.asked + count) % len(self.rows)])
        due_us = self._clock.now_us() + _DUE_US
        record = ModelQueries(
            tuple(query_id(self.stage.seed, number) for number in numbers),
            0,
            tuple(due_us + number for number in numbers),
            Tensor.of(some),
        )
        self._wire.produce(names.model_queries(self.model), next(_TURNS), self._codec.encode(record))
        self.asked += count


def settled(batches: Sequence[Answered], objective_ms: float = math.inf) -> dict[str, float]:
    """Return what the second half of the batches' time says: rows a second, and batches.

    Rows a second in all (`per_s`), in batches that took no longer than the objective (`good_per_s`), and while
    predicting (`model_per_s`).
    """
    middle_us = (batches[0].at_us + batches[-1].at_us) // 2
    late = [batch for batch in batches if batch.at_us > middle_us] or batches
    rows = sum(batch.rows for batch in late)
    times_us = [batch.predict_us for batch in late]
    good = sum(batch.rows for batch in late if batch.predict_us <= objective_ms * 1e3)
    took_us = max(1, late[-1].at_us - middle_us)
    return {
        "per_s": rows / took_us * 1e6,
        "good_per_s": good / took_us * 1e6,
        "model_per_s": rows / max(1, sum(times_us)) * 1e6,
        "batch_p99_ms": float(np.percentile(times_us, 99)) / 1e3,
        "rows_a_batch": rows / len(late),
    }


def keys(partitions: int = names.MODEL_PARTITIONS) -> Sequence[bytes]:
    """Return a key for each partition of a model's topic."""
    found: dict[int, bytes] = {}
    numbers = itertools.count()
    while len(found) < partitions:
        key = b"%d" % next(numbers)
        found.setdefault(partition_of(key, partitions), key)
    return tuple(found[partition] for partition in range(partitions))


_TURNS = itertools.cycle(keys())
