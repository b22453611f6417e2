"""Lets the version that served before serve again, and says how it fared."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console

from deploy.cli.common import print_json
from deploy.errors import UsageError
from deploy.process.progress import shown
from deploy.state import desired
from deploy.state.version_losses import Fared, fared
from deploy.terminal import echo
from streams.promotion.verdict import bounds

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Model, Service
    from streams.promotion.evidence import Evidence


def go(settings: Settings, codec: Codec, name: str, *, force: bool, as_json: bool) -> None:
    """Go back to the version that served before.

    Args:
        settings: of the deployment.
        codec: of its records.
        name: of the model.
        force: also if that is known to be worse: nothing is read then.
        as_json: for scripts.

    Raises:
        UsageError: there is none, or it is known to be worse.
    """
    serving, before = desired.former(settings, codec, name)
    known = Fared(serving, before.version)
    if not force:
        with shown(None if as_json else Console(stderr=True)) as progress:
            known = fared(settings, codec, serving, before.version, progress)
        _check(serving, before, known.evidence)
    desired.switch(settings, codec, name, before.version, takes_back=True)
    if as_json:
        losses = {version: each._asdict() | {"mean": each.mean} for version, each in known.losses.items()}
        print_json({"model": name, "served": serving.version, "serves": before.version, "losses": losses})
        return
    for line in told(serving, before, known, time.time_ns() // 1000):
        echo(line)


def _check(serving: Model, before: Service, evidence: Evidence) -> None:
    """Refuse a version that is known to be worse than the one that serves."""
    if evidence.upper < 0.0:
        name = serving.name
        raise UsageError(
            f"{name} {before.version} is worse than {serving.version}: {evidence.pairs:,} comparisons;"
            f" {bounds(evidence)}. To go back to it all the same: skysail model rollback {name} --force; to another"
            f" version: skysail model use {name} ..."
        )


def told(serving: Model, before: Service, known: Fared, now_us: int) -> list[str]:
    """Return what serves from now on, how it and the one that served until now have fared, and the way back."""
    name = serving.name
    evidence = known.evidence
    lines = [
        f"{name} {before.version} serves again, no longer {serving.version}, as soon as its workers have loaded it",
        _fared(name, before.version, before.since_us, before.until_us, known),
        _fared(name, serving.version, serving.since_us, now_us, known),
    ]
    if evidence.pairs:
        beside = _beside(before.version, serving.version, evidence)
        lines.append(f"side by side, by {evidence.pairs:,} comparisons: {beside}")
    return [*lines, f"to undo that: skysail model use {name} {serving.version}"]


def _beside(version: str, other: str, evidence: Evidence) -> str:
    """Say what a version costs more or less than another one; evidence has it as what it costs less."""
    is_more = evidence.difference < 0
    least, most = (-evidence.upper, -evidence.lower) if is_more else (evidence.lower, evidence.upper)
    word = "more" if is_more else "less"
    return f"{version} cost {abs(evidence.difference):.3f} {word} an answer than {other} [{least:.3f}, {most:.3f}]"


def _fared(name: str, version: str, since_us: int, until_us: int, known: Fared) -> str:
    """Say how long a version served, until when, and what its answers cost."""
    served = "served"
    if since_us and until_us:
        end = time.strftime("%m-%d %H:%M", time.localtime(until_us / 1e6))
        served = f"served for {_span(until_us - since_us)}, until {end}"
    losses = known.losses.get(version)
    cost = f"mean loss {losses.mean:.3f} of {losses.answers:,} answers" if losses else "what it cost is not known"
    return f"{name} {version} {served}; {cost}"


def _span(us: int) -> str:
    """Return a time for a person, such as 2 h 10 min."""
    minutes = us // 60_000_000
    days, hours = minutes // 1_440, minutes // 60 % 24
    if days:
        return f"{days:,} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min" if minutes else f"{us / 1e6:.0f} s"
