"""Plays public traces onto a deployment."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from importlib import metadata
from typing import TYPE_CHECKING

from load.figures import DEFAULTS, FAULTS, NONE, RIGHT, SHOWN, SHOWN_MS, quantiles_ms
from load.harness.data import need
from schemas.codec import Codec
from streams.client import Client
from streams.player.player import PLAYED, Play, Player
from streams.runtime.clock import SystemClock
from streams.trace.importing import imported
from streams.trace.manifest import TraceManifest
from streams.trace.mapping import TraceMapping
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from load.harness.system import Stage
    from streams.operators.contract import Record
    from streams.player.score import Score

DRAIN_S = 60.0
ANSWERS = (
    *SHOWN("queries"),
    *RIGHT("answered"),
    *FAULTS("lost", "doubled", "refused", must=NONE),
    *DEFAULTS("defaults"),
    *quantiles_ms("", "p50", "p99", "max"),
    *SHOWN_MS("behind_p99_ms", "behind_max_ms"),
)


def made(stage: Stage, file: Path, mapping: Mapping[str, object]) -> Trace:
    """Return a public file as a trace.

    Raises:
        MissingDataError: it is not there.
    """
    need(file)
    about = TraceManifest("imported", metadata.version("skysail"), source=file.name)
    folder = stage.folder / file.stem
    imported(file, TraceMapping.parse(mapping), folder, about, Codec())
    return Trace.open(folder)


async def played(
    stage: Stage, prefix: str, trace: Trace, speed: float, seconds: float | None = None, slo_us: int | None = None
) -> Score:
    """Play a trace, or its first `seconds` in its own time, onto a deployment."""
    codec = Codec()
    records = _beginning(trace.merged([topic for topic in PLAYED if topic in trace.topics()]), seconds)
    play = Play(speed, secrets.token_hex(8), drain_s=DRAIN_S, slo_us=slo_us)
    async with Client(stage.bootstrap, prefix, stage.properties, codec=codec) as client:
        return await Player(client, codec, records, play, SystemClock().now_us).run(asyncio.Event())


def _beginning(records: Iterator[Record], seconds: float | None) -> Iterator[Record]:
    first = next(records)
    end_us = None if seconds is None else first.timestamp_us + seconds * 1e6
    return itertools.takewhile(
        lambda record: end_us is None or record.timestamp_us < end_us, itertools.chain((first,), records)
    )


def answers(score: Score) -> dict[str, float]:
    """Return the figures in `ANSWERS`."""
    said = score.summary()
    names = ("answered", "lost", "doubled", "refused", "defaults", "p50_ms", "p99_ms", "max_ms")
    found = {name: said[name] for name in (*names, "behind_p99_ms", "behind_max_ms")}
    return {"queries": float(score.sent), **{name: float(value or 0) for name, value in found.items()}}
