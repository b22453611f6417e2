"""`skysail doctor`: what runs, what is missing, what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from deploy.cli.common import Verb, config_option, json_option, print_json
from deploy.config.configuration import load
from deploy.diagnose.doctor import Check, Level, diagnose
from deploy.diagnose.health import advise, examine
from deploy.errors import SettingsError
from deploy.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from deploy.config.settings import Settings

MARKS = {Level.OK: "ok", Level.WARN: "note", Level.DOWN: "DOWN", Level.MISSING: "MISSING"}
COLOURS = {Level.WARN: "yellow", Level.DOWN: "red", Level.MISSING: "red"}
LACKS, DOWN = 1, 3  # exit codes; 2 is click's for wrong usage


EXAMPLES = """\
skysail doctor
skysail doctor --json
skysail doctor --machine               this machine only, not the deployment
"""


@click.command(cls=Verb, epilog=EXAMPLES)
@click.option("--machine", is_flag=True, help="Look at this machine only.")
@json_option
@config_option
def doctor(config: Path | None, *, machine: bool, as_json: bool) -> None:
    """Say what runs, what is missing, and what to do about it.

    Exit codes: 0 if everything runs as the settings say. 1 if this machine lacks something. 3 if the machine has all it
    needs, but a part of the deployment does not run (no broker answers, topics are wrong, a role is silent, ...), a
    canary or shadow is shown to be worse than the version that serves, or the settings cannot be read.
    """
    here = diagnose()
    settings, faults = (None, ()) if machine else _settings(config)
    there = faults if settings is None else examine(settings)
    levels = {check.level for check in (*here, *there)}
    code = LACKS if Level.MISSING in levels else DOWN if Level.DOWN in levels else 0
    following = advise((*here, *there), settings)
    if as_json:
        checks = [asdict(check) | {"level": check.level.value} for check in (*here, *there)]
        print_json({"exit_code": code, "next": following, "checks": checks})
    else:
        _print("this machine", here)
        if there:
            _print("settings" if settings is None else f"deployment {settings.prefix}", there)
        echo(f"next: {following}" if following else "all is there")
    raise SystemExit(code)


def _settings(config: Path | None) -> tuple[Settings | None, tuple[Check, ...]]:
    """Return the settings, or what is wrong with them: a check for each fault."""
    try:
        return load(config), ()
    except SettingsError as error:
        advice = "mend it, then: skysail doctor"
        return None, tuple(Check("settings", Level.DOWN, fault, advice) for fault in str(error).splitlines())


def _print(heading: str, checks: Iterable[Check]) -> None:
    echo(heading)
    for check in checks:
        echo(f"  {MARKS[check.level]:8} {check.name:26} {check.found}", colour=COLOURS.get(check.level))
        if check.advice:
            echo(f"  {'':35} → {check.advice}")
