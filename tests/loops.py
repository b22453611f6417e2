"""A whole loop in virtual time: selection, scripted models, joiner and learner on the broker-free driver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Application,
    Features,
    Feedback,
    Model,
    ModelPredictions,
    ModelQueries,
    Observations,
    Outcome,
    Prediction,
    Query,
    Tensor,
)
from streams.operators.contract import Emit, Operator, Predicted, Skip
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.learn.kernel import Learner
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.kafka.fast.whole_batches import records_of
from streams.tape.about import about_joiner, about_learner, about_selection
from streams.tape.taped import Taped
from streams.testing import START_US, Driver, ModelBehaviour
from streams.testing.packing import Packing
from streams.topology import build, worker_role
from tests.whole import WholeKernel
from workers.inputs.columns import Column
from workers.kernel.model.worker import ModelWorker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random
    from typing import Any

    from numpy.typing import NDArray

    from schemas.records import Input, Observation, Value
    from streams.operators.contract import Effects, Predict, Record
    from streams.testing import Fault
    from streams.testing.models import Lookup

CODEC = Codec()
KEPT = 130_000_000, 100_000, maxsize  # by the learner: ids for so long, states, bytes of them
# What comes in whole batches now and then, where that is drawn.
PACKED = frozenset({topics.QUERIES, topics.MODEL_PREDICTIONS, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS})


class Row(NamedTuple):
    """What a scripted model is asked."""

    query_id: str
    input: Input


class Sure(NamedTuple):
    """What a scripted model answers with scores: a label, and how sure it is of it."""

    label: int
    confidence: float

    @property
    def scores(self) -> list[float]:
        """The label's score, and that of all else."""
        return [self.confidence, 1.0 - self.confidence]


class Slow(NamedTuple):
    """What a scripted model with real workers answers late."""

    label: Value
    took_us: int


@dataclass
class ScriptedModel(Operator):
    """A worker that answers every row at once with `answer(query)`; None = it never answers."""

    name: str
    answer: Callable[[Row], Value | Sure | Outcome | None]

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Answer a poll's rows, one record each."""
        asked = (record for record in records if record.topic != topics.MODELS)
        return [effect for record in asked for effect in self._answered(record)]

    def _answered(self, record: Record) -> Effects:
        queries = CODEC.decode(ModelQueries, record.value)
        effects: Effects = []
        column = Column(queries.inputs)
        for place, query_id in enumerate(queries.query_ids):
            answer = self.answer(Row(query_id, column[place]))
            if answer is None:
                return effects  # nor is the record ever complete
            outcome = answer if isinstance(answer, Outcome) else Outcome.OK
            value = CODEC.encode(model_predictions(self.name, {query_id: answer}, outcome))
            effects.append(Emit(topics.MODEL_PREDICTIONS, queries.reply_partition, None, value))
        return [*effects, Skip((record.position,), "")]


def model_predictions(
    model: str, answers: Mapping[str, Value | Sure | Outcome], outcome: Outcome = Outcome.OK
) -> ModelPredictions:
    """Make a worker batch of labels, or of scores; the outcome is the same for all its rows."""
    labels = [0 if isinstance(answer, Tensor) else _label(answer) for answer in answers.values()]
    scores = [found for answer in answers.values() if (found := _scores(answer)) is not None]
    text = any(isinstance(label, str) for label in labels)
    return ModelPredictions(
        model=model,
        version="1",
        worker="w",
        query_ids=tuple(answers),
        outcomes=(outcome,) * len(answers),
        answers=tuple(map(str, labels)) if text else Tensor.of(np.array(labels)),
        scores=Tensor.of(np.array(scores)) if scores else None,
        waited_us=(0,) * len(answers),
        predict_us=1_000,
        batch_rows=len(answers),
        batch_cap=1,
        queue_rows=0,
    )


def version(model: str, name: str = "1", shares: Mapping[str, float] | None = None) -> Model:
    """Make the record of a version of a model, with others beside it."""
    return Model(
        model, name, "function", name, f"digest {name}", "label", "float32", (1,), shares=shares or {}, partitions=1
    )


