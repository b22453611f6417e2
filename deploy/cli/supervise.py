"""`skysail run` without roles: a deployment of child processes, for as long as nobody stops it."""

from __future__ import annotations

import asyncio
import re
import signal
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import uvloop
from rich.console import Console

from deploy import desired
from deploy.clients import check_redis
from deploy.launch import System
from deploy.progress import shown

_LOOK_S = 1.0
_ERROR = re.compile(r"\S+ \S+ (ERROR|CRITICAL) ")  # after date and time, see `run.LOG_FORMAT`

if TYPE_CHECKING:
    from deploy.settings import Settings
    from schemas.codec import Codec


def supervise(settings: Settings, codec: Codec) -> None:
    """Run every role as a child process until a signal comes.

    Raises:
        DeployError: the deployment cannot start; the message says what to do.
    """
    desired.verify(settings)
    uvloop.run(_supervise(settings, codec))


async def _supervise(settings: Settings, codec: Codec) -> None:
    """Run every role as a child process until a signal comes, also while they start."""
    task = asyncio.current_task()
    assert task is not None

    def end() -> None:
        click.echo("stopping the roles")
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    with suppress(asyncio.CancelledError), tempfile.TemporaryDirectory(prefix="skysail-run-") as folder:
        async with AsyncExitStack() as stack:
            with shown(Console()) as progress:
                await asyncio.to_thread(check_redis, settings)
                system = await stack.enter_async_context(System(settings, codec, Path(folder), progress=progress))
            _tell(settings, system)
            await _tell_errors(system)
    click.echo("stopped")


async def _tell_errors(system: System) -> None:
    """Print what the roles log as errors, from their start on, for ever."""
    read: dict[str, int] = {}
    while True:
        for child in system.status():
            lines, read[child.name] = errors_since(system.log(child.name), read.get(child.name, 0))
            for line in lines:
                click.echo(f"{child.name}: {line}", err=True)
        await asyncio.sleep(_LOOK_S)


def errors_since(log: Path, place: int) -> tuple[list[str], int]:
    """Return the whole lines of errors in a log from a place (bytes) on, without tracebacks, and where to go on."""
    if not log.exists():
        return [], place
    with log.open("rb") as file:
        file.seek(place)
        whole = file.read().rpartition(b"\n")[0]
    lines = whole.decode(errors="replace").splitlines()
    return [line for line in lines if _ERROR.match(line)], place + len(whole) + bool(whole)


def _tell(settings: Settings, system: System) -> None:
    for name, port in system.metrics_ports.items():
        click.echo(f"metrics of {name}: http://{settings.metrics.host}:{port}/metrics")
    if "control" in settings.roles:
        click.echo(f"live page: http://{settings.control.host}:{settings.control.port}/")
    if "worker" in settings.roles and not any(name.startswith("worker.") for name in system.pids):
        click.echo("no model is deployed: name packages under `models` in skysail.yaml, or use `skysail model add`")
    click.echo("ready; Ctrl-C stops everything")
