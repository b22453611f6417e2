"""A graph on real Kafka, exactly as docs/graphs.md shows it; then with a crash in the middle."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml

from schemas import topics
from schemas.records import Observations, Outcome, Status
from tests.deployments import ROLES, deployed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from schemas.records import Prediction

PAGE = (Path(__file__).parents[2] / "docs" / "graphs.md").read_text("utf-8")
PATIENT_MS = 60_000  # a role that was killed is back, on any machine


def blocks(kind: str) -> list[str]:
    """Return the page's blocks of a kind."""
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def applications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Write and package what the page has, in a folder of its own; returns its applications."""
    code, packaging, _ = blocks("python")
    (tmp_path / "my_traffic.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", str(Path.cwd()))]))
    monkeypatch.chdir(tmp_path)
    exec(packaging, {})  # our own page
    (said,) = blocks("yaml")
    found: Mapping[str, Any] = yaml.safe_load(said)["applications"]
    return found


def picture(*tiles: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return a picture whose first tiles have these values."""
    found = np.zeros((16, 32), np.float32)
    for place, value in enumerate(tiles):
        top, left = 8 * (place // 4), 8 * (place % 4)
        found[top : top + 8, left : left + 8] = value
    return found


def told(answer: Prediction) -> list[tuple[str, object]]:
    """Return what the stages behind the detector have answered."""
    return [(row.stage, row.answer) for row in answer.stages[1:]]


async def test_the_page_s_graph_answers_and_a_crash_loses_no_query(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, applications: Mapping[str, Any]
) -> None:
    """Cars and faces go to models of their own, what is answered is observed, and a killed selection answers later."""
    traffic = {"traffic": {**applications["traffic"], "slo_ms": PATIENT_MS}}
    packages = {name: tmp_path / "models" / name for name in ("detector", "car-net", "face-net")}
    async with deployed(
        *(kafka, redis_server.url, prefix, tmp_path, packages, traffic), roles=ROLES, partitions=2
    ) as there:
        answer = await there.client.predict("traffic", picture(1.0, -0.25, 0.0, 0.5, -0.75), timeout_s=60)
        assert (answer.status, answer.answer) == (Status.COMPLETE, '["white", "grey"]')
        assert told(answer) == [("cars", "white"), ("cars", "grey"), ("faces", "glad"), ("faces", "sad")]
        assert all(row.took_us > 0 and row.outcome is Outcome.OK for row in answer.stages)
        await there.client.feedback(answer, label='["white", "grey"]')

        asked = [
            asyncio.create_task(
                there.client.predict("traffic", picture(*[0.5 + 0.5 * (n % 2)] * (n % 5)), timeout_s=90)
            )
            for n in range(20)
        ]
        await asyncio.sleep(0.05)
        there.system.kill("selection")
        for number, answer in enumerate(await asyncio.gather(*asked)):
            colour = "white" if number % 2 else "grey"
            assert told(answer) == [("cars", colour)] * (number % 5)
            assert answer.status is Status.COMPLETE

        def is_observed() -> bool:
            seen = [one for several in there.watch.decoded(Observations, topics.OBSERVATIONS) for one in several.items]
            return any(one.losses == (0.0,) and len(one.stages) == 5 for one in seen)

        await there.watch.until(is_observed, "no observation of the first answer", 60)
        assert not there.watch.dead(topics.QUERIES)
