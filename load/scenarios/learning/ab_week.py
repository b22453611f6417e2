"""A week of an A/B test by people, with a holdout, in virtual time: selection and joiner, and what they have logged.

People ask in visits, err alike in all of them, and meet version 1 or 2 of one model, whose draws stand for a week. What
each answer cost is told a minute later, and whether it was refunded. Only the log is returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies import draw
from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Application,
    Feedback,
    Metric,
    MetricFeedback,
    Model,
    ModelPredictions,
    ModelQueries,
    Outcome,
    Query,
    Tensor,
)
from streams.operators.contract import Emit, Operator, Skip
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.testing import Driver
from streams.topology import RECORDED, build, worker_role
from workers.kernel.model.routing import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streams.operators.contract import Effects, Record

APPLICATION, MODEL, CANDIDATE, INCUMBENT = "shop", "offers", "2", "1"
SHARE: Final = 0.5
REFUNDS: Final = Metric("refunds", guardrail=0.1)
REFUNDED: Final = 0.1  # share of the answers of version 1
_WEEK_S: Final = 7 * 86_400
_LATE_S: Final = 60
_IDLE_S: Final = 10.0
_CODEC: Final = Codec()
_ROUTES: Final = Routes({CANDIDATE: SHARE}, {CANDIDATE: CANDIDATE})


class AskedOnce(NamedTuple):
    """A query of somebody: when, who, and the number that decides whether the answer is wrong."""

    at_s: float
    who: int
    drawn: float


class _Row(NamedTuple):
    query_id: str


class _Shop(Operator):
    """A worker with both versions, which answer with their numbers; rows go to them as workers route them."""

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Answer a poll's rows."""
        return [effect for record in records if record.topic != topics.MODELS for effect in self._answered(record)]

    def _answered(self, record: Record) -> Effects:
        asked = _CODEC.decode(ModelQueries, record.value)
        rows = [(0, _Row(name)) for name in asked.query_ids]
        groups = _ROUTES.named(asked.version, INCUMBENT, rows) if asked.version else _ROUTES.split(rows)
        made = [
            self._said(version or INCUMBENT, [row.query_id for _, row in its])
            for version, its in (groups or {}).items()
        ]
        place = topics.MODEL_PREDICTIONS, asked.reply_partition, None
        return [*[Emit(*place, _CODEC.encode(each)) for each in made], Skip((record.position,), "")]

    def _said(self, version: str, ids: Sequence[str]) -> ModelPredictions:
        count, answers = len(ids), Tensor.of(np.full(len(ids), int(version)))
        known = (Outcome.OK,) * count, answers, None, (0,) * count
        return ModelPredictions(MODEL, version, "w", tuple(ids), *known, 1_000, count, count, 0)


def visits(people: int, seed: int, queries: float = 4.0) -> tuple[list[float], list[AskedOnce]]:
    """Return how often each errs with version 1, and what is asked in a week, so much in a visit, in order."""
    random = np.random.default_rng(seed)
    rates, asked = (0.2 + 0.8 * random.beta(0.6, 0.9, people)).tolist(), list[AskedOnce]()
    for who in range(people):
        for _ in range(1 + random.poisson(0.5)):
            begin_s = random.uniform(0, _WEEK_S - 3_600)
            times = begin_s + random.uniform(0, 1_800, 1 + random.geometric(1.0 / queries))
            asked += [AskedOnce(float(at_s), who, float(random.random())) for at_s in times]
    return rates, sorted(asked)


def logged(people: int, seed: int, better: float, holdout: float, dearer: float = 0.0) -> list[Record]:
    """Play the week; return all records of the topics that are recorded.

    Args:
        people: how many.
        seed: of everything.
        better: how much seldomer version 2 errs.
        holdout: share of them that is held out.
        dearer: how much oftener answers of version 2 are refunded.
    """
    driver, (rates, asked) = _driver(holdout), visits(people, seed)
    told, begin_us = list[tuple[float, str, float, float]](), driver.now_us
    for number, (at_s, who, drawn) in enumerate(asked):
        while told and told[0][0] <= at_s:
            _tell(driver, begin_us, *told.pop(0))
        _until(driver, begin_us, at_s)
        name, context = f"{seed}-{number}", f"user-{seed}-{who}"
        row = Tensor.of(np.zeros(1, np.float32))
        _put(driver, topics.QUERIES, context, Query(name, APPLICATION, row, context, driver.now_us))
        driver.run(0.01)
        version = _CODEC.decode(ModelPredictions, driver.read(topics.MODEL_PREDICTIONS)[-1].value).version
        is_new = version == CANDIDATE
        refund = float(draw.uniform(name, "refund") < REFUNDED + dearer * is_new)
        told.append((at_s + _LATE_S, name, float(drawn < rates[who] - better * is_new), refund))
    for each in told:
        _tell(driver, begin_us, *each)
    driver.run(2.0)
    return [record for topic in RECORDED for record in driver.read(topic)]


def _until(driver: Driver, begin_us: int, at_s: float) -> None:
    """Let time pass; while nobody asks, no timer has anything to do, so all of it but the last second is skipped."""
    left_s = max(0.0, at_s - (driver.now_us - begin_us) / 1e6)
    if left_s > _IDLE_S:
        driver.now_us += int((left_s - 1.0) * 1e6)
        left_s = 1.0
    driver.run(left_s)


def _tell(driver: Driver, begin_us: int, at_s: float, name: str, loss: float, refund: float) -> None:
    _until(driver, begin_us, at_s)
    _put(driver, topics.FEEDBACK, name, Feedback(name, None, loss, driver.now_us))
    _put(driver, topics.FEEDBACK, name, MetricFeedback(name, REFUNDS.name, refund, driver.now_us))


def _put(driver: Driver, topic: str, key: str, record: object) -> None:
    driver.produce(topic, 0, _CODEC.encode(record), key.encode())


def _driver(holdout: float) -> Driver:
    """Return a deployment of one application, whose policy learns nothing, so that no learner is needed."""
    operators: dict[str, Callable[[], Operator]] = {
        "selection": lambda: Selection(_CODEC, SelectionSettings(1)),
        "joiner": lambda: Joiner(_CODEC, JoinerSettings(partitions=1)),
        worker_role(MODEL): _Shop,
    }
    driver = Driver(build([MODEL], 1, {MODEL: 1}), operators)
    by_person = {"assign": "context", "sticky_s": float(_WEEK_S), "holdout": holdout, "metrics": (REFUNDS,)}
    application = Application(APPLICATION, (MODEL,), "single", loss="given", slo_ms=1_000.0, **by_person)  # type: ignore[arg-type]
    serving = Model(
        MODEL, INCUMBENT, "function", MODEL, MODEL, "label", "float32", (1,), shares={CANDIDATE: SHARE}, partitions=1
    )
    _put(driver, topics.APPLICATIONS, APPLICATION, application)
    _put(driver, topics.MODELS, MODEL, serving)
    driver.run(1.0)
    return driver
