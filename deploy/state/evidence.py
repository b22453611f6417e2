"""What the observations of a deployment say about a candidate, read to their present end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from deploy.config.addresses import connection
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Observations
from streams.operators.join.kernel import JoinerSettings
from streams.promotion.lifecycle import comparison
from streams.runtime.kafka.log_reader import KafkaBroadcast

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Candidate
    from streams.operators.contract import Record
    from streams.promotion.lifecycle import Comparison

_STOP_S = 2.0


def compared(
    settings: Settings, codec: Codec, plan: Candidate, application: str = "", *, learns_along: bool
) -> Comparison:
    """Fold the observations since a candidate's `since_us` into its comparison with the incumbent.

    Args:
        settings: of the deployment.
        codec: of its records.
        plan: of the candidate.
        application: whose observations count; empty = of all.
        learns_along: of a policy: whether it is the application's apprentice.

    Raises:
        PolicyError: it is a policy that cannot be compared.
        BrokerUnavailableError: no broker answers.
    """
    joiner = settings.joiner
    memory_us = JoinerSettings(window_us=int(joiner.window_s * 1e6), early_us=int(joiner.early_s * 1e6)).memory_us
    found = comparison(plan, memory_us, application=application, learns_along=learns_along)
    asyncio.run(_fold(settings, codec, plan.since_us, found))
    return found


async def _fold(settings: Settings, codec: Codec, since_us: int, into: Comparison) -> None:
    reader = KafkaBroadcast(connection(settings, "skysail-promote"), (topics.OBSERVATIONS,), since_us)
    await reader.start()
    try:
        while not reader.caught_up:
            for record in await reader.poll(200):
                _take(record, codec, into)
    finally:
        await reader.stop(_STOP_S)


def _take(record: Record, codec: Codec, into: Comparison) -> None:
    with suppress(DecodeError):  # the learner makes a dead letter of it
        for seen in codec.decode(Observations, record.value).items:
            into.take(seen, record.timestamp_us, record.partition)
