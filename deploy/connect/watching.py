"""Watches a running deployment answer, for a while: its predictions, as they are read, and its workers' batches."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from deploy.config.addresses import connection
from deploy.connect.clients import answering
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import ModelPredictions, Prediction
from streams.runtime.clock import SystemClock
from streams.runtime.kafka.log_reader import KafkaTail
from workers.simulation.calibration import Answer, Stamped

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.operators.contract import Record

_POLL_MS = 100


async def watch(settings: Settings, codec: Codec, seconds: float) -> tuple[list[Answer], list[Stamped]]:
    """Return what a deployment has answered within some seconds.

    Raises:
        StreamError: there is no broker, or no such deployment.
    """
    clock, answers, batches = SystemClock(), list[Answer](), list[Stamped]()
    tail = KafkaTail(connection(settings), (topics.PREDICTIONS, topics.MODEL_PREDICTIONS))
    with answering(settings):
        await tail.start()
    end_us = clock.now_us() + int(seconds * 1e6)
    try:
        while clock.now_us() < end_us:
            records = await tail.poll(_POLL_MS)
            read_us = clock.now_us()
            for record in records:
                _take(record, codec, read_us, answers, batches)
            await asyncio.sleep(0)
    finally:
        await tail.stop()
    return answers, batches


def _take(record: Record, codec: Codec, read_us: int, answers: list[Answer], batches: list[Stamped]) -> None:
    with suppress(DecodeError):  # another's record: it tells nothing about ours
        if record.topic == topics.PREDICTIONS:
            answers.append(Answer(codec.decode(Prediction, record.value), read_us))
        else:
            batches.append(Stamped(codec.decode(ModelPredictions, record.value), record.timestamp_us))
