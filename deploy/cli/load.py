"""`skysail load`: lists scenarios, runs them on their own broker, compares their results."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.common import VerbGroup, json_option, print_json, print_table
from deploy.cli.load_stage import launcher, open_brokers, open_redis
from deploy.errors import UsageError
from deploy.local.redis import RedisServer
from deploy.local.services import APACHE, open_broker
from deploy.terminal import echo
from load.errors import MissingDataError, PeerUnavailableError
from load.harness.arrivals import POISSON, named
from load.harness.environment import Environment, broker_command, environment
from load.harness.system import Stage
from load.registry import COLLECTED, SCENARIOS, find
from load.results import report, results, targets
from load.results.compare import compare
from load.results.pages import beside_guide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.harness.arrivals import Arrivals
    from load.harness.environment import Environment
    from load.results.results import Result
    from load.scenario import Scenario

MISSED = 1  # exit status: a target was not reached, or a figure got worse or is gone

EXAMPLES = """\
skysail load list
skysail load list --json
skysail load run loop
skysail load run loop --seconds 20 --check
skysail load run loop --arrivals trace:azure.csv --seconds 60
skysail load run figure8 --seconds 30 --out reports/load --check
skysail load run peers --short --only floor_aiokafka --only skysail_shortest
skysail load run account --docs docs/account.md
skysail load run hostile --processes shared --short
skysail load run hostile --processes hosted --short
skysail load run seeds --hours 200 --check
skysail load run seeds --seed 4711 --trace
skysail load run seeds --nightly --hours 50 --check
skysail load page reports/load/peers.json reports/load/forest.json > docs/benchmark.md
skysail load page --of many-models reports/load/{clockwork,pretzel,nexus}.json > docs/many-models.md
skysail load page reports/a/parm.json reports/b/parm.json --docs docs/parm.md
skysail load run paper --only figure6 --only figure8
skysail load compare reports/before/loop.json reports/load/loop.json
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def load() -> None:
    """List, run and compare load scenarios."""


@load.command("list")
@json_option
def list_scenarios(*, as_json: bool) -> None:
    """Print the scenarios and their targets."""
    if as_json:
        print_json(
            {name: [asdict(target) for target in scenario.figures.targets] for name, scenario in SCENARIOS.items()}
        )
        return
    print_table(("SCENARIO", "WHAT IT SHOWS"), [(s.name, s.summary) for s in SCENARIOS.values()])


