"""Follows the deployed models: starts workers for a new model, stops those of a removed one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from deploy.config.addresses import connection
from deploy.errors import DeployError
from deploy.state import catalog
from schemas import topics
from schemas.records import Model
from streams.runtime.errors import StreamError
from streams.runtime.kafka.log_reader import KafkaTail

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.config.settings import Settings
    from deploy.launch import System
    from schemas.codec import Codec
    from streams.operators.contract import Record

_log = logging.getLogger(__name__)

POLL_MS = 1_000
AGAIN_S = 2.0


async def follow(settings: Settings, codec: Codec, system: System) -> NoReturn:
    """Start workers for new models and stop those of removed ones, until cancelled; waits for an absent broker."""
    while True:
        try:
            await _follow(settings, codec, system)
        except (DeployError, StreamError) as error:
            _log.info("cannot read which models are deployed, retrying: %s", error)
        await asyncio.sleep(AGAIN_S)


async def _follow(settings: Settings, codec: Codec, system: System) -> NoReturn:
    reader = KafkaTail(connection(settings, "skysail-models"), (topics.MODELS,))
    await reader.start()
    removed: set[str] = set()
    try:
        while True:  # the first time for what came while this started
            deployed = await asyncio.to_thread(catalog.read, settings, codec, Model)
            await system.serve(deployed)
            await system.retire(removed.difference(deployed))
            while not (records := await reader.poll(POLL_MS)):
                await system.serve(deployed)  # a package may still be on its way to this machine
            removed = removed_by(records)
    finally:
        await reader.stop()


def removed_by(records: Iterable[Record]) -> set[str]:
    """Return the models that the records remove; a model with an unreadable record keeps its worker."""
    keys = {(record.key or b"").decode(errors="replace") for record in records if record.value is None}
    return {key for key in keys if topics.MODEL_VERSION not in key}
