"""`skysail policy`: policies of somebody's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploy.cli.common import VerbGroup, json_option, print_json, with_settings
from deploy.terminal import echo
from policies import registry
from policies.laws import verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.config.settings import Settings
    from policies.laws import LawVerdict

EXAMPLES = """\
skysail policy check my_pkg.mine:MyPolicy                        the module is installed, or in this folder
skysail policy check 'my_pkg.mine:MyPolicy(names=["a","b"])'     with parameters, which may be any JSON
skysail policy check mine --json                                 the entry point `mine` of an installed package
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def policy() -> None:
    """Check policies of your own."""


@policy.command()
@click.argument("named", metavar="POLICY")
@json_option
@with_settings
def check(settings: Settings, named: str, *, as_json: bool) -> None:  # noqa: ARG001 - loaded: they say what may be named
    """Run the laws that every policy obeys on POLICY, and print a verdict on each.

    POLICY is package.module:Class or the name of an entry point, and its parameters if it needs some. A law about what
    the policy does not do (`extend`, `combine`, ...) is passed over. Exits with 1 if a law is broken.
    """
    found = registry.parse(named)
    said = [*_told(verdicts(found), quiet=as_json)]
    broken = sum(bool(verdict.fault) for verdict in said)
    if as_json:
        print_json({"policy": registry.spec(found), "laws": [verdict._asdict() for verdict in said], "broken": broken})
    else:
        held = sum(verdict.fault == "" for verdict in said)
        passed = f", {len(said) - held - broken} do not apply (-)" if len(said) > held + broken else ""
        echo(f"{registry.spec(found)}: {held} laws hold, {broken} are broken{passed}")
    if broken:
        raise SystemExit(1)


def _told(found: Iterable[LawVerdict], *, quiet: bool) -> Iterator[LawVerdict]:
    for verdict in found:
        if not quiet:
            mark = "-" if verdict.fault is None else "BROKEN" if verdict.fault else "ok"
            echo(f"{mark:<7} {verdict.law}", *([f"        {verdict.fault}"] if verdict.fault else []))
        yield verdict
