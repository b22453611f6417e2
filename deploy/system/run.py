"""Runs any set of roles in this process, and the page beside them, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import TYPE_CHECKING

from deploy.process.log_roles import Named
from deploy.process.metrics import exporting
from deploy.system.control import control
from deploy.system.roles import BUILDERS, NOBODY, host, mapping, selection, shared, worker
from streams import topology
from streams.runtime.process.cpu_profiler import sampling
from streams.runtime.process.run import run_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.config.settings import Settings
    from deploy.system.roles import Shared
    from schemas.codec import Codec
    from schemas.records import Model
    from streams.runtime.process.run import Runnable

_log = logging.getLogger(__name__)


async def run(
    settings: Settings,
    codec: Codec,
    roles: Sequence[str],
    models: Sequence[Model],
    instance: str,
    inline: Sequence[Model] = (),
    inside: Mapping[str, str] = NOBODY,
    pools: Sequence[str] = (),
) -> None:
    """Run these roles in this process until SIGTERM or SIGINT; the page may fail without the others.

    Args:
        settings: of the deployment.
        codec: of all records.
        roles: which; `worker` means one for each of `models`.
        models: that are run here.
        instance: unique among the processes of the deployment.
        inline: models that run inside `selection`.
        inside: digests of those among them that were measured, by name.
        pools: whose hosts run here.

    Raises:
        ExceptionGroup: of what ended a role.
        StartError: the port for metrics is taken.
    """
    with exporting(settings.metrics) as hooks, sampling(settings.profile):
        names = _names(roles, models, pools)
        first = names[0] if names else ""
        await _run(shared(settings, codec, instance, hooks, first, inside), roles, models, inline, pools)


def _names(roles: Sequence[str], models: Sequence[Model], pools: Sequence[str]) -> list[str]:
    """Return the roles that run in loops here, in the order in which they are built."""
    workers = [topology.worker_role(model.name) for model in models if "worker" in roles]
    workers += [topology.host_role(pool) for pool in pools]
    return [*(["selection"] if "selection" in roles else []), *(r for r in roles if r in BUILDERS), *workers]


async def _run(
    common: Shared, roles: Sequence[str], models: Sequence[Model], inline: Sequence[Model], pools: Sequence[str]
) -> None:
    stop = asyncio.Event()
    loops: list[Runnable] = [selection(common, inline)] if "selection" in roles else []
    decides = loops[0] if loops else None
    loops += [
        mapping(common, decides) if role == "mapping" else BUILDERS[role](common) for role in roles if role in BUILDERS
    ]
    loops += [worker(common, model) for model in models if "worker" in roles]
    loops += [host(common, pool) for pool in pools]
    if len(loops) > 1:
        loops = [Named(name, loop) for name, loop in zip(_names(roles, models, pools), loops, strict=True)]
    page = asyncio.create_task(control(common, stop)) if "control" in roles else None
    if loops:
        if page is not None:
            page.add_done_callback(_note_end)
        await run_process(loops, common.transport, stop)
        stop.set()
    elif page is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if page is not None:
        await asyncio.wait([page])
        if not loops:
            page.result()
        if page.exception() is None and not page.result():
            if stop.is_set():
                _log.warning("the page does not stop while Kafka is away; the process ends without it")
            # Faust starts its agents anew as they are cancelled: the event loop would never close.
            os._exit(0 if stop.is_set() else 1)


def _note_end(page: asyncio.Task[bool]) -> None:
    if not page.cancelled() and (fault := page.exception()) is not None:
        _log.warning("the control page has ended, everything else runs on: %r", fault)
