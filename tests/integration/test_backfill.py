"""A backfill on real services: when the command has ended, the states have what it taught, each label once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config import configuration
from deploy.state.backfill import backfill
from schemas.records import Status
from streams.operators.contract import StateKey
from streams.runtime.stores.redis import RedisSettings, RedisStore
from tests.deployments import PATIENT_MS, Toy, deployed

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from schemas.records import PolicyState
    from tests.deployments import Deployed

SAMPLE = np.ones((2, 1), np.float32)
MODELS = {name: Toy(f"tests.toys:{name}", SAMPLE, "scores", ("feature",)) for name in ("nought", "itself")}
RATINGS = {
    "models": ["nought"],
    "policy": "ridge",
    "parameters": {"features": 1, "low": 1, "high": 5},
    "per_context": True,
    "loss": "squared",
    "span": 4,
    "slo_ms": PATIENT_MS,
    "default_output": 3.0,
}
ROWS = (-2.0, 2.0, -1.0, 1.0) * 6
APPLIED = "applied_total{application=ratings}"


async def rated(there: Deployed) -> None:
    """Ask for ratings that follow from the input, and tell them; the model that is asked computes nothing of use."""
    for row in ROWS:
        answer = await there.client.predict("ratings", [row], context="ann")
        assert answer.status is Status.COMPLETE
        await there.client.feedback(answer, label=3.0 + row)
    await there.watch.until(lambda: there.watch.counter("learner", APPLIED) == len(ROWS), "all is learnt")


async def stored(there: Deployed, url: str) -> PolicyState:
    """Return the user's state as it is now."""
    store = RedisStore(RedisSettings(url, there.settings.prefix), there.codec)
    state = (await store.read([StateKey(0, "ratings/ann")])).states[StateKey(0, "ratings/ann")]
    await store.close()
    assert state is not None
    return state


async def command(*arguments: str) -> Any:
    """Run a command that prints JSON beside this loop."""
    done = await asyncio.to_thread(CliRunner(env=dict(os.environ)).invoke, skysail, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


async def test_when_the_command_has_ended_the_states_have_what_it_taught(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Once, also when it is run twice; then the new model answers alone, from what was learnt before it came."""
    async with deployed(
        kafka, redis_server.url, prefix, tmp_path, MODELS, {"ratings": RATINGS}, partitions=1, processes="shared"
    ) as there:
        await rated(there)
        config = ("--json", "--config", str(configuration.write(there.settings, tmp_path / "skysail.yaml")))
        await command("app", "set", "ratings", "models=nought,itself", *config)
        for taught in (len(ROWS), 0):
            found = await command("app", "backfill", "ratings", str(there.settings.models["itself"]), *config)
            assert found == {"taught": taught, "without_input": 0, "left": 0, "unlearnt": 0}
            assert (await stored(there, redis_server.url)).version == 2 * len(ROWS)
        await command("app", "set", "ratings", "models=itself", *config)
        async with asyncio.timeout(60):
            while True:
                answer = await there.client.predict("ratings", [2.0], context="ann")
                assert answer.decision is not None
                if answer.decision.arms == ("itself",) and answer.decision.state_version == 2 * len(ROWS):
                    break
        assert answer.answer == pytest.approx(5.0, abs=0.2)


async def test_a_learner_that_stands_still_is_not_waited_for_for_ever(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """What it has still to learn is said; it learns that when it goes on, and another run waits for it."""
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, {"ratings": RATINGS}, partitions=1) as there:
        await rated(there)
        config = ("--json", "--config", str(configuration.write(there.settings, tmp_path / "skysail.yaml")))
        await command("app", "set", "ratings", "models=nought,itself", *config)
        asked = there.settings, there.codec, "ratings", there.settings.models["itself"]
        await there.watch.all_committed("learner", "observations")
        there.system.kill("learner", signal.SIGSTOP)
        told: list[int] = []
        found = await asyncio.to_thread(backfill, *asked, told.append, 1.0)
        assert (found.taught, found.unlearnt, {*told}) == (len(ROWS), len(ROWS), {len(ROWS)})
        there.system.kill("learner", signal.SIGCONT)
        again = await asyncio.to_thread(backfill, *asked)
        assert (again.taught, again.unlearnt) == (0, 0)
        assert (await stored(there, redis_server.url)).version == 2 * len(ROWS)
