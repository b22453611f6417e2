"""`skysail run` without roles: a deployment of child processes, until a signal comes."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import uvloop
from rich.console import Console

from deploy.config.addresses import connection
from deploy.config.folder import held
from deploy.config.settings import Settings
from deploy.connect.redis_server import check_redis
from deploy.connect.stores import check_file
from deploy.diagnose.alone import require_alone
from deploy.errors import DeployError
from deploy.local.logs import cut, size
from deploy.process.log_throttle import Quoted
from deploy.process.progress import shown
from deploy.state import catalog, desired
from deploy.system.launch import System
from deploy.terminal import echo
from schemas import topics
from schemas.codec import Codec
from schemas.records import Model
from streams.runtime.errors import StreamError
from streams.runtime.kafka.log_reader import KafkaTail

_LOOK_S = 1.0
_BY_SIGNAL = 128  # and the signal's number
_ERROR = re.compile(r"\S+ \S+ (ERROR|CRITICAL) ")  # after date and time, see `run.LOG_FORMAT`

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from deploy.config.folder import RunFolder
    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.operators.contract import Record


def supervise(settings: Settings, codec: Codec, told: str, program: Sequence[str] = ()) -> None:
    """Run every role as a child process until a signal comes, or until a program has ended.

    Args:
        settings: of the deployment.
        codec: of its records.
        told: printed once it is known that it does not run already from this folder; empty = nothing is.
        program: started when all is ready; this process ends with its exit status.

    Raises:
        DeployError: the deployment cannot start, or runs already; the message says what to do.
    """
    with held(settings.prefix) as place:
        if told:
            echo(*told.split("\n"))
        status = uvloop.run(_supervise(settings, codec, place, program))
    if status:
        sys.exit(status)


async def _supervise(settings: Settings, codec: Codec, place: RunFolder, program: Sequence[str]) -> int:
    """Run every role as a child process until a signal comes, also while they start; returns the program's status."""
    task = asyncio.current_task()
    assert task is not None

    def end() -> None:
        echo("stopping the roles")
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    status = 0
    with suppress(asyncio.CancelledError):
        async with AsyncExitStack() as stack:
            with shown(Console()) as progress:
                system = System(settings, codec, place.folder, progress=progress, logs=place.logs)
                # It holds secrets; one may be there of a run that was killed.
                stack.callback(system.settings_file.unlink, missing_ok=True)
                await asyncio.to_thread(check_redis if settings.store.kind == "redis" else check_file, settings)
                await asyncio.to_thread(require_alone, settings, codec)
                read = {log: size(log) for log in place.logs.glob("*.log")}  # of earlier runs
                await stack.enter_async_context(system)
            deployed = await asyncio.to_thread(catalog.read, settings, codec, Model)
            tell(settings, system, deployed)
            watching = asyncio.gather(_tell_errors(system, read), follow(settings, codec, system))
            if program:
                status = await _until_ended(program, watching)
            else:
                await watching
    echo("stopped")
    return status


async def _until_ended(program: Sequence[str], watching: asyncio.Future[Any]) -> int:
    """Run a program to its end, or until this is cancelled; returns its exit status, as shells have it."""
    child = await asyncio.create_subprocess_exec(*program)
    ended = asyncio.ensure_future(child.wait())
    try:
        await asyncio.wait({ended, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            await watching  # raises what it failed of
        return status if (status := await ended) >= 0 else _BY_SIGNAL - status
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        if child.returncode is None:
            child.terminate()
            await child.wait()


async def _tell_errors(system: System, read: dict[Path, int]) -> None:
    """Print the roles' errors from their logs until cancelled; a log that grows large is cut."""
    quoted, clock = Quoted(), asyncio.get_running_loop()
    while True:
        for child in system.status():
            log = system.log(child.name)
            lines, read[log] = errors_since(log, read.get(log, 0))
            for line in [line for line in lines if quoted.is_new(child.name, line, clock.time())]:
                echo(f"{child.name}: {line}", err=True)
            if cut(log):
                read[log] = 0
        await asyncio.sleep(_LOOK_S)


def errors_since(log: Path, place: int) -> tuple[list[str], int]:
    """Return the complete error lines of a log from a place (bytes) on, without tracebacks, and the next place."""
    if not log.exists():
        return [], place
    with log.open("rb") as file:
        file.seek(place)
        whole = file.read().rpartition(b"\n")[0]
    lines = whole.decode(errors="replace").splitlines()
    return [line for line in lines if _ERROR.match(line)], place + len(whole) + bool(whole)


def tell(settings: Settings, system: System, deployed: Collection[str]) -> None:
    """Print where everything is, and which models of applications are not deployed."""
    for name, port in system.metrics_ports.items():
        echo(f"metrics of {name}: http://{settings.metrics.host}:{port}/metrics")
    if "control" in settings.roles:
        echo(f"live page: http://{settings.control.host}:{settings.control.port}/")
    if "gateway" in settings.roles:
        echo(f"HTTP: {settings.gateway.address}/v2")
    if "worker" in settings.roles and not deployed:
        echo("no model is deployed: name packages under `models` in skysail.yaml, or use `skysail model add`")
    echo(f"logs: {system.log('*')}")
    for stranger in desired.strangers(desired.applications(settings), deployed):
        echo(f"warning: {stranger}")  # said at the start, too, and a screenful of progress ago
    echo("ready; Ctrl-C stops everything")


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
