"""`skysail simulate`: what a deployment would do, before it is there; and what one that is there costs a query."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from deploy.cli.common import Verb, json_option, print_json, print_table
from deploy.cli.simulation_page import describe, left_out
from deploy.config import plan as plans
from deploy.errors import UsageError
from deploy.terminal import echo
from workers.simulation.calibration import Calibration, calibrate
from workers.simulation.errors import PlanError
from workers.simulation.simulator import simulate as simulated

if TYPE_CHECKING:
    from workers.simulation.plan import SimulationPlan
    from workers.simulation.run import Run

EXAMPLES = """\
skysail simulate plan.yaml
skysail simulate plan.yaml --workers 1..8
skysail simulate plan.yaml --workers forest=1..4 --json
skysail simulate --calibrate overheads.json --seconds 30        watch the running deployment
skysail simulate --calibrate overheads.json --from FOLDER       a recorded trace

plan.yaml:
  arrivals: {poisson: 400}
  models:
    forest: {service: {a_ms: 5, b_ms: 1}}
  application: {slo_ms: 50, wanted: 0.99}
  seconds: 60
"""
_WORKERS = re.compile(r"(?:(?P<model>[a-z0-9-]+)=)?(?P<least>\d+)(?:\.\.(?P<most>\d+))?")


class Sweep(NamedTuple):
    """Which numbers of workers to try, of a model or of each."""

    model: str
    least: int
    most: int


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("path", metavar="[PLAN]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--workers", help="Try so many workers of each model, e.g. 1..8, or of one: NAME=1..8.")
@click.option("--seed", type=click.IntRange(min=0), help="Instead of the plan's seed.")
@click.option(
    "--calibrate",
    "out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write what queries cost beside their models to this file.",
)
@click.option("--from", "trace", type=click.Path(path_type=Path), help="With --calibrate: a recorded trace's folder.")
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="With --calibrate: how long."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --calibrate: the settings of the deployment.",
)
@json_option
def simulate(path: Path | None, *, workers: str | None, seed: int | None, as_json: bool, **calibrating: Any) -> None:
    """Simulate PLAN: latencies, the share in time, what workers do. The worker's own batching decides.

    With --workers, the least number of them that answers the wanted share in time is named; the exit code is 1 if none
    does. With --calibrate, a running deployment is watched while it answers its queries.
    """
    if (path is None) == (calibrating["out"] is None):
        raise UsageError("give either a PLAN, or --calibrate FILE; see skysail simulate --help")
    if path is not None and (calibrating["trace"] or calibrating["config"]):
        raise UsageError("--from and --config go with --calibrate; a plan names its trace as arrivals.trace")
    if path is None:
        _calibrate(as_json=as_json, **calibrating)
        return
    given = plans.read(path)
    if workers is None:
        found = _run(given, path.parent, seed)
        if as_json:
            print_json(found.as_dict())
        else:
            echo(*describe(found).split("\n"))
        return
    _sweep(given, path.parent, seed, _sweep_of(workers), as_json=as_json)


def _run(given: plans.PlanOf, folder: Path, seed: int | None, sweep: Sweep | None = None, count: int = 0) -> Run:
    plan, random = plans.made(given, folder, seed)
    return simulated(plan if sweep is None else _with(plan, sweep, count), random)


def _with(plan: SimulationPlan, sweep: Sweep, count: int) -> SimulationPlan:
    try:
        return plan.with_workers(count, sweep.model)
    except PlanError as error:
        raise UsageError(f"--workers: {error}") from error


def _sweep_of(text: str) -> Sweep:
    match = _WORKERS.fullmatch(text)
    if match is None:
        raise UsageError(f"--workers is {text!r}; write 4, 1..8 or NAME=1..8")
    least = int(match["least"])
    most = int(match["most"] or least)
    if not 1 <= least <= most:
        raise UsageError(f"--workers is {text!r}; it must rise from 1 or more")
    return Sweep(match["model"] or "", least, most)


def _sweep(given: plans.PlanOf, folder: Path, seed: int | None, sweep: Sweep, *, as_json: bool) -> None:
    """Simulate each number of workers with the same arrivals; print them, and the least that will do."""
    runs = {count: _run(given, folder, seed, sweep, count) for count in range(sweep.least, sweep.most + 1)}
    enough = next((count for count, run in runs.items() if run.reaches), None)
    application = given.application
    if as_json:
        print_json({"workers": {count: run.as_dict() for count, run in runs.items()}, "enough": enough})
    else:
        for line in left_out(runs[sweep.least].plan):
            echo(line)
        print_table(
            ("workers", "in time", "p50 ms", "p99 ms", "in time/s", "busy"),
            [_line(count, run) for count, run in runs.items()],
        )
        goal = f"{application.wanted:.4g} of the queries in {application.slo_ms:g} ms"
        named = f"{sweep.model}: " if sweep.model else ""
        echo(f"{named}least number of workers for {goal}: {enough or 'none of these'}")
    if enough is None:
        raise SystemExit(1)


def _line(count: int, run: Run) -> tuple[str, ...]:
    figures = run.figures()
    busy = max(run.model_figures(model)["utilisation"] for model in range(len(run.journals)))
    return (
        str(count),
        f"{figures['share_in_time']:.2%}",
        f"{figures['p50_ms']:.1f}",
        f"{figures['p99_ms']:.1f}",
        f"{figures['in_time_per_s']:,.0f}",
        f"{busy:.0%}",
    )


def _calibrate(*, out: Path, trace: Path | None, seconds: float, config: Path | None, as_json: bool) -> None:
    """Write what a deployment's log tells."""
    try:
        found = _from_trace(trace) if trace is not None else _watched(config, seconds)
    except PlanError as error:
        raise UsageError(str(error)) from error
    out.write_text(json.dumps(found.as_dict()), encoding="utf-8")
    legs = found.legs
    means = {name: getattr(legs, name).mean_us / 1e3 for name in ("ask", "dispatch", "reply", "answer")}
    if as_json:
        print_json({"written": str(out), "turnaround_ms": legs.turnaround_us / 1e3, "mean_ms": means})
        return
    print_table(("leg", "mean ms"), [(name, f"{mean:.2f}") for name, mean in means.items()])
    echo(f"between two batches of a worker: {legs.turnaround_us / 1e3:.2f} ms")
    echo(f"service times of: {', '.join(sorted(found.samples)) or 'none'}")
    echo(f"written to {out}; a plan names it as overheads.calibration and models.NAME.service.calibration")


def _from_trace(folder: Path) -> Calibration:
    from deploy.config.recorded import logged

    return calibrate(*logged(folder), f"the trace {folder.name}")


def _watched(config: Path | None, seconds: float) -> Calibration:
    from deploy.config.configuration import load
    from deploy.connect.schema_registry import codec_for
    from deploy.connect.watching import watch

    settings = load(config)
    seen = asyncio.run(watch(settings, codec_for(settings), seconds))
    return calibrate(*seen, f"{seconds:g} s of the deployment {settings.prefix}")
