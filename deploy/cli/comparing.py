"""`skysail model compare`: how two versions have fared side by side, by a log alone."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.cli.states import Age
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.process.progress import shown
from deploy.state.evidence import fold
from deploy.state.priced import priced
from deploy.state.read_log import ReadLog
from deploy.terminal import echo
from schemas.records import Application, Candidate, Model
from streams.promotion.guardrails import watched_of
from streams.promotion.lifecycle import VERSION
from streams.promotion.version_report import VersionReading, lines

if TYPE_CHECKING:
    from deploy.config.settings import Settings

trace_argument = click.argument("trace", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
since_option = click.option("--since", type=Age(), help="Observations of the last so much of the log: 12h, 7d [all].")
alpha_option = click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="What bounds may miss.",
)


@click.command(cls=Verb)
@click.argument("candidate", metavar="NAME@VERSION")
@trace_argument
@click.option("--against", help="The version it is compared with  [default: the one that serves]")
@click.option("--application", default="", help="Whose losses count  [default: of all that ask the model]")
@since_option
@alpha_option
@json_option
@with_settings
def compare(
    settings: Settings,
    candidate: str,
    trace: Path | None,
    *,
    against: str | None,
    application: str,
    since: float | None,
    alpha: float,
    as_json: bool,
) -> None:
    """Say how VERSION of model NAME has fared beside another one, and what the guardrails say; nothing is changed.

    Read is the log of the running deployment, or a TRACE that `skysail record` has made of it. Where people draw,
    everybody counts once a draw, those of the last hour by what they have cost so far. So the bounds hold for this
    look. What takes over goes by `skysail model promote`.
    """
    log = ReadLog.of(settings, codec_for(settings), trace)
    plan, wanted = _plan(log, candidate, against, application, alpha)
    if since is not None:
        plan = replace(plan, since_us=log.end_us - int(since * 1e6))
    reading = VersionReading(plan, log.window.memory_us, application)
    with shown(None if as_json else Console(stderr=True)) as progress:
        fold(log, reading.take, plan.since_us, progress, measure=reading.measure if plan.metrics else None)
    found = reading.report(log.end_us, wanted)
    if as_json:
        metrics = [one._asdict() | {"verdict": said} for one, said in zip(found.metrics, found.verdicts, strict=True)]
        more = {"evidence": asdict(found.evidence), "metrics": metrics, "drawn_otherwise": found.is_drawn_otherwise}
        print_json({"candidate": plan.candidate, "incumbent": plan.incumbent} | {**found._asdict(), **more})
        return
    known = [each for each in log.latest(Application).values() if each.name in reading.applications]
    echo(*lines(plan, found, priced(known, found.evidence)))


def _plan(
    log: ReadLog, candidate: str, against: str | None, application: str, alpha: float
) -> tuple[Candidate, float | None]:
    """Return a wish as if the version were to take over, and its share of what both answer.

    Raises:
        UsageError: the log has no such model, or no two versions are named.
    """
    name, _, version = candidate.partition("@")
    if not version:
        raise UsageError(f"{candidate} names no version; write it as {name or 'forest'}@2")
    models = log.latest(Model)
    if name not in models:
        raise UsageError(f"there is no model {name}; there are: {', '.join(sorted(models)) or 'none'}")
    serving = models[name]
    incumbent = serving.version if against is None else against
    if version == incumbent:
        raise UsageError(f"{name} {version} serves; name the version that it is compared with: --against VERSION")
    asking = [each for each in log.latest(Application).values() if name in each.asks]
    counted = [each for each in asking if application in ("", each.name)]
    if not counted:
        raise UsageError(f"{application or 'no application'} does not ask {name}")
    metrics = tuple([watched for each in counted for watched in watched_of(each)])
    plan = Candidate(VERSION, name, version, incumbent, 0, (1.0,), alpha=alpha, metrics=metrics)
    return plan, _share(serving, version, incumbent)


def _share(serving: Model, version: str, incumbent: str) -> float | None:
    """Return what share of those that met one of two versions should have met the first; None = they do not draw."""
    shares = {**serving.shares, serving.version: 1.0 - sum(serving.shares.values())}
    mine, its = shares.get(version, 0.0), shares.get(incumbent, 0.0)
    return mine / (mine + its) if mine and its else None
