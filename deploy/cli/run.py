"""`skysail run`: all roles as supervised processes, or the named ones in this process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import tempfile
import textwrap
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import uvloop
from rich.console import Console

from deploy import catalog, desired
from deploy.cli.common import Verb, with_settings
from deploy.clients import await_broker, check_redis
from deploy.configuration import masked, to_yaml
from deploy.errors import UsageError
from deploy.launch import System
from deploy.progress import shown
from deploy.registry import codec_for
from deploy.roles import run as run_roles
from deploy.settings import ROLES
from deploy.topics import require
from schemas.records import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.settings import Settings
    from schemas.codec import Codec

EXAMPLES = """\
skysail run                                         all roles, one process each
skysail run --role selection --role joiner          these two, in this process
skysail run --role worker --model svc               one model's worker
SKYSAIL_KAFKA__BOOTSTRAP=broker:9092 skysail run    the environment over the file

A settings file (skysail.yaml); every key is optional, `skysail config reference` lists them all:
  kafka: {bootstrap: "127.0.0.1:9092"}
  redis: {url: "redis://127.0.0.1:6379/0"}
  models: {svc: models/svc-1, forest: models/forest-1}
  applications:
    digits: {models: [svc, forest], policy: exp3, slo_ms: 100, default_output: 0}
"""
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@click.command(cls=Verb, epilog=EXAMPLES)
@click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, help="Run only these, in this process.")
@click.option("--model", "models", multiple=True, help="With --role worker: which models [default: all deployed].")
@click.option("--instance", help="Name that makes this process's reports unique [default: HOST-PID].")
@click.option("--quiet", is_flag=True, help="Do not print the settings.")
@click.option("--verbose", is_flag=True, help="Print all settings, not only those that differ from the defaults.")
@with_settings
def run(
    settings: Settings,
    *,
    roles: tuple[str, ...],
    models: tuple[str, ...],
    instance: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Run the roles until Ctrl-C or SIGTERM.

    Without --role, topics are created, and applications and models published, before anything starts.
    """
    logging.basicConfig(level=settings.log_level.upper(), format=LOG_FORMAT)
    # At DEBUG aiokafka would write keys and values into the log, at INFO it writes every assignment.
    logging.getLogger("aiokafka").setLevel(max(logging.WARNING, logging.getLogger().level))
    if models and "worker" not in roles:
        raise UsageError("--model goes with --role worker")
    if not quiet:
        click.echo(_told(settings, verbose=verbose))
    codec = codec_for(settings)
    if roles:
        await_broker(settings)
        deployed = _deployed(settings, codec, models) if "worker" in roles else []
        inline = _inline(settings, codec) if "selection" in roles else []
        require(settings, desired.used_by(settings, codec, roles, deployed))
        name = instance or f"{socket.gethostname()}-{os.getpid()}"
        uvloop.run(run_roles(settings, codec, roles, deployed, name, inline))
    else:
        desired.verify(settings)
        uvloop.run(_supervise(settings, codec))


def _deployed(settings: Settings, codec: Codec, wanted: Sequence[str]) -> list[Model]:
    """Return the models to run; publishes those that the settings name first."""
    known = dict(catalog.read(settings, codec, Model))
    if not set(wanted or settings.models) <= known.keys():
        known = dict(desired.establish(settings, codec))
    absent = sorted(set(wanted) - known.keys())
    if absent or not known:
        names = ", ".join(sorted(known)) or "none"
        message = (
            f"no such model is deployed: {', '.join(absent) or 'any'} (deployed: {names}); see `skysail model add`"
        )
        raise UsageError(message)
    return [known[name] for name in wanted or sorted(known.keys() - settings.selection.inline)]


def _inline(settings: Settings, codec: Codec) -> list[Model]:
    """Return the models that run inside the selection role."""
    wanted = settings.selection.inline
    return _deployed(settings, codec, wanted) if wanted else []


def _told(settings: Settings, *, verbose: bool) -> str:
    """Return the settings as they are printed at start: what differs from the defaults, or all of them."""
    found = to_yaml(masked(settings, only_changed=not verbose))
    if verbose:
        return f"settings:\n{textwrap.indent(found, '  ')}"
    if not found:
        return "settings: the defaults (all of them: skysail config show)"
    return f"settings that differ from the defaults (all of them: skysail config show):\n{textwrap.indent(found, '  ')}"


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
            await asyncio.Event().wait()
    click.echo("stopped")


def _tell(settings: Settings, system: System) -> None:
    for name, port in system.metrics_ports.items():
        click.echo(f"metrics of {name}: http://{settings.metrics.host}:{port}/metrics")
    if "control" in settings.roles:
        click.echo(f"live page: http://{settings.control.host}:{settings.control.port}/")
    if "worker" in settings.roles and not any(name.startswith("worker.") for name in system.pids):
        click.echo("no model is deployed: name packages under `models` in skysail.yaml, or use `skysail model add`")
    click.echo("ready; Ctrl-C stops everything")