def served(
    answer: Callable[[Row], Value | Sure | Slow | Outcome | None], call_us: int = 1_000, row_us: int = 100, **more: Any
) -> ModelBehaviour:
    """Return a model that takes so long for each batch, and for each of its rows; None for a row: it hangs.

    Rows come without the ids of their queries.
    """

    def predict(batch: Predict) -> tuple[Predicted, int] | None:
        answers = [answer(Row("", given)) for given in batch.rows]
        if None in answers:
            return None
        outcomes = tuple(each if isinstance(each, Outcome) else Outcome.OK for each in answers)
        labels = np.array([_label(each) for each in answers if each is not None])
        scores = [each.scores for each in answers if isinstance(each, Sure)]
        slow_us = max([answer.took_us for answer in answers if isinstance(answer, Slow)], default=0)
        took_us = call_us + row_us * len(batch.rows) + slow_us
        said = tuple(labels.tolist()) if labels.dtype.kind == "U" else labels
        return Predicted(outcomes, said, np.array(scores) if scores else None), took_us

    return ModelBehaviour(predict, **more)


def _label(answer: Value | Sure | Slow | Outcome) -> Value:
    return answer.label if isinstance(answer, Sure | Slow) else 0 if isinstance(answer, Outcome) else answer


def _scores(answer: Value | Sure | Outcome) -> Sequence[float] | NDArray[Any] | None:
    if isinstance(answer, Tensor):
        return answer.numpy()
    return answer.scores if isinstance(answer, Sure) else None


def row(value: float = 0.0) -> Tensor:
    """Make a one-number input."""
    return Tensor.of(np.array([value], dtype=np.float32))


@dataclass
class Loop:
    """Selection, one worker a model, joiner and learner around one application `digits`.

    Attributes:
        cache_bytes: of selection's cache; 0 = none.
        admission: whether selection refuses what would be late.
        model_partitions: of each model's topic.
        has_workers: whether real workers answer, with scripted service times, and not scripted ones at once.
        load_us: how long these load a version.
        features: how the store of features answers; None = it does not.
        packed: what draws which records selection, joiner and learner are given in whole batches, and whose effects
            are packed; None = there are none.
        columns: whether joiner and learner work over columns then, where Skysail is compiled.
        is_taped: whether these write down their calls, by which all of it can be replayed.
    """

    models: Mapping[str, Callable[[Row], Any]]
    application: Application
    faults: Iterable[Fault] = ()
    partitions: int = 1
    margin_us: int | None = None
    cache_bytes: int = 0
    admission: bool = False
    model_partitions: int = 1
    has_workers: bool = False
    load_us: int = 0
    features: Lookup | None = None
    packed: Random | None = None
    columns: bool = False
    is_taped: bool = True
    driver: Driver = field(init=False)
    sent: int = 0

    def __post_init__(self) -> None:
        """Start all roles and publish the configuration."""
        selection = SelectionSettings(
            self.partitions, margin_us=self.margin_us, cache_bytes=self.cache_bytes, admission=self.admission
        )
        joiner = JoinerSettings(partitions=self.partitions, window_us=60_000_000, early_us=5_000_000)
        operators: dict[str, Callable[[], Operator]] = {
            "selection": lambda: Selection(CODEC, selection),
            "joiner": lambda: Joiner(CODEC, joiner),
            "learner": lambda: Learner(CODEC, *KEPT),
        }
        about = {
            "selection": about_selection(selection),
            "joiner": about_joiner(joiner),
            "learner": about_learner(*KEPT),
        }
        packing: dict[str, Packing] = {}
        if self.packed is not None:
            packing = dict.fromkeys(operators, Packing(PACKED, self.packed))
            over = over_columns(operators) if self.columns else {}
            operators = {name: partial(_whole, make) for name, make in operators.items()} | over
        if self.is_taped:
            operators = {name: partial(taped, make, name, about[name]) for name, make in operators.items()}
        operators |= {worker_role(name): self._worker(name) for name in self.models}
        topology = build(self.models, self.partitions, dict.fromkeys(self.models, self.model_partitions))
        services = {name: served(answer, load=lambda _: (None, self.load_us)) for name, answer in self.models.items()}
        self.driver = Driver(topology, operators, self.faults, services, features=self.features, packing=packing)
        self.configure(self.application)
        for name in self.models:
            self.driver.produce(topics.MODELS, 0, CODEC.encode(self._version(name)), name.encode())
        self.driver.run(0)

    def _version(self, name: str) -> Model:
        return replace(version(name), partitions=self.model_partitions)

    def _worker(self, name: str) -> Callable[[], Operator]:
        if self.has_workers:
            return lambda: ModelWorker(CODEC, self._version(name), "w", WorkerSettings(self.partitions))
        return lambda: ScriptedModel(name, self.models[name])

    def configure(self, application: Application) -> None:
        """Publish the application."""
        self.driver.produce(topics.APPLICATIONS, 0, CODEC.encode(application), application.name.encode())

    def query(self, query_id: str | None = None, **changes: object) -> str:
        """Send a query now; fields of `Query` may be changed."""
        self.sent += 1
        query_id = query_id or f"q{self.sent}"
        fields: dict[str, object] = {
            "application": self.application.name,
            "input": row(),
            "sent_us": self.driver.now_us,
        }
        query = Query(query_id, **(fields | changes))  # type: ignore[arg-type]
        self.driver.produce(topics.QUERIES, 0, CODEC.encode(query), query_id.encode())
        return query_id

    def know(self, source: str, key: str, *values: float) -> None:
        """Write the features of a key to their topic; without any, that there are none."""
        value = CODEC.encode(Features(values)) if values else None
        self.driver.produce(topics.FEATURES, 0, value, topics.feature_key(source, key).encode())

    def feedback(
        self, query_id: str, label: Value | None = None, loss: float | None = None, weight: float | None = None
    ) -> None:
        """Send feedback now."""
        feedback = Feedback(query_id, label, loss, self.driver.now_us, weight)
        self.driver.produce(topics.FEEDBACK, 0, CODEC.encode(feedback), query_id.encode())

    def predictions(self) -> list[Prediction]:
        """Return every prediction so far."""
        return [CODEC.decode(Prediction, record.value) for record in self.driver.read(topics.PREDICTIONS)]

    def outputs(self) -> list[ModelPredictions]:
        """Return every batch of every model so far."""
        return [CODEC.decode(ModelPredictions, record.value) for record in self.driver.read(topics.MODEL_PREDICTIONS)]

    def answer(self, query_id: str) -> Prediction:
        """Return the only prediction of a query."""
        (found,) = [prediction for prediction in self.predictions() if prediction.query_id == query_id]
        return found

    def observations(self) -> list[tuple[int, Observation]]:
        """Return the log with its timestamps."""
        log = [(r.timestamp_us, CODEC.decode(Observations, r.value)) for r in self.driver.read(topics.OBSERVATIONS)]
        return [(timestamp_us, seen) for timestamp_us, several in log for seen in several.items]

    def dead(self, topic: str) -> list[tuple[str, bytes | None]]:
        """Return the dead letters of a topic: cause and original bytes."""
        records = self.driver.read(topics.dead_letters(topic))
        return [(dict(record.headers)["skysail.error.cause"].decode(), record.value) for record in records]


