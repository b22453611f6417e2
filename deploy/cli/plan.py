"""`skysail plan`: which host of a pool runs which models, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploy.cli.common import VerbGroup, json_option, print_json, print_table, with_settings
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.state import plans
from deploy.terminal import echo

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.records import Place, Plan

EXAMPLES = """\
skysail plan show              all pools
skysail plan show small        the hosts of one pool, what moved last, and what no host can do
"""
HEADS = ("host", "model", "partitions", "rows/s", "rows a batch", "every")


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def plan() -> None:
    """Show how the hosts of pools are planned."""


@plan.command("show")
@click.argument("pool", required=False)
@json_option
@with_settings
def show(settings: Settings, *, pool: str | None, as_json: bool) -> None:
    """Show the last plan of each pool, or of one, with its reasons."""
    found = [each for each in plans.read(settings, codec_for(settings)) if pool in {None, each.pool}]
    if pool is not None and not found:
        raise UsageError(f"no plan of pool {pool}: it is planned once a host of it and the control role run")
    if as_json:
        print_json([{**each._asdict(), "places": [place._asdict() for place in each.places]} for each in found])
        return
    for each in found:
        _show(each)
    if not found:
        echo("nothing is planned: a pool is planned once a host of it and the control role run (docs/planning.md)")


def _show(found: Plan) -> None:
    """Print one plan."""
    echo(f"{found.pool}: {found.needed} of {len(found.hosts)} hosts are needed; planned because: {found.why}")
    print_table(HEADS, [_row(place) for place in found.places])
    for reason in found.reasons:
        echo(f"  {reason}")


def _row(place: Place) -> tuple[str, ...]:
    partitions = ",".join(map(str, place.partitions))
    if not place.per_s:
        return place.host, place.model, partitions, "0", "", "not asked"
    every = f"{place.duty_us / 1e3:.1f} ms" if place.duty_us else "as often as it can"
    return place.host, place.model, partitions, f"{place.per_s:.1f}", str(place.rows), every
