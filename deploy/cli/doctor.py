"""`skysail doctor`: what is there, what is missing, what to do."""

from __future__ import annotations

import sys

import click

from deploy.cli.common import Verb, json_option, print_json
from deploy.doctor import Level, diagnose

MARKS = {Level.OK: "ok", Level.WARN: "note", Level.MISSING: "MISSING"}


EXAMPLES = """\
skysail doctor
skysail doctor --json
"""


@click.command(cls=Verb, epilog=EXAMPLES)
@json_option
def doctor(*, as_json: bool) -> None:
    """Say what is there, what is missing, and what to do about it; exit code 1 if something needed is missing."""
    checks = diagnose()
    if as_json:
        print_json([{"name": c.name, "level": c.level.value, "found": c.found, "advice": c.advice} for c in checks])
    else:
        for check in checks:
            click.echo(f"{MARKS[check.level]:8} {check.name:28} {check.found}")
            if check.advice:
                click.echo(f"{'':37} → {check.advice}")
    sys.exit(any(check.level is Level.MISSING for check in checks))
