"""`skysail demo`: the whole loop for a minute."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from deploy.cli.common import Verb
from deploy.demo.run import demo as run_demo
from deploy.demo.stage import DemoPlan

EXAMPLES = """\
skysail demo
skysail demo --seconds 1800 --rate 50       with time to record, evaluate and promote: docs/replay.md
skysail demo --broker embedded              without Java and jars
skysail demo --broker 127.0.0.1:9092        on a broker that runs already
DEMO_SECONDS=20 BROKER=apache make demo     the same from a fresh clone
"""


@click.command(cls=Verb, epilog=EXAMPLES)
@click.option("--broker", envvar="BROKER", default="apache", show_default=True, help="apache, embedded or HOST:PORT.")
@click.option("--seconds", envvar="DEMO_SECONDS", type=click.FloatRange(3), default=60, show_default=True)
@click.option("--rate", envvar="DEMO_RATE", type=click.FloatRange(1, 2000), default=100, show_default=True)
@click.option(
    "--seed", envvar="DEMO_SEED", default=7, show_default=True, help="Seed of the split, the queries and the arrivals."
)
@click.option("--reports", type=click.Path(path_type=Path), default=Path("reports"), show_default=True)
def demo(broker: str, seconds: float, rate: float, seed: int, reports: Path) -> None:
    """Watch five models compete, one break, and the policy walk away from it.

    Then a new version of another model answers a share of its queries (a canary), and later all of them. A third of the
    queries repeat a recent image; the prediction cache answers many. In a second act, a quarter as long, two contexts
    send queries. A different model is best for each, and each learns that.

    Other commands can look at it while it runs, and record it: it says what to export for them. `--seconds 1800` leaves
    time for that. The last line says what another policy would have cost, by the run's own log.

    The demo starts a broker, Redis and every role, sends queries and feedback, writes a report and stops everything.
    Ctrl-C ends it early, with a report of what ran so far. A second Ctrl-C ends it at once.
    """
    run_demo(DemoPlan(broker, seconds, rate, seed, reports), Console())
