"""Whatever an application may have, a replay comes out as it was: decisions, answers, log and states, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas import topics
from schemas.records import Feedback, Metric, MetricFeedback, Tensor
from schemas.told import as_places
from streams.testing import Crash
from tests.loops import CODEC, Loop, digits, version
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of
from tests.unit.streams.operators.test_answering import computed, rated
from tests.unit.streams.operators.test_two_speed import cold, served

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.records import Application

MODELS: dict[str, Callable[[Any], Any]] = {"good": lambda _: 7, "bad": lambda _: 3, "items": computed, "cold": cold}
ROWS = Tensor.of(np.array([[0.0, 1.0], [1.0, 0.0], [2.0, -1.0]]))
EARNED = {"features": 2.0, "low": -5.0, "high": 5.0}
TWO_SPEED = {"features": 2.0, "items": 3.0, "ridge": 0.5, "together": 2.0}
SOLD = Metric("sold", is_higher_better=True, most=10.0, absent=0.0)
TOOK = Metric("took", "latency", most=1_000.0)
BY_PERSON = {"assign": "context", "sticky_s": 5.0, "salt": "summer"}
GROUPS = {"policy": "context_tree", "parameters": {"features": 2.0}}
RANKED = {"parameters": EARNED, "examination": (1.0, 0.5), "shuffle": 0.5, "per_context": False, "span": 10.0}

APPLICATIONS: dict[str, Application] = {
    "a tree of contexts": digits(**GROUPS),
    "a tree for each context": digits(**GROUPS, per_context=True),
    "features that go together": served(parameters=TWO_SPEED),
    "rankings that are drawn": rated(**RANKED),
    "draws by person": digits(policy="thompson", **BY_PERSON),
    "draws by person with a state for each": digits(policy="exp3", per_context=True, **BY_PERSON),
    "draws by episode": digits(policy="thompson", assign="episode"),
    "explored for a person": rated(**RANKED, **BY_PERSON),
    "a holdout": digits(policy="thompson", holdout=0.3),
    "a holdout beside draws and metrics": digits(policy="exp4", holdout=0.3, **BY_PERSON, metrics=(SOLD, TOOK)),
    "metrics": digits(policy="thompson", metrics=(SOLD, TOOK)),
}


def played(application: Application, faults: tuple[Crash, ...]) -> Loop:
    """Ask of six people, with a canary, and tell what came of it."""
    models = {name: MODELS[name] for name in application.models}
    loop = Loop(models, digits(**{**_fields(application), "window_s": 20.0}), faults, has_workers=True)
    first = application.models[0]
    loop.driver.produce(topics.MODELS, 0, CODEC.encode(version(first, "2")), f"{first}@2".encode())
    loop.driver.produce(topics.MODELS, 0, CODEC.encode(version(first, "1", {"2": 0.4})), first.encode())
    for number in range(40):
        features = (float(number % 2) or -1.0, float(number % 3) - 1.0)
        ranks = {"candidates": ROWS, "top": 2} if application.policy == "ridge" else {"features": features}
        asked = loop.query(context=f"user-{number % 6}", episode=f"visit-{number % 6}-{number // 12}", **ranks)
        loop.driver.run(0.15)
        loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(_told(loop, asked, number)), asked.encode())
        if application.metrics and number % 3:
            sold = MetricFeedback(asked, "sold", float(number % 7), loop.driver.now_us)
            loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(sold), asked.encode())
        loop.driver.run(0.15)
    loop.driver.run(60)
    return loop


def _fields(application: Application) -> dict[str, Any]:
    return {name: getattr(application, name) for name in application.__slots__ if name != "name"}


def _told(loop: Loop, query_id: str, number: int) -> Feedback:
    now_us, policy = loop.driver.now_us, loop.application.policy
    if policy == "ridge":
        places = [{"position": 0, "label": float(number % 5)}, {"position": 1, "label": float(number % 3)}]
        return Feedback(query_id, sent_us=now_us, places=as_places(places))
    if policy == "two_speed":
        return Feedback(query_id, None, float(number % 4 == 0), now_us)
    return Feedback(query_id, (7, 3)[number % 3 == 0], None, now_us)


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("name", APPLICATIONS)
def test_it_comes_out_as_it_was(name: str, *, crashes: bool) -> None:
    """With a canary, and with crashes of the roles that decide and learn; without these every record is checked."""
    faults = (Crash(3_010_000, "selection"), Crash(5_000_000, "joiner"), Crash(7_000_000, "learner"))
    loop = played(APPLICATIONS[name], faults if crashes else ())
    report = replayed(trace_of(loop.driver))
    report.compare_states(loop.driver.store.states, CODEC)
    assert report.is_equal, report.differences
    assert {*report.unchecked} <= ({"call_missing"} if crashes else set())
    if not crashes:
        written = [*loop.driver.read(topics.PREDICTIONS), *loop.driver.read(topics.OBSERVATIONS)]
        assert report.checked["predictions"] + report.checked["observations"] == len(written)
        assert len(loop.predictions()) == 40
        assert len(loop.observations()) > 30
    assert report.checked["states"] >= len(loop.driver.store.states) > 0
