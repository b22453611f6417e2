"""The cost of a query inside the kernels: CPU per step, without broker, runtime and the model's own time.

    python -m load.research.kernels [queries]

Poll by poll the same queries go through every kernel. The effects of one are the records of the next. The best of
several rounds counts, because other work on the machine can only add time.
"""

from __future__ import annotations

import gc
import sys
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.framing import peek_id
from schemas.records import Application, Feedback, Model, Prediction, Query, Tensor
from streams.operators.contract import Effects, Emit, FetchStates, Loaded, Predict, Ran, Record, WriteStates
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.learn.kernel import Learner
from streams.operators.selection.kernel import Selection, SelectionSettings
from workers.inputs.rows import predict_rows
from workers.kernel.model.worker import ModelWorker
from workers.manifest import Manifest, Signature
from workers.runtimes.contract import Outputs, Rows
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streams.operators.contract import Operator

MODELS: Final = ("a", "b")
FEATURES: Final = 64
PARTITIONS: Final = 4
POLL: Final = 500
BATCH: Final = 128
ROUNDS: Final = 5
NOW_US: Final = 1_700_000_000_000_000
_STEPS: Final = ("select", "work: queue", "work: rows", "work: answer", "combine", "join", "learn")
# A part of "join", done once more: what a shorter record for the joiner could save at most.
_READING: Final = "  of join, reading predictions"


class Zero:
    """A model that costs nothing."""

    def predict_batch(self, rows: Rows) -> Outputs:
        """Answer 0 to every row."""
        return Outputs(np.zeros(len(rows), dtype=np.int64))


class Bench:
    """All kernels around one application, and the CPU that each step has taken."""

    def __init__(self) -> None:
        self.spent_s = _nothing_spent()
        self._codec = codec = Codec()
        self._offsets = count()
        self._selection = Selection(codec, SelectionSettings(PARTITIONS))
        self._joiner = Joiner(codec, JoinerSettings(PARTITIONS))
        self._learner = Learner(codec)
        self._manifest = Manifest("a", "1", "function", Signature("tensor", "float32", (FEATURES,)), "label")
        how = WorkerSettings(PARTITIONS, "fixed", {"rows": BATCH}, objective_us=20_000)
        self._workers = {name: ModelWorker(codec, _model(name), "bench", how) for name in MODELS}
        for name, worker in self._workers.items():
            worker.on_timer(NOW_US)
            worker.on_loaded(Loaded(name, "1"), NOW_US)
        for kernel in (self._selection, self._joiner, self._learner):
            kernel.on_partitions(dict.fromkeys(range(PARTITIONS), 0))
            kernel.on_records(self._configuration(), NOW_US)

    def run(self, rows: Iterable[Query]) -> int:
        """Ask, answer, join and learn; returns how many observations were folded."""
        codec = self._codec
        queries = [
            self._record(topics.QUERIES, row % PARTITIONS, codec.encode(query)) for row, query in enumerate(rows)
        ]
        asked = self._through("select", self._selection, queries)
        outputs = [record for model in MODELS for record in self._worked(model, asked)]
        predictions = self._through("combine", self._selection, outputs)
        feedback = [
            self._record(topics.FEEDBACK, p.partition, codec.encode(Feedback(peek_id(p.value), 0, None, NOW_US)))
            for p in predictions
        ]
        joined = self._through("join", self._joiner, predictions + feedback)
        with self._timed(_READING):
            for record in predictions:
                codec.decode(Prediction, record.value)
        applied = self._learner.statistics().get("applied_total{application=digits}", 0.0)
        self._through("learn", self._learner, joined)
        return int(self._learner.statistics()["applied_total{application=digits}"] - applied)

    def _worked(self, model: str, asked: list[Record]) -> list[Record]:
        worker, effects = self._workers[model], Effects()
        mine = [record for record in asked if record.topic == topics.model_queries(model)]
        with self._timed("work: queue"):
            effects += worker.on_records(mine, NOW_US)
        while True:
            given = [effect for effect in effects if isinstance(effect, Predict)]
            if not given:
                return self._records(effects)
            effects = [effect for effect in effects if not isinstance(effect, Predict)]
            for batch in given:
                with self._timed("work: rows"):
                    predicted = predict_rows(Zero(), self._manifest, batch.rows)
                with self._timed("work: answer"):
                    effects += worker.on_predicted(batch.batch_id, Ran(predicted, 1_000, is_blocking=True), NOW_US)

    def _through(self, step: str, kernel: Operator, records: list[Record]) -> list[Record]:
        """Hand records to a kernel by polls; what it wants to know of the store is answered untimed."""
        effects: Effects = []
        for start in range(0, len(records), POLL):
            poll = records[start : start + POLL]
            with self._timed(step):
                made = kernel.on_records(poll, NOW_US)
            for wanted in [effect for effect in made if isinstance(effect, FetchStates)]:
                made += kernel.on_states(dict.fromkeys(wanted.keys), NOW_US)
            effects += made
        return self._records(effects)

    def _records(self, effects: Effects) -> list[Record]:
        """Return what was produced as what is consumed."""
        fine = (Emit, FetchStates, WriteStates)
        assert all(isinstance(effect, fine) or not getattr(effect, "reason", "") for effect in effects)
        return [self._record(e.topic, e.partition, e.value, e.key) for e in effects if isinstance(e, Emit)]

    def _record(self, topic: str, partition: int, value: bytes, key: bytes | None = None) -> Record:
        return Record(topic, partition, next(self._offsets), NOW_US, key, value)

    def _configuration(self) -> list[Record]:
        encode = self._codec.encode
        models = [_model(name) for name in MODELS]
        return [
            self._record(topics.APPLICATIONS, 0, encode(Application("digits", MODELS, default_output=0)), b"digits"),
            *(self._record(topics.MODELS, 0, encode(model), model.name.encode()) for model in models),
        ]

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        started_s = time.process_time()
        yield
        self.spent_s[step] += time.process_time() - started_s


def _nothing_spent() -> dict[str, float]:
    return dict.fromkeys((*_STEPS[:-1], _READING, _STEPS[-1]), 0.0)


def _model(name: str) -> Model:
    return Model(name, "1", "function", "", "", "label", "float32", (FEATURES,))


def measure(queries: int) -> dict[str, float]:
    """Return the CPU time of each step in us per query."""
    rng = np.random.default_rng(0)
    best = dict.fromkeys(_nothing_spent(), float("inf"))
    for _ in range(ROUNDS):
        bench = Bench()
        bench.run(_queries(1, rng))  # the states are known from here on
        bench.spent_s = _nothing_spent()
        rows = _queries(queries, rng)
        gc.collect()
        folded = sum(bench.run(rows[start : start + POLL]) for start in range(0, queries, POLL))
        assert folded == queries, f"{folded} of {queries} queries came through"
        best = {step: min(best[step], spent_s / queries * 1e6) for step, spent_s in bench.spent_s.items()}
    return best


def _queries(number: int, rng: np.random.Generator) -> list[Query]:
    inputs = rng.random((number, FEATURES), dtype=np.float32)
    return [Query(rng.bytes(16).hex(), "digits", Tensor.of(row), None, NOW_US, 10_000.0) for row in inputs]


def main() -> None:
    """Measure and print."""
    costs = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
    for step, cost_us in (*costs.items(), ("all", sum(costs[step] for step in _STEPS))):
        print(f"{step:<32}{cost_us:6.1f} us a query")


if __name__ == "__main__":
    main()
