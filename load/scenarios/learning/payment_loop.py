"""Selection, joiner and learner on payments, in virtual time: what was served, and what observations charge for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Application,
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
from streams.operators.contract import Emit, Operator, Skip
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.learn.kernel import Learner
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.testing import Driver
from streams.topology import build, worker_role
from workers.inputs.columns import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.models.fraud import Payments
    from streams.operators.contract import Effects, Record

_APPLICATION: Final = "payments"
_EVERY_S: Final = 0.01
_LATE: Final = 20  # queries between an answer and its label: 0.2 s
_CODEC: Final = Codec()


class ServedPayments(NamedTuple):
    """What came of it: each answer, and by number of the payment what was answered and charged."""

    answers: tuple[str, ...]
    charged: dict[int, tuple[str, float]]


class _Screen(Operator):
    """A worker that answers a payment, whose number is its input, at once."""

    def __init__(self, name: str, answers: Sequence[str]) -> None:
        self._name, self._answers = name, answers

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Answer a poll's rows."""
        return [effect for record in records if record.topic != topics.MODELS for effect in self._answered(record)]

    def _answered(self, record: Record) -> Effects:
        asked = _CODEC.decode(ModelQueries, record.value)
        column, count = Column(asked.inputs), len(asked.query_ids)
        rows = [column[place] for place in range(count)]
        numbers = [int(row.numpy()[0]) for row in rows if isinstance(row, Tensor)]
        said = ModelPredictions(
            self._name,
            "1",
            "w",
            asked.query_ids,
            (Outcome.OK,) * count,
            tuple([self._answers[number] for number in numbers]),
            None,
            (0,) * count,
            1_000,
            count,
            count,
            0,
        )
        value = _CODEC.encode(said)
        return [Emit(topics.MODEL_PREDICTIONS, asked.reply_partition, None, value), Skip((record.position,), "")]


def served(data: Payments, policy: str, loss: str, seed: int) -> ServedPayments:
    """Ask about every payment, and tell what was true of each.

    Args:
        data: the payments.
        policy: that chooses.
        loss: by which it learns.
        seed: of the draws.
    """
    driver, ids = _driver(data.answers), [f"{seed}-{number}" for number in range(len(data.labels))]
    application = Application(_APPLICATION, tuple(data.answers), policy, loss=loss, slo_ms=1_000.0)
    _put(driver, topics.APPLICATIONS, _APPLICATION, application)
    for name in data.answers:
        model = Model(name, "1", "function", name, name, "label", "float32", (1,), ("fraud", "ok"), partitions=1)
        _put(driver, topics.MODELS, name, model)
    driver.run(0)
    for number, name in enumerate(ids):
        row = Tensor.of(np.array([number], np.float32))
        _put(driver, topics.QUERIES, name, Query(name, _APPLICATION, row, sent_us=driver.now_us))
        if number >= _LATE:
            _tell(driver, ids, data, number - _LATE)
        driver.run(_EVERY_S)
    for number in range(max(0, len(ids) - _LATE), len(ids)):
        _tell(driver, ids, data, number)
    driver.run(1.0)
    return _read(driver, ids)


def _tell(driver: Driver, ids: Sequence[str], data: Payments, number: int) -> None:
    feedback = Feedback(ids[number], data.labels[number], None, driver.now_us)
    _put(driver, topics.FEEDBACK, ids[number], feedback)


def _put(driver: Driver, topic: str, key: str, record: object) -> None:
    driver.produce(topic, 0, _CODEC.encode(record), key.encode())


def _driver(answers: Mapping[str, Sequence[str]]) -> Driver:
    operators: dict[str, Callable[[], Operator]] = {
        "selection": lambda: Selection(_CODEC, SelectionSettings(1)),
        "joiner": lambda: Joiner(_CODEC, JoinerSettings(partitions=1)),
        "learner": lambda: Learner(_CODEC),
    }
    for name, said in answers.items():
        operators[worker_role(name)] = lambda name=name, said=said: _Screen(name, said)  # type: ignore[misc]
    return Driver(build(answers, 1, dict.fromkeys(answers, 1)), operators)


def _read(driver: Driver, ids: Sequence[str]) -> ServedPayments:
    made = [_CODEC.decode(Prediction, record.value) for record in driver.read(topics.PREDICTIONS)]
    answers = {one.query_id: str(one.answer) for one in made}
    log = [_CODEC.decode(Observations, record.value) for record in driver.read(topics.OBSERVATIONS)]
    costs = {seen.query_id: (seen.loss or 0.0) * (seen.worth or 1.0) for each in log for seen in each.items}
    charged = {number: (answers[name], costs[name]) for number, name in enumerate(ids)}
    return ServedPayments(tuple([answers[name] for name in ids]), charged)
