"""`skysail metrics`: what others need to show and watch the figures."""

from __future__ import annotations

import click

from deploy.cli.common import VerbGroup
from deploy.figures import rendered

EXAMPLES = """\
skysail metrics rules > skysail-rules.yaml           alert rules for Prometheus
skysail metrics dashboard > skysail-dashboard.json   a dashboard for Grafana
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def metrics() -> None:
    """Write alert rules for Prometheus, and a dashboard for Grafana."""


@metrics.command()
def rules() -> None:
    """Print alert rules: each says what is wrong and which command to type next."""
    click.echo(rendered.rules(), nl=False)


@metrics.command()
def dashboard() -> None:
    """Print a dashboard; Grafana asks for its data source when it is imported."""
    click.echo(rendered.dashboard())