@load.command("run")
@click.argument("name")
@click.option(
    "--seconds", type=click.FloatRange(min=1), help="Length of a measured stretch [default: the scenario's own]."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of arrivals and ids.")
@click.option(
    "--arrivals", "arrivals_text", default="poisson", show_default=True, help="poisson, constant or trace:FILE.csv."
)
@click.option("--broker", default=lambda: os.environ.get("BROKER", APACHE), help="apache or HOST:PORT [$BROKER].")
@click.option("--redis", "redis_url", help="URL of a running Redis [default: start one].")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reports/load"), show_default=True)
@click.option("--docs", type=click.Path(path_type=Path, dir_okay=False), help="Also write the result as a page here.")
@click.option("--short", is_flag=True, help="Fewer rounds and rates, if the scenario has a short form.")
@click.option("--only", multiple=True, help="Run only this part, e.g. faust of peers; repeatable.")
@click.option(
    "--hours", type=click.FloatRange(min=0), default=200.0, show_default=True, help="Simulated hours of scenario seeds."
)
@click.option(
    "--processes",
    type=click.Choice(("each", "shared", "hosted")),
    default="each",
    show_default=True,
    help="Whether each role has a process, or selection, joiner and learner share one; or whether models have a host.",
)
@click.option("--trace", is_flag=True, help="Scenario seeds: run this seed alone and print all events.")
@click.option("--nightly", is_flag=True, help="Scenario seeds: go on behind the last seed that was ever run.")
@click.option("--check", is_flag=True, help="Exit with 1 if a target is missed.")
@json_option
def run(
    name: str,
    *,
    broker: str,
    redis_url: str | None,
    out: Path,
    docs: Path | None,
    check: bool,
    as_json: bool,
    arrivals_text: str,
    seconds: float | None,
    only: tuple[str, ...],
    short: bool,
    seed: int,
    hours: float,
    processes: str,
    trace: bool,
    nightly: bool,
) -> None:
    """Run scenario NAME, print its figures and write them to OUT.

    A trace is a CSV file with ISO times in a column TIMESTAMP. It is played at the scenario's rates.
    """
    scenario, arrivals = _checked(name, arrivals_text, docs)
    _check_parts(scenario, only, short=short)
    ways = {"each": True, "shared": scenario.any_processes, "hosted": scenario.hosted}
    if not ways[processes]:
        able = [
            other for other in SCENARIOS.values() if (other.hosted if processes == "hosted" else other.any_processes)
        ]
        others = ", ".join(other.name for other in able)
        raise UsageError(f"scenario {scenario.name} does not run {processes}; these can: {others}")
    stage = partial(
        Stage,
        arrivals=arrivals,
        seconds=seconds or scenario.seconds,
        only=only,
        short=short,
        seed=seed,
        hours=hours,
        trace=trace,
        nightly=nightly,
        processes=processes,
        brokers=open_brokers,
        redis=open_redis,
        out=out,
    )
    try:
        result, services = _measure(scenario, broker, redis_url, stage)
    except (MissingDataError, PeerUnavailableError) as error:
        raise UsageError(str(error)) from error
    path = results.write(result, out, services)
    if as_json:
        print_json(asdict(result))
    else:
        for table in scenario.tables(result) if scenario.tables else ():
            echo(*table.shown().split("\n"))
        echo(*report.describe(result, scenario.figures).split("\n"))
        echo(f"written to {path}")
    pages = [path for path in (docs, out / scenario.html if scenario.html else None) if path is not None]
    _write_pages(scenario, result, {**environment(), "broker": services["broker"]}, pages)
    if check and not all(verdict.reached for verdict in targets.verdicts(result, scenario.figures)):
        raise SystemExit(MISSED)


def _write_pages(scenario: Scenario, result: Result, machine: Environment, paths: list[Path]) -> None:
    """Write the page to every path that was asked for, and its pictures beside it."""
    if not scenario.page:
        return
    for path in paths:
        path.write_text(beside_guide(path, scenario.written(result, machine)), encoding="utf-8")
        for name, picture in (scenario.plots(result) if scenario.plots else {}).items():
            path.with_name(name).write_bytes(picture)
        echo(f"page written to {path}", err=True)


def _checked(name: str, arrivals_text: str, docs: Path | None) -> tuple[Scenario, Arrivals]:
    """Return scenario and arrivals; refuse wrong options before anything starts."""
    try:
        scenario, arrivals = find(name), named(arrivals_text)
    except (LookupError, ValueError) as error:
        raise UsageError(str(error.args[0])) from error
    if arrivals != POISSON and not scenario.any_arrivals:
        others = ", ".join(other.name for other in SCENARIOS.values() if other.any_arrivals)
        raise UsageError(f"scenario {name} has arrivals of its own; --arrivals goes with: {others}")
    if docs is not None and not scenario.page:
        raise UsageError(f"scenario {name} has no page; --docs goes with: {_with_pages()}")
    return scenario, arrivals


def _with_pages() -> str:
    return ", ".join(scenario.name for scenario in SCENARIOS.values() if scenario.page)


def _check_parts(scenario: Scenario, only: tuple[str, ...], *, short: bool) -> None:
    if short and not scenario.short:
        others = ", ".join(other.name for other in SCENARIOS.values() if other.short)
        raise UsageError(f"scenario {scenario.name} has no short form; these have: {others}")
    if only and not scenario.parts:
        others = ", ".join(other.name for other in SCENARIOS.values() if other.parts)
        raise UsageError(f"scenario {scenario.name} has no parts; these have: {others}")
    if unknown := set(only).difference(scenario.parts):
        raise UsageError(f"{scenario.name} has no part {min(unknown)}; it has: {', '.join(scenario.parts)}")


def _measure(
    scenario: Scenario, broker: str, redis_url: str | None, make: partial[Stage]
) -> tuple[Result, dict[str, str]]:
    """Start missing services, run the scenario, and stop them; returns the result and the services."""
    if scenario.offline:
        with tempfile.TemporaryDirectory(prefix="skysail-load-") as folder:
            stage = make("", launcher("", "", Path(folder)), Path(folder))
            return asyncio.run(scenario.run(stage)), {"broker": "none"}
    kafka = open_broker(broker, bench=True)
    redis = None if redis_url else RedisServer()
    try:
        if redis is not None:
            redis.start()
        url = redis_url or (redis.url if redis is not None else "")
        with tempfile.TemporaryDirectory(prefix="skysail-load-") as folder:
            launch = launcher(kafka.bootstrap, url, Path(folder) / "runs")
            stage = make(kafka.bootstrap, launch, Path(folder), redis_url=url)
            command = broker_command(kafka.bootstrap.split(",")[0])
            result = asyncio.run(scenario.run(stage))
        return result, {"broker": "; ".join(filter(None, (kafka.description, command)))}
    finally:
        if redis is not None:
            redis.stop()
        kafka.stop()


@load.command("page")
@click.argument(
    "paths", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option("--of", "collected", type=click.Choice([*COLLECTED]), help="One page of several scenarios.")
@click.option(
    "--docs", type=click.Path(path_type=Path, dir_okay=False), help="Write the page here, and its pictures beside it."
)
def print_page(paths: tuple[Path, ...], collected: str | None, docs: Path | None) -> None:
    """Print results as a page of the documentation. Each needs `environment.json` beside it.

    Parts of a scenario that were run one by one make one page.
    """
    try:
        found = [(results.read(path), results.read_environment(path)) for path in paths]
        if docs is not None:
            _write_page(found, collected, docs)
            return
        pages = (
            [COLLECTED[collected](found)] if collected is not None else [_page(*each) for each in results.joined(found)]
        )
    except (LookupError, ValueError) as error:
        raise UsageError(str(error.args[0])) from error
    click.echo("\n".join(pages), nl=False)


def _write_page(found: Sequence[tuple[Result, Environment]], collected: str | None, docs: Path) -> None:
    pages = results.joined(found)
    if collected is not None or len(pages) != 1:
        raise UsageError(
            "--docs takes the results of one scenario, with the same parameters; without it pages are printed"
        )
    ((result, machine),) = pages
    _page(result, machine)  # or say that there is none
    _write_pages(find(result.scenario), result, machine, [docs])


def _page(result: Result, machine: Environment) -> str:
    scenario = find(result.scenario)
    if not scenario.page:
        raise UsageError(f"scenario {scenario.name} has no page; these have: {_with_pages()}")
    return scenario.written(result, machine)


@load.command("compare")
@click.argument("base", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("head", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
def compare_results(base: Path, head: Path, *, as_json: bool) -> None:
    """Compare two results of one scenario.

    The exit code is 1 if a figure got worse by more than its tolerance, or is gone.
    """
    try:
        before = results.read(base)
        comparison = compare(before, results.read(head), find(before.scenario).figures)
    except (LookupError, ValueError) as error:
        raise UsageError(str(error.args[0])) from error
    if as_json:
        gone = {name: [before.figures[name], None, True] for name in comparison.only_base}
        print_json(gone | {change.figure: [change.base, change.head, change.worse] for change in comparison.changes})
    else:
        echo(*report.describe_comparison(comparison).split("\n"))
    if comparison.failed:
        raise SystemExit(MISSED)
