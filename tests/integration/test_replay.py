"""A deployment that records itself, and is asked again what it was asked."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from deploy.config import configuration
from deploy.config.settings import ModelsSection
from schemas.records import Feedback, Observations, Query
from streams.player.player import PLAYED
from streams.trace import manifest as manifests
from streams.trace.manifest import TraceError
from streams.trace.reader import Trace
from tests.deployments import PATIENT_MS, ROLES, Toy, deployed

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

ROWS = np.array([[1.0, 2.0], [3.0, 5.0]], dtype=np.float32)
APPLICATION = {"models": ["parity"], "policy": "single", "slo_ms": PATIENT_MS, "default_output": -1}
ASKED = 20


def counted(folder: Path, topic: str) -> int:
    """Return how many records a trace holds of a topic by now."""
    try:
        topics = manifests.read(folder).topics
    except TraceError:
        return 0
    return topics[topic].count if topic in topics else 0


async def test_what_the_role_has_recorded_is_asked_again(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """All answers and all feedback once more, under new ids; the role's figures are in its reports."""
    folder = tmp_path / "trace"
    models, more = {"parity": Toy("tests.toys:parity", ROWS)}, {"record": {"folder": str(folder)}}
    async with deployed(
        kafka, redis_server.url, prefix, tmp_path, models, {"sums": APPLICATION}, roles=(*ROLES, "record"), **more
    ) as there:
        for number in range(ASKED):
            prediction = await there.client.predict("sums", [number, 1], context=f"user-{number % 3}")
            await there.client.feedback(prediction, label=(number + 1) % 2)
        await there.watch.until(lambda: counted(folder, "observations"), "observations are recorded")
        await there.watch.until(lambda: all(counted(folder, name) >= ASKED for name in PLAYED), "all is recorded")
        report = await there.watch.until(lambda: there.watch.reports().get("record"), "the role reports")
        assert {"lag", "partitions", "trace_bytes"} <= report.gauges.keys()
        await there.watch.until(
            lambda: there.watch.reports()["record"].counters.get("recorded_total{topic=queries}", 0) >= ASKED
        )
        config = configuration.write(
            there.settings.model_copy(update={"deployed": ModelsSection()}), tmp_path / "skysail.yaml"
        )
        score = await replayed(folder, "--config", str(config), "--new-ids", "--speed", "5")
        assert (score["sent"], score["answered"], score["doubled"], score["lost"]) == (ASKED, ASKED, 0, 0)
        assert score["feedback"] == ASKED
        await there.watch.until(
            lambda: sum(len(one.items) for one in there.watch.decoded(Observations, "observations")) == 2 * ASKED,
            "the feedback of both is joined",
        )
        first, again = (
            [(query.input, query.context) for query in there.watch.decoded(Query, "queries")][begin : begin + ASKED]
            for begin in (0, ASKED)
        )
        assert sorted(map(str, first)) == sorted(map(str, again))
        labels = [feedback.label for feedback in there.watch.decoded(Feedback, "feedback")]
        assert sorted(map(str, labels[:ASKED])) == sorted(map(str, labels[ASKED:]))
    trace = Trace.open(folder)
    assert counted(folder, "queries") == len([*trace.records("queries")]) == 2 * ASKED


async def replayed(folder: Path, *options: str) -> dict[str, float]:
    """Run `skysail replay` to its end; return what it printed."""
    argv = [sys.executable, "-m", "deploy.cli", "replay", str(folder), "--json", *options]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    out, fault = await process.communicate()
    assert process.returncode == 0, fault.decode()
    score: dict[str, float] = json.loads(out)
    return score
