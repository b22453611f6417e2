"""The way of docs/other-clients.md, with kcat: a record is written byte for byte, and answered."""

from __future__ import annotations

import asyncio
import shutil
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from deploy.config import configuration
from schemas.codec import Codec
from schemas.records import Prediction, Status
from tests.deployments import PATIENT_MS, Toy, deployed

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

KCAT = shutil.which("kcat")
ROWS = np.array([[1.0, 2.0], [3.0, 5.0]], dtype=np.float32)
APPLICATIONS = {"sums": {"models": ["parity"], "policy": "single", "slo_ms": PATIENT_MS, "default_output": -1}}


async def output(*argv: str) -> bytes:
    """Run a program that ends well; returns what it wrote."""
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        written = (await process.communicate())[0]
    assert process.returncode == 0
    return written


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
async def test_a_query_that_kcat_writes_is_answered(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """However old its bytes are: they say no time, so Kafka's counts. The answer has the id that was given."""
    assert KCAT is not None
    models = {"parity": Toy("tests.toys:parity", ROWS)}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, models, APPLICATIONS, partitions=1) as there:
        file, record = configuration.write(there.settings, tmp_path / "skysail.yaml"), tmp_path / "query.avro"
        ask = ("query", "sums", "--input", "[1, 2]", "--print-bytes", "--id", "my-1", "--config", str(file))
        record.write_bytes(await output(sys.executable, "-m", "deploy.cli", *ask))
        topic = f"{prefix}.queries"
        await output(KCAT, "-b", kafka.bootstrap, "-P", "-t", topic, "-k", "my-1", str(record))
        read = ("-C", "-t", f"{prefix}.predictions", "-o", "beginning", "-c", "1", "-q", "-D", "")
        written = await output(KCAT, "-b", kafka.bootstrap, *read)
    prediction = Codec().decode(Prediction, written)
    assert (prediction.query_id, prediction.status) == ("my-1", Status.COMPLETE)
