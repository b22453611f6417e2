"""Sets of labels on real services: promised, learnt over a learner's death, and made again from the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from schemas import topics
from schemas.records import Observations
from streams.operators.contract import StateKey
from streams.operators.label_sets import holds
from streams.operators.learn.fold import fold
from streams.runtime.stores.redis import RedisSettings, RedisStore
from tests.deployments import PATIENT_MS, Toy, deployed

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from schemas.records import LabelSet, Observation, PolicyState, Prediction
    from tests.deployments import Deployed

PARITY = Toy("tests.toys:parity", np.ones((2, 1), np.float32))
CONTRARY = Toy("tests.toys:contrary", np.ones((2, 1), np.float32))
COVERAGE = 0.6
WAIT_S = 60.0
ODD = {"models": ["parity", "contrary"], "policy": "exp4", "coverage": COVERAGE, "slo_ms": PATIENT_MS}


async def asked(there: Deployed, count: int) -> list[LabelSet]:
    """Ask about odd numbers, each with feedback on the one before the next; the contrary model is always wrong."""
    made = []
    for _ in range(count):
        answer = await there.client.predict("odd", [1.0])
        await there.client.feedback(answer, label=1)
        assert answer.label_set is not None
        made.append(answer.label_set)
    return made


def log(there: Deployed) -> list[tuple[int, Observation]]:
    """Return the observations so far, with their records' timestamps."""
    records = there.watch.records[topics.OBSERVATIONS]
    several = [(record.timestamp_us, there.codec.decode(Observations, record.value)) for record in records]
    return [(timestamp_us, seen) for timestamp_us, its in several for seen in its.items]


async def stored(there: Deployed, url: str, version: int) -> PolicyState:
    """Wait until so many observations are in the stored state, and return it."""
    store = RedisStore(RedisSettings(url, there.settings.prefix), there.codec)
    key = StateKey(0, "odd")
    end = asyncio.get_running_loop().time() + WAIT_S
    while (state := (await store.read([key])).states[key]) is None or state.version < version:
        assert asyncio.get_running_loop().time() < end, f"{version} observations are not in {state}"
        await asyncio.sleep(0.05)
    await store.close()
    return state


async def decided_with(there: Deployed, version: int) -> Prediction:
    """Ask until selection has read a state of so many observations; return that answer."""
    end = asyncio.get_running_loop().time() + WAIT_S
    while (answer := await there.client.predict("odd", [1.0])).decision.state_version < version:
        assert asyncio.get_running_loop().time() < end, answer
    return answer


async def test_a_promise_is_learnt_to_be_kept_and_survives_a_killed_learner(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """At first any label may be true, later only what the better model says; the state is the fold of the log."""
    models = {"parity": PARITY, "contrary": CONTRARY}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, models, {"odd": ODD}, partitions=1) as there:
        first = await asked(there, 20)
        await stored(there, redis_server.url, 20)
        there.system.kill("learner")
        await asked(there, 10)
        state = await stored(there, redis_server.url, 30)
        last = await decided_with(there, 30)
        judged = "label_sets_judged_total{application=odd,outcome=held}"
        await there.watch.until(lambda: there.watch.counter("learner", judged) > 0, "sets are judged")
        observations = log(there)
    assert first[0].is_all
    assert first[0].coverage == COVERAGE
    assert state == fold(observations, 1_380_000_000)["odd"]
    assert [seen.label_set for _, seen in observations][: len(first)] == first
    assert last.label_set is not None
    assert not last.label_set.is_all
    assert holds(last.label_set, 1)
