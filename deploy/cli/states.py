"""`skysail states`: the policy states in their store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from deploy.cli.common import VerbGroup, json_option, print_json, with_settings
from deploy.connect.redis_server import connect_redis
from deploy.terminal import echo
from streams.runtime.stores.pruning import prune

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from streams.runtime.stores.pruning import Pruned

UNITS_S = {"h": 3_600, "d": 86_400, "w": 604_800}

EXAMPLES = """\
skysail states prune --older-than 30d --dry-run      count contexts without feedback for 30 days
skysail states prune --older-than 30d                forget them; may run every night
"""


class Age(click.ParamType):
    """A time in hours, days or weeks, such as `30d`, in seconds."""

    name = "AGE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        found = re.fullmatch(r"(\d{1,5})([hdw])", str(value))
        if found is None or int(found[1]) == 0:
            self.fail(f"{value!r} is no age; write it as 12h, 30d or 8w", param, ctx)
        return float(int(found[1]) * UNITS_S[found[2]])


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def states() -> None:
    """Maintain the stored policy states."""


@states.command("prune")
@click.option("--older-than", type=Age(), required=True, help="Time since a context's last feedback: 12h, 30d, 8w.")
@click.option("--dry-run", is_flag=True, help="Count only; change nothing.")
@json_option
@with_settings
def prune_(settings: Settings, *, older_than: float, dry_run: bool, as_json: bool) -> None:
    """Forget the states of contexts without feedback for a long time.

    The states of whole applications stay. A context that comes back starts as a new one does. The deployment may run
    meanwhile. States without a date (an older version wrote them) stay; their time counts from the first run without
    --dry-run.
    """
    found = _pruned(settings, older_than, dry_run=dry_run)
    if as_json:
        print_json({**found._asdict(), "deleted": 0 if dry_run else found.old})
        return
    done = "would be forgotten" if dry_run else "are forgotten"
    echo(f"{found.old} of {found.contexts} contexts {done}, {found.size_bytes / 1e6:.1f} MB")
    if found.undated:
        echo(f"{found.undated} have no date; {'they stay' if dry_run else 'they are dated now'}")


def _pruned(settings: Settings, older_than_s: float, *, dry_run: bool) -> Pruned:
    where = settings.prefix, range(settings.partitions), older_than_s
    if settings.store.kind == "embedded":
        from streams.runtime.stores.sqlite import prune_file

        return prune_file(settings.store.file, *where, dry_run=dry_run)
    with connect_redis(settings) as client:
        return prune(client, *where, dry_run=dry_run)
