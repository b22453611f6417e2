"""Follows which models are deployed while a deployment runs, so that a new one gets its workers at once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from deploy import catalog
from deploy.addresses import connection
from deploy.errors import DeployError
from schemas import topics
from schemas.records import Model
from streams.runtime.errors import StreamError
from streams.runtime.kafka_tail import KafkaTail

if TYPE_CHECKING:
    from deploy.launch import System
    from deploy.settings import Settings
    from schemas.codec import Codec

_log = logging.getLogger(__name__)

POLL_MS = 1_000
AGAIN_S = 2.0


async def follow(settings: Settings, codec: Codec, system: System) -> NoReturn:
    """Start workers for models that are deployed from now on, for ever; a broker that is gone is waited for."""
    while True:
        try:
            await _follow(settings, codec, system)
        except (DeployError, StreamError) as error:
            _log.info("cannot see which models are deployed, tries again: %s", error)
        await asyncio.sleep(AGAIN_S)


async def _follow(settings: Settings, codec: Codec, system: System) -> NoReturn:
    reader = KafkaTail(connection(settings, "skysail-models"), (topics.MODELS,))
    await reader.start()
    try:
        while True:  # the first time for what came while this started
            deployed = await asyncio.to_thread(catalog.read, settings, codec, Model)
            await system.serve(deployed)
            while not await reader.poll(POLL_MS):
                await system.serve(deployed)  # a package may still be on its way to this machine
    finally:
        await reader.stop()
