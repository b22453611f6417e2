"""`skysail run`: all roles as supervised processes, or the named ones in this process."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import textwrap
from typing import TYPE_CHECKING, get_args

import click
import uvloop

from deploy.cli.common import Verb, with_settings
from deploy.config.configuration import doubts, masked, to_yaml
from deploy.config.settings import Role
from deploy.connect.forked import aside
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.placement.niceness import give_way, niceness
from deploy.process.installed import require_installed
from deploy.process.log_roles import WithRole
from deploy.process.log_throttle import RateLimitFilter
from deploy.system.run import run as run_roles
from deploy.terminal import PlainFormatter, echo

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Model

EXAMPLES = """\
skysail run                                         all roles; few processes on few cores
SKYSAIL_PROCESSES=each skysail run                  one process for each role and model
skysail run --role selection --role joiner          these two, in this process
skysail run --role worker --model svc               one model's worker
skysail run --role host --pool small                the models of one pool, in one process
skysail run --role record                           keeps topics in a folder (record.folder)
skysail run -- python ask.py                        until this program has ended
SKYSAIL_KAFKA__BOOTSTRAP=broker:9092 skysail run    the environment overrides the file

A settings file (skysail.yaml); every key is optional, `skysail config reference` lists them all:
  kafka: {bootstrap: "127.0.0.1:9092"}
  redis: {url: "redis://127.0.0.1:6379/0"}
  models: {svc: models/svc-1, forest: models/forest-1}
  applications:
    digits: {models: [svc, forest], policy: exp3, slo_ms: 100, default_output: 0}
"""
LOG_FORMAT = "%(asctime)s %(levelname)s %(role)s%(name)s: %(message)s"


@click.command(cls=Verb, epilog=EXAMPLES)
@click.option(
    "--role",
    "roles",
    type=click.Choice(get_args(Role)),
    multiple=True,
    help="Run only this role, in this process; repeatable.",
)
@click.option(
    "--model", "models", multiple=True, help="With --role worker: only this model; repeatable [default: all deployed]."
)
@click.option("--pool", "pools", multiple=True, help="With --role host: only this pool; repeatable [default: all].")
@click.option("--inside", multiple=True, metavar="MODEL=DIGEST", hidden=True)  # what `skysail run` has measured
@click.option("--instance", help="Unique name in this process's reports [default: HOST-PID].")
@click.option("--quiet", is_flag=True, help="Do not print the settings.")
@click.option("--verbose", is_flag=True, help="Print all settings, not only those that differ from the defaults.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@with_settings
def run(
    settings: Settings,
    *,
    roles: tuple[str, ...],
    models: tuple[str, ...],
    pools: tuple[str, ...],
    inside: tuple[str, ...],
    instance: str | None,
    quiet: bool,
    verbose: bool,
    program: tuple[str, ...],
) -> None:
    """Run the roles until Ctrl-C or SIGTERM, or until PROGRAM has ended: it is started when all is ready.

    Without --role, it first creates topics and publishes applications and models.
    """
    if program and roles:
        raise UsageError("a program goes with all roles: leave --role out, or start it by itself")
    if program and shutil.which(program[0]) is None:
        raise UsageError(
            f"there is no program {program[0]}: what stands behind -- is run as it is, such as -- python ask.py"
        )
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter(LOG_FORMAT))
    handler.addFilter(WithRole())
    handler.addFilter(RateLimitFilter("aiokafka"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    # At DEBUG aiokafka would write keys and values into the log, at INFO it writes every assignment.
    logging.getLogger("aiokafka").setLevel(max(logging.WARNING, logging.getLogger().level))
    # It says ten times a second that a topic is missing; Skysail's own log says it once, and what to do.
    logging.getLogger("aiokafka.cluster").setLevel(logging.CRITICAL)
    if models and "worker" not in roles:
        raise UsageError("--model goes with --role worker")
    pools = _pools(settings, roles, pools)
    require_installed(roles or settings.roles)
    if settings.require_signature is not None:
        from deploy.state.packages import require_keys

        require_keys(settings)
    if not roles:
        from deploy.state.desired import verify

        verify(settings)  # before the settings are printed, so that a fault is the last line
    told = "" if quiet else _told(settings, verbose=verbose)
    if roles and told:
        echo(*told.split("\n"))
    for doubt in doubts(settings):
        logging.getLogger(__name__).warning("%s", doubt)
    codec = codec_for(settings)
    if roles:
        measured = dict(given.split("=", 1) for given in inside)
        by_hand = instance is None and "selection" in roles
        deployed, inline = aside(lambda: _prepared(settings, codec, roles, models, measured, pools, by_hand=by_hand))
        give_way(niceness(roles, settings.niceness))
        name = instance or f"{socket.gethostname()}-{os.getpid()}"
        uvloop.run(run_roles(settings, codec, roles, deployed, name, inline, measured, pools))
    else:
        from deploy.cli.supervise import supervise

        supervise(settings, codec, told, program)


def _prepared(
    settings: Settings,
    codec: Codec,
    roles: Sequence[str],
    models: Sequence[str],
    inside: Collection[str],
    pools: Sequence[str],
    *,
    by_hand: bool,
) -> tuple[list[Model], list[Model]]:
    from deploy.diagnose.preflight import prepared, require_workers

    if by_hand:
        require_workers(settings, codec)
    return prepared(settings, codec, roles, models, inside, pools)


def _pools(settings: Settings, roles: Collection[str], named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the pools of the hosts that are to run here."""
    if "host" not in roles:
        if named:
            raise UsageError("--pool goes with --role host")
        return ()
    if strangers := sorted({*named} - settings.hosts.keys()):
        known = ", ".join(sorted(settings.hosts)) or "none"
        raise UsageError(f"no such pool: {', '.join(strangers)}; `hosts` in the settings has: {known}")
    if not settings.hosts:
        raise UsageError("role host needs a pool: name its models under `hosts` in the settings (docs/hosts.md)")
    return named or tuple(sorted(settings.hosts))


def _told(settings: Settings, *, verbose: bool) -> str:
    """Return the settings as they are printed at start: what differs from the defaults, or all of them."""
    found = to_yaml(masked(settings, only_changed=not verbose))
    if verbose:
        return f"settings:\n{textwrap.indent(found, '  ')}"
    if not found:
        return "settings: the defaults (all of them: skysail config show)"
    return f"settings that differ from the defaults (all of them: skysail config show):\n{textwrap.indent(found, '  ')}"
