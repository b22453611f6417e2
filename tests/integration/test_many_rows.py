"""A table of rows is asked by one call of a whole deployment; who reads as a group finds the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from schemas import topics
from schemas.records import ModelPredictions, Prediction, Status
from streams.consumers.consume import consume
from tests.deployments import PATIENT_MS, UNTIL_S, Toy, deployed

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker

ROWS = 60
MODELS = {"parity": Toy("tests.toys:parity", np.ones((2, 2), dtype=np.float32))}


@pytest.mark.parametrize("timings", [False, True])
async def test_a_frame_is_answered_in_order_and_read_as_a_group(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path, *, timings: bool
) -> None:
    """Rows travel together, so that the worker batches them; a row that fails says so in its place."""
    served = {"sums": {"models": ["parity"], "slo_ms": PATIENT_MS, "default_output": -1, "timings": timings}}
    frame = pd.DataFrame({"a": np.arange(ROWS), "b": 2}).astype("float32")
    there = {"group": "ledger", "bootstrap": kafka.bootstrap, "prefix": prefix, "idle_s": 2.0}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, served) as running:
        await running.client.predict("sums", [1, 2])  # all have begun
        found = await running.client.predict_many("sums", frame, timeout_s=UNTIL_S)
        odd = await running.client.predict_many("sums", [[1, 2], object(), [1, 2, 3]], timeout_s=UNTIL_S)
        async with consume("sums", **there) as predictions:
            read = {one.query_id: one async for batch in predictions.batches() for one in batch}
        batches = running.watch.decoded(ModelPredictions, topics.MODEL_PREDICTIONS)
    answers = [one for one in found if isinstance(one, Prediction)]
    assert [one.answer for one in answers] == [row % 2 for row in range(ROWS)]
    assert {one.query_id: one for one in answers}.items() <= read.items()
    right, none, wrong = odd
    assert isinstance(right, Prediction)
    assert right.answer == 1
    assert isinstance(none, TypeError)
    assert isinstance(wrong, Prediction)
    assert (wrong.status, wrong.reason, wrong.answer) == (Status.DEFAULT, "invalid_input", -1)
    assert len(read) == ROWS + 3
    assert max(batch.batch_rows for batch in batches) > 1
    told = {
        (name, (waited_us, batch.predict_us, batch.batch_rows))
        for batch in batches
        for name, waited_us in zip(batch.query_ids, batch.waited_us, strict=True)
    }
    said = {(one.query_id, one.outputs[0].times) for one in answers}
    assert said <= told if timings else {times for _, times in said} == {(0, 0, 0)}
