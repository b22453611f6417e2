"""`skysail map`: what an application makes of the topics of others, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploy.cli import mapped
from deploy.cli.common import VerbGroup, json_option, with_settings

if TYPE_CHECKING:
    from deploy.config.settings import Settings

EXAMPLES = """\
skysail map check fraud                 the last hundred records of each topic that it reads
skysail map check fraud --count 5 --json
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def map() -> None:  # noqa: A001 - the verb
    """See what an application makes of topics that are not Skysail's own."""


@map.command()
@click.argument("name", metavar="APPLICATION")
@mapped.count_option
@json_option
@with_settings
def check(settings: Settings, name: str, count: int, *, as_json: bool) -> None:
    """Map the last records of each topic that APPLICATION reads, and print what comes of them; nothing is written.

    The application is taken as the settings say it, else as it is deployed. Exits with 1 if a record cannot be mapped.
    """
    mapped.check(settings, name, count, as_json=as_json, feedback_alone=False)
