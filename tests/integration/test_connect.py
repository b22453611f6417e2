"""Kafka Connect writes what is asked and stores what is answered, in JSON: it knows nothing of Skysail's records.

Its jars come from Maven, by the example's own file: without Maven or Java, or these, the test is skipped.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from deploy.local.jars import pinned
from deploy.local.process import free_port
from tests.deployments import PATIENT_MS, ROLES, UNTIL_S, Toy, deployed
from tests.registries import EXAMPLES, jars

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

ORDERS = 20
MODELS = {"parity": Toy("tests.toys:parity", np.ones((2, 2), dtype=np.float32))}
STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"


def application(prefix: str) -> dict[str, object]:
    """Return an application that the example's topics are mapped for."""
    return {
        "models": [*MODELS],
        "slo_ms": PATIENT_MS,
        "from": {"topic": f"{prefix}-orders", "id": "order_id", "input": ["amount", "items"]},
        "to": {"topic": f"{prefix}-orders.scored", "fields": {"score": "answer"}, "keep": "all"},
    }


def configured(folder: Path, bootstrap: str, prefix: str) -> list[str]:
    """Write the example's files with this test's broker and topics; returns their names."""
    changes = (
        (r"127\.0\.0\.1:9092", bootstrap),
        (r"127\.0\.0\.1:8083", f"127.0.0.1:{free_port()}"),
        (r"(?m)^(topics?)=", rf"\1={prefix}-"),
    )
    for name in ("worker", "orders", "scored"):
        text = (EXAMPLES / "connect" / f"{name}.properties").read_text(encoding="utf-8")
        for pattern, other in changes:
            text = re.sub(pattern, other, text)
        (folder / f"{name}.properties").write_text(text, encoding="utf-8")
    return [f"{name}.properties" for name in ("worker", "orders", "scored")]


@asynccontextmanager
async def connect(its: Path, folder: Path, files: list[str]) -> AsyncIterator[None]:
    """Run Kafka Connect in a folder; it must still run at the end."""
    with (folder / "connect.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "java", "-Xmx256m", "-cp", f"{its}/*", STANDALONE, *files, cwd=folder, stdout=log, stderr=log
        )
        try:
            yield
            assert process.returncode is None
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


@pytest.mark.parametrize(("example", "path"), [("connect", ".//{*}kafka"), ("java", ".//{*}version")])
def test_the_examples_name_the_version_of_kafka_that_is_tested(example: str, path: str) -> None:
    """Clients, Connect and broker are of one release."""
    found = ET.parse(EXAMPLES / example / "pom.xml").getroot().iterfind(path)
    assert pinned().version in {each.text for each in found}


@pytest.mark.skipif(not (shutil.which("mvn") and shutil.which("java")), reason="Maven or Java is not installed")
async def test_connect_asks_and_stores_answers(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Every line of one file is answered in the other, with all its fields."""
    its = await asyncio.to_thread(jars, "connect", tmp_path)
    counts = {f"{prefix}-orders": 3, f"{prefix}-orders.scored": 2}
    await asyncio.to_thread(kafka.create_topics, counts)
    orders = [{"order_id": f"o-{number}", "amount": number, "items": 1} for number in range(ORDERS)]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(one) + "\n" for one in orders), encoding="utf-8")
    scored = tmp_path / "scored.txt"

    def answered() -> list[str]:
        return scored.read_text(encoding="utf-8").splitlines() if scored.exists() else []

    files, served = configured(tmp_path, kafka.bootstrap, prefix), {"sums": application(prefix)}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, served, roles=(*ROLES, "mapping")) as there:
        await there.watch.until(lambda: "mapping" in there.watch.reports(), "the role reports")
        async with connect(its, tmp_path, files), asyncio.timeout(UNTIL_S):
            while len(answered()) < ORDERS:  # noqa: ASYNC110 - a file, which tells nobody
                await asyncio.sleep(0.2)
    # The sink writes maps as Java does: {order_id=o-3, amount=3, items=1, score=0}
    found = {tuple(sorted(re.findall(r"(\w+)=([^,}]+)", line))) for line in answered()}
    assert found == {
        tuple(sorted({**{name: str(one[name]) for name in one}, "score": str((number + 1) % 2)}.items()))
        for number, one in enumerate(orders)
    }
