"""Graphs on real Kafka: one exactly as docs/graphs.md shows it, and one with a join; each with a crash meanwhile."""

from __future__ import annotations

import asyncio
import json
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
from workers.packages.packaging import package_function

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
    said, _ = blocks("yaml")
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


LIGHT = """

def light(pictures):
    return [sum(1 for _ in found(picture)) for picture in pictures]


def in_light(cars):
    return [f"{score:g} of {light:g}" for score, light in cars]
"""
JOINS: Mapping[str, Any] = {
    "models": ["car-net"],
    "policy": "single",
    "slo_ms": PATIENT_MS,
    "default_output": "?",
    "stages": {
        "detect": {"model": "detector"},
        "light": {"model": "light-net"},
        "colour": {"after": "detect", "where": "label == car", "input": ["detect.score", "light"]},
    },
}


async def test_a_stage_waits_for_two_others_and_a_crash_loses_no_query(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each car is asked about with what another model says of the whole picture; a killed selection answers later."""
    page, _, _ = blocks("python")
    (tmp_path / "my_light.py").write_text(page + LIGHT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", str(Path.cwd()))]))
    inputs = {"detector": picture(1.0)[None], "light-net": picture(1.0)[None], "car-net": np.zeros((1, 2))}
    functions = {"detector": "detect", "light-net": "light", "car-net": "in_light"}
    packages = {name: tmp_path / name for name in inputs}
    for name, sample in inputs.items():
        package_function(f"my_light:{functions[name]}", packages[name], name, "1", sample)
    joins = {"joins": JOINS}
    async with deployed(*(kafka, redis_server.url, prefix, tmp_path, packages, joins), roles=ROLES) as there:
        answer = await there.client.predict("joins", picture(1.0, -0.25, 0.5), timeout_s=60)
        assert (answer.answer, answer.reason) == ('["1 of 3", "0.5 of 3"]', None), answer.stages
        assert [(row.stage, row.before, row.beside) for row in answer.stages] == [
            ("detect", -1, ()),
            ("colour", 0, (3,)),
            ("colour", 0, (3,)),
            ("light", -1, ()),
        ]
        tiles = [[0.5 + 0.5 * (n % 2)] * (n % 4) for n in range(20)]
        asked = [asyncio.create_task(there.client.predict("joins", picture(*its), timeout_s=90)) for its in tiles]
        await asyncio.sleep(0.05)
        there.system.kill("selection")
        for its, answer in zip(tiles, await asyncio.gather(*asked), strict=True):
            assert json.loads(str(answer.answer)) == [f"{value:g} of {len(its)}" for value in its]
            assert answer.status is Status.COMPLETE
        assert not there.watch.dead(topics.QUERIES)
