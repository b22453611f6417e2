"""How sure an answer of one model is, on real services: learnt from feedback, and a fold of the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.calibration import calibrated
from schemas import topics
from schemas.records import Observations
from streams.operators.contract import StateKey
from streams.operators.learn.fold import fold
from streams.runtime.stores.redis import RedisSettings, RedisStore
from tests.deployments import PATIENT_MS, Toy, deployed

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from schemas.records import Observation, PolicyState
    from tests.deployments import Deployed

BOAST = Toy("tests.toys:boast", np.ones((2, 1), np.float32), output="scores")
ODD = {"models": ["boast"], "policy": "single", "slo_ms": PATIENT_MS}
WAIT_S = 60.0


async def stored(there: Deployed, url: str, version: int) -> PolicyState:
    """Wait until so many observations are in the stored state, and return it."""
    store = RedisStore(RedisSettings(url, there.settings.prefix), there.codec)
    key, end = StateKey(0, "odd"), asyncio.get_running_loop().time() + WAIT_S
    while (state := (await store.read([key])).states[key]) is None or state.version < version:
        assert asyncio.get_running_loop().time() < end, f"{version} observations are not in {state}"
        await asyncio.sleep(0.05)
    await store.close()
    return state


def log(there: Deployed) -> list[tuple[int, Observation]]:
    """Return the observations so far, with their records' timestamps."""
    records = there.watch.records[topics.OBSERVATIONS]
    several = [(record.timestamp_us, there.codec.decode(Observations, record.value)) for record in records]
    return [(timestamp_us, seen) for timestamp_us, its in several for seen in its.items]


async def test_a_model_that_claims_too_much_is_believed_less_after_feedback(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """It says 0.99 of each answer, and three of four are right; the state is the fold of the log."""
    async with deployed(kafka, redis_server.url, prefix, tmp_path, {"boast": BOAST}, {"odd": ODD}, partitions=1) as at:
        for number in range(40):
            answer = await at.client.predict("odd", [1.0])
            if not number:
                assert answer.confidence == pytest.approx(0.99, abs=1e-6)
            await at.client.feedback(answer, label=1 if number % 4 else 0)
        state = await stored(at, redis_server.url, 40)
        end = asyncio.get_running_loop().time() + WAIT_S
        told = calibrated(state.confidences, 0, 0.99)
        while (answer := await at.client.predict("odd", [1.0])).confidence != pytest.approx(told, abs=1e-4):
            assert asyncio.get_running_loop().time() < end, f"{answer.confidence}, not {told} of the stored state"
        await at.watch.until(lambda: len(log(at)) >= 40, "observations are seen")
        observations = log(at)
    assert 0.7 < told < 0.88
    assert state == fold(observations, 1_380_000_000)["odd"]
    assert [seen.confidence for _, seen in observations] == [pytest.approx(0.99, abs=1e-6)] * 40