def _whole(make: Callable[[], Operator]) -> Operator:
    return cast("Operator", WholeKernel(make()))


def taped(make: Callable[[], Operator], name: str, about: Mapping[str, Any]) -> Operator:
    """Return an operator that writes down its calls."""
    return Taped(make(), CODEC, name, about)


def over_columns(operators: Mapping[str, Callable[[], Operator]]) -> dict[str, Callable[[], Operator]]:
    """Return joiner and learner over columns, before those that are given."""
    try:
        from streams.columns.join import columns_for_joiner
        from streams.columns.learn import columns_for_learner
    except ImportError:  # no compiler when Skysail was installed
        return {}
    return {
        "joiner": lambda: _made(columns_for_joiner(cast("Joiner", operators["joiner"]()), CODEC, records_of)),
        "learner": lambda: _made(columns_for_learner(cast("Learner", operators["learner"]()), CODEC, records_of)),
    }


def _made(operator: Operator | None) -> Operator:
    assert operator is not None
    return operator


def digits(**changes: object) -> Application:
    """Make the application under test; fields may be changed."""
    fields: dict[str, object] = {"models": ("good", "bad"), "policy": "exp3", "default_output": -1}
    return Application("digits", **(fields | changes))  # type: ignore[arg-type]


__all__ = [
    "CODEC",
    "START_US",
    "Loop",
    "ScriptedModel",
    "Sure",
    "digits",
    "model_predictions",
    "row",
    "served",
    "version",
]
