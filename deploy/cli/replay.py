"""`skysail replay`: what was recorded, asked again."""

from __future__ import annotations

import asyncio
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.cli.offline import as_it_was
from deploy.cli.what_if import WhatIfQuestion, what_if
from deploy.connect.clients import asking
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.terminal import echo
from schemas import topics
from streams.player.player import PLAYED, Play, Player
from streams.runtime.clock import SystemClock
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from deploy.config.settings import Settings

EXAMPLES = """\
skysail replay yesterday --speed 20 --prefix staging      onto another deployment
skysail replay yesterday --new-ids                        onto the one that was recorded
skysail replay yesterday --speed 20 --json
skysail replay yesterday --offline                        through the kernels alone: must come out as it was
skysail replay yesterday --offline --stored               and the states as they are stored
skysail replay yesterday --offline --packages models/forest   and that model answers the same today
skysail replay yesterday --offline --set policy=thompson  what if that policy had chosen?
"""
SHOW_S = 0.5


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--speed", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Divides time.")
@click.option("--prefix", help="Of the deployment that is asked [default: the settings' one].")
@click.option("--new-ids", is_flag=True, help="Give queries new ids; a deployment that knows an id may not ask again.")
@click.option("--wait", "drain_s", type=float, default=10.0, show_default=True, help="Seconds for the last answers.")
@click.option("--offline", is_flag=True, help="Through the kernels, without a deployment: is all as it was?")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="With --offline: what if this were so?")
@click.option("--app", "application", help="With --set: the application [default: the only one in the trace].")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="With --set: write a page with plots.")
@click.option(
    "--packages",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="With --offline: a model's package; it answers again. With --set it answers what is not recorded.",
)
@click.option("--stored", is_flag=True, help="With --offline: compare the last states with those in Redis.")
@json_option
@with_settings
def replay(
    settings: Settings,
    folder: Path,
    *,
    speed: float,
    prefix: str | None,
    new_ids: bool,
    drain_s: float,
    offline: bool,
    changes: tuple[str, ...],
    application: str | None,
    html: Path | None,
    packages: tuple[Path, ...],
    stored: bool,
    as_json: bool,
) -> None:
    """Ask a running deployment the queries of the trace in FOLDER again, each at its time divided by the speed.

    Feedback is sent when the answer to its query has come, after the delay that was recorded. Nobody waits for an
    answer before the next query is sent; the last lines say how far the sending fell behind. If no answer came at all,
    the exit status is 1.

    With --offline nobody is asked. The kernels do all again from what is recorded, in virtual time. Decisions, answers,
    observations, states and steps of candidates must be the same, bit for bit, and nothing may be missing. Else every
    difference is printed, and the exit status is 1. Models whose --packages are given answer again.

    With --set one thing is changed, for one application: `policy=thompson`, `policy.eta=0.1`, `slo_ms=50`,
    `models=a,b`, `window_s`, `default_loss`, `combine`, `confidence_floor`, `coverage`, `missing`, `per_context` or
    `spread`. The loop runs in virtual time with it and without, on the outputs and times that are recorded. What is not
    recorded the models answer whose --packages are given. Other queries are left out and counted.
    """
    if changes and not offline:
        raise UsageError("--set goes with --offline: a running deployment is what it is")
    if changes:
        what_if(settings, folder, WhatIfQuestion(changes, application, html, packages, as_json))
        return
    if offline:
        as_it_was(settings, folder, packages, stored=stored, as_json=as_json)
        return
    there = settings.model_copy(update={"prefix": prefix}) if prefix else settings
    trace = Trace.open(folder)
    if topics.QUERIES not in trace.topics():
        message = f"{folder} holds no queries; record them: `skysail record` does so unless --topics says otherwise"
        raise UsageError(message)
    play = Play(speed, secrets.token_hex(8), secrets.token_hex(8) if new_ids else None, drain_s)
    score = asyncio.run(_played(there, trace, play))
    if as_json:
        print_json(score)
    else:
        _print(score)
    if score["sent"] and not score["answered"]:
        echo(_nobody(there.prefix), err=True)
        raise SystemExit(1)


def _nobody(prefix: str) -> str:
    return f"nobody answered at prefix {prefix}: is a deployment running there? SKYSAIL_PREFIX={prefix} skysail doctor"


async def _played(settings: Settings, trace: Trace, play: Play) -> dict[str, Any]:
    """Play the trace until its end or a signal; return the score."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    codec = codec_for(settings)
    records = trace.merged([topic for topic in PLAYED if topic in trace.topics()])
    async with asking(settings, codec) as client:
        player = Player(client, codec, records, play, SystemClock().now_us)
        showing = asyncio.create_task(_show(player, trace, play.speed))
        try:
            score = await player.run(stop)
        finally:
            showing.cancel()
            await asyncio.wait([showing])
    return score.summary()


async def _show(player: Player, trace: Trace, speed: float) -> None:
    """Show how far it is, on a terminal."""
    queries = trace.manifest.topics[topics.QUERIES].count
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=queries)
        while True:
            said = f"replaying at {speed:g}x: {player.score.answered:,} answered"
            bar.update(task, completed=player.score.sent, description=said)
            await asyncio.sleep(SHOW_S)


def _print(score: dict[str, Any]) -> None:
    share = score["share_in_time"]
    lost = score["lost"]
    again = f" ({score['repeated']:,} with an id that was sent before)" if score["repeated"] else ""
    echo(f"{score['sent']:,} queries sent{again}, {score['answered']:,} answered, {lost:,} without an answer")
    if share is not None:
        echo(f"in time: {share:.2%}; p50 {_ms(score['p50_ms'])}, p99 {_ms(score['p99_ms'])}")
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in score["reasons"].items())
    echo(f"default outputs: {score['defaults']:,}{f' ({reasons})' if reasons else ''}")
    unsent = score["without_answer"]
    echo(f"feedback: {score['feedback']:,} sent, {unsent:,} whose query had no answer; {score['left_out']:,} left out")
    echo(f"the sending fell behind by {_ms(score['behind_p99_ms'])} (p99), {_ms(score['behind_max_ms'])} at most")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
