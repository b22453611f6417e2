"""`skysail config`: the settings in force, and the page that lists every key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploy.cli.common import VerbGroup, json_option, print_json, with_settings
from deploy.config.configuration import doubts, masked, to_yaml
from deploy.config.reference import reference, schema
from deploy.terminal import echo

if TYPE_CHECKING:
    from deploy.config.settings import Settings

EXAMPLES = """\
skysail config show                      every key with its value, passwords masked
skysail config show --changed            only what differs from the defaults
skysail config check                     what `skysail run` would refuse; by when each stage must answer
skysail config reference                 the meaning of every key; this is docs/settings.md
skysail config reference --json          the same as a JSON schema, for editors
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def config() -> None:
    """Show the settings in force, and explain every key."""


@config.command()
@click.option("--changed", is_flag=True, help="Only keys that differ from the defaults.")
@json_option
@with_settings
def show(settings: Settings, *, changed: bool, as_json: bool) -> None:
    """Print the settings in force, passwords masked."""
    values = masked(settings, only_changed=changed)
    if as_json:
        print_json(values)
    else:
        echo(*(to_yaml(values) or "nothing differs from the defaults").rstrip("\n").split("\n"))


@config.command()
@json_option
@with_settings
def check(settings: Settings, *, as_json: bool) -> None:
    """Refuse what `skysail run` would refuse at its start; nothing is started, and no broker is asked."""
    # With aiokafka and NumPy, which the other commands do without.
    from deploy.config import addresses
    from deploy.state import desired
    from deploy.state.graphs import planned

    addresses.connection(settings).options()
    desired.models(settings)
    records = desired.applications(settings)
    if as_json:
        print_json({record.name: [stage._asdict() for stage in record.stages] for record in records})
        return
    for record in records:
        echo(f"application {record.name}: {record.policy} over {', '.join(record.models)}, {record.slo_ms:g} ms")
        needs = planned(settings.applications[record.name], record.stages)
        for stage in record.stages:
            asked = stage.model or f"as {record.policy} chooses"
            within = f"within {stage.share * record.slo_ms:g} ms of the query"
            echo(f"  {stage.name} ({asked}): {within}{_needed(*needs[stage.name]) if needs else ''}")
        if absent := sorted({*record.asks, *filter(None, (record.parity,))} - settings.models.keys()):
            echo(f"  not among `models`: {', '.join(absent)}; deploy with: skysail model add PACKAGE")
    for warning in (*doubts(settings), *desired.half_known(settings)):
        echo(f"warning: {warning}")
    echo("the settings are sound")


def _needed(rows: int, workers: float) -> str:
    if not rows:
        return "; no batch is in time: give it more, or a faster model"
    return f"; batches of {rows} keep {workers:.1f} workers busy"


@config.command("reference")
@json_option
def reference_(*, as_json: bool) -> None:
    """Print every key with its default and meaning, as Markdown."""
    if as_json:
        print_json(schema())
    else:
        click.echo(reference(), nl=False)
