"""Selection's own kernel and the workers of models in virtual time, on the broker-free driver.

    query ─leg─▶ Selection ─leg─▶ the workers of a model ─ busy for a while ─▶ leg ─▶ Selection ─leg─▶ answered

What workers do with rows is a scenario's: `Fleet.take`. Nothing else that the machine does counts.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas import topics
from schemas.records import ModelPredictions, ModelQueries, Outcome, Prediction, Tensor
from streams.operators.contract import Emit, Operator, Predict, Predicted
from streams.testing import Driver, ModelBehaviour, Pace
from streams.topology import build, worker_role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.codec import Codec
    from schemas.records import Application, Model, Query
    from streams.operators.contract import Effects, Ran, Record
    from streams.operators.selection.kernel import Selection

LEG_US: Final = 1_200  # the median leg over one broker, as measured (`selection.kernel`)
_CONFIGURED: Final = frozenset({topics.MODELS, topics.APPLICATIONS})
_MORE_S: Final = 5.0  # after the objective of the last query: all is over by then
_NOTHING: Final = Predicted((), np.zeros(0, np.int64))


class Fleet(Operator):
    """The workers of one model, each with a partition of its topic: one role of the driver.

    Attributes:
        partitions: as many as there are workers.
        behaviour: says how long they are busy.
    """

    def __init__(self, codec: Codec, model: str, workers: int) -> None:
        self._codec, self._model = codec, model
        self._numbers = count()
        self._busy: dict[int, tuple[int, Callable[[int], Effects]]] = {}
        self.partitions = workers
        self.behaviour = ModelBehaviour(lambda batch: (_NOTHING, self._busy[batch.batch_id][0]))

    def take(self, place: int, batch: ModelQueries, now_us: int) -> Effects:
        """Do something about rows that have come to a worker."""
        raise NotImplementedError

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Let each worker take its rows."""
        asked = (record for record in records if record.topic not in _CONFIGURED)
        return [
            effect
            for record in asked
            for effect in self.take(record.partition, self._codec.decode(ModelQueries, record.value), now_us)
        ]

    def on_predicted(self, batch_id: int, _ran: Ran, now_us: int) -> Effects:
        """Go on after what kept a worker busy."""
        return self._busy.pop(batch_id)[1](now_us)

    def run(self, took_us: int, then: Callable[[int], Effects]) -> Predict:
        """Keep a worker busy for so long; `then` says what comes of it."""
        number = next(self._numbers)
        self._busy[number] = took_us, then
        return Predict(number, self._model, "1", (), took_us)

    def answer(
        self,
        ids: Sequence[str],
        answers: Sequence[str] | Tensor,
        outcome: Outcome = Outcome.OK,
        scores: NDArray[np.generic] | None = None,
    ) -> Emit:
        """Return the answer to rows."""
        rows, told = len(ids), None if scores is None else Tensor.of(scores)
        said = answers if isinstance(answers, Tensor) else tuple(answers)
        batch = ModelPredictions(
            self._model, "1", "w", tuple(ids), (outcome,) * rows, said, told, (0,) * rows, 1, rows, rows, 0
        )
        return Emit(topics.MODEL_PREDICTIONS, 0, None, self._codec.encode(batch))


class Scene:
    """Selection and fleets, and who asks.

    Args:
        codec: of all records.
        selection: makes the kernel.
        fleets: the workers, by model.
        answered: is called with each answer, and when its client has it (us).
        leg_us: how long each record is on its way.
    """

    def __init__(
        self,
        codec: Codec,
        selection: Callable[[], Selection],
        fleets: Mapping[str, Fleet],
        answered: Callable[[Prediction, int], None],
        leg_us: int = LEG_US,
    ) -> None:
        self._codec, self._leg_us = codec, leg_us
        operators: dict[str, Callable[[], Operator]] = {worker_role(name): _same(its) for name, its in fleets.items()}
        made = build(fleets, 1, {name: fleet.partitions for name, fleet in fleets.items()})
        # A record counts from when it has come: the way back is what selection takes for usual, and is not measured.
        dated = {name: replace(topic, timestamps="LogAppendTime") for name, topic in made.topics.items()}
        self._driver = Driver(
            replace(made, topics=dated),
            {"selection": selection, **operators},
            models={name: fleet.behaviour for name, fleet in fleets.items()},
            pace=Pace(keeps=False),
            hears={topics.PREDICTIONS: lambda it: answered(codec.decode(Prediction, it.value), it.timestamp_us)},
            leg=self._leg if leg_us else None,
        )

    def _leg(self, topic: str, _sent_us: int) -> int:
        return 0 if topic in _CONFIGURED else self._leg_us + (topic == topics.QUERIES)

    def configure(self, application: Application, models: Sequence[Model]) -> None:
        """Publish models, and an application that asks them."""
        for model in models:
            self._driver.produce(topics.MODELS, 0, self._codec.encode(model), model.name.encode())
        name = application.name.encode()
        self._driver.produce(topics.APPLICATIONS, 0, self._codec.encode(application), name)
        self._driver.run(0)

    def ask(self, *queries: Query) -> None:
        """Let time pass until queries are sent, and send them: before what else is sent at that time."""
        self._driver.run_until(queries[0].sent_us - bool(self._leg_us))
        for query in queries:
            self._driver.produce(topics.QUERIES, 0, self._codec.encode(query))
        self._driver.run(0)

    def end(self, slo_ms: float) -> None:
        """Let everything happen that still will."""
        self._driver.run(slo_ms / 1e3 + _MORE_S)


def _same(fleet: Fleet) -> Callable[[], Fleet]:
    return lambda: fleet
