"""A selection kernel whose one model is coded, and the records to and from it as short words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Model, ModelPredictions, ModelQueries, Outcome, Prediction, Query, Tensor
from streams.operators.contract import Effects, Emit, FetchStates, Record
from streams.operators.selection.kernel import Selection, SelectionSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

CODEC = Codec()
NOW = 1_700_000_000_000_000
SLO_MS = 1_000.0
WEIGHTS = np.array([[1.0, 0.0, -2.0], [0.5, 3.0, 1.0]], dtype=np.float32)  # (2, 3)
INTERCEPT = np.array([0.25, -1.0, 0.5], dtype=np.float32)


def scores(row: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what the model answers to a row of two numbers."""
    return np.asarray(row, np.float32) @ WEIGHTS + INTERCEPT


def models(k: int = 2, right: tuple[float, ...] = (), **changes: Any) -> tuple[Model, Model]:
    """Make the records of the model and of its parity model; fields of the former may be changed."""
    fields: dict[str, Any] = {"partitions": 4, "classes": ("a", "b", "c"), "shape": (2,)} | changes
    model = Model("net", "1", "torch", "", "", "scores", "float32", **fields)
    parity = Model(
        "net-parity", "1", "torch", "", "", "scores", "float32", (2,), partitions=4, parity_of="net@1", parity_k=k,
        parity_right=right,
    )  # fmt: skip
    return model, parity


@dataclass(slots=True)
class Asked:
    """A record to a model."""

    topic: str
    partition: int
    batch: ModelQueries

    @property
    def query_id(self) -> str:
        """The id of its only row."""
        (found,) = self.batch.query_ids
        return found


@dataclass
class Coded:
    """Selection with an application `digits` that asks the model `net`, whose parity model is `net-parity`."""

    k: int = 2
    parity: str = "net-parity"
    names: tuple[str, ...] = ("net",)
    policy: str = "single"
    hedge: float = 0.0
    changes: dict[str, Any] = field(default_factory=dict)
    now_us: int = NOW
    asked: list[Asked] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    shadows: list[ModelPredictions] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        """Publish the configuration, and let the policy's state be known."""
        self.kernel = Selection(CODEC, SelectionSettings(partitions=4, margin_us=0))
        self.kernel.on_partitions(dict.fromkeys(range(4), 0))
        application = Application(
            "digits", self.names, self.policy, default_output="?", slo_ms=SLO_MS, parity=self.parity, hedge=self.hedge
        )
        self.publish(topics.APPLICATIONS, "digits", application)
        for model in models(self.k, **self.changes):
            self.publish(topics.MODELS, model.name, model)

    def publish(self, topic: str, name: str, value: object) -> None:
        """Publish a record of the configuration."""
        record = Record(topic, 0, 0, self.now_us, name.encode(), CODEC.encode(value))
        self.take(self.kernel.on_records([record], self.now_us))

    def ask(self, query_id: str, *numbers: float, partition: int = 0, **changes: Any) -> None:
        """Send a query."""
        row = Tensor.of(np.array(numbers, dtype=np.float32))
        value = CODEC.encode(Query(query_id, "digits", row, None, self.now_us, **changes))
        record = Record(topics.QUERIES, partition, self.sent, self.now_us, None, value)
        self.sent += 1
        self.take(self.kernel.on_records([record], self.now_us))

    def answer(
        self, model: str, query_id: str, numbers: Any, partition: int = 0, outcome: Outcome = Outcome.OK, at: str = "1"
    ) -> None:
        """Let a model answer a row with these scores."""
        found = np.asarray(numbers, np.float32)[np.newaxis]
        batch = ModelPredictions(
            model, at, "w", (query_id,), (outcome,), ("abc"[int(found.argmax())],), Tensor.of(found), (0,), 1, 1, 1, 0
        )
        record = Record(topics.MODEL_PREDICTIONS, partition, 0, self.now_us, None, CODEC.encode(batch))
        self.take(self.kernel.on_records([record], self.now_us))

    def wait(self, ms: float) -> None:
        """Let time pass, with the wakes that are asked for."""
        until_us = self.now_us + int(ms * 1e3)
        while (due_us := self.kernel.next_deadline()) is not None and due_us <= until_us:
            self.now_us = max(self.now_us, due_us)
            self.take(self.kernel.on_timer(self.now_us))
        self.now_us = until_us

    def take(self, effects: Effects) -> None:
        """Note what is asked and answered."""
        for effect in effects:
            if isinstance(effect, FetchStates):
                self.take(self.kernel.on_states(dict.fromkeys(effect.keys), self.now_us))
            elif isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS:
                self.predictions.append(CODEC.decode(Prediction, effect.value))
            elif isinstance(effect, Emit) and effect.topic == topics.SHADOWS:
                self.shadows.append(CODEC.decode(ModelPredictions, effect.value))
            elif isinstance(effect, Emit):
                batch = CODEC.decode(ModelQueries, effect.value)
                self.asked.append(Asked(effect.topic, effect.partition, batch))

    def of(self, model: str) -> list[Asked]:
        """Return what was asked of a model."""
        return [one for one in self.asked if one.topic == topics.model_queries(model)]

    @property
    def sums(self) -> list[Asked]:
        """What the parity model was asked."""
        return self.of("net-parity")

    def counted(self, name: str) -> float:
        """Return a counter or gauge of the role; 0 if there is none."""
        return self.kernel.statistics().get(name, 0.0)
