"""Finds with MLCommons' LoadGen the rate at which a contender still answers 99 % within an objective.

Short stretches of the harness's own find where to begin, by halves. One of them may fall into a busy moment of the
machine, so a rate is looked at twice before it counts as too much, and they decide nothing. LoadGen does, over a
minute. Each of its runs is read in two ways. As peers are judged, 99 % have to be in time, and a default, which it gets
when it is too late, is one that is not. Read strictly, no answer may be a default. Where a reading says no, LoadGen is
asked about the next lower rate, and else about the next higher one, until it has answered on both sides of both
readings, six times at most.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil

from load.errors import PeerFailedError
from load.harness.processes import rest
from load.research.peers import environments, running
from load.research.peers.loadgen_case import Case, Judgement
from load.research.peers.measurement import asked
from load.research.peers.task import MODEL
from load.research.peers.wire_formats import V2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from load.research.peers.answer_audit import Tally
    from load.research.peers.client import Client
    from load.research.peers.contenders import Contender
    from load.research.peers.running import Ground

ENVIRONMENT = "loadgen"
OBJECTIVE_MS = 50.0
SECONDS = 60.0  # of its own rules for the Server scenario
RATES = tuple(round(1_000 * 2 ** (half / 2), -2) for half in range(13))  # to 64,000
_TRIES = 6
_LOOKS, _LOOK_S, _SHARE = 2, 3.0, 0.99
_LIMIT_S = 60.0  # more than its minute
_TAIL_CHARS = 300


async def bounded_rate(contender: Contender, ground: Ground, setting: Mapping[str, object]) -> dict[str, Any]:
    """Return a row: all rates that LoadGen was asked about, and what it said.

    A contender or a judge that fails costs nobody else their figures: the row says why, and ends there.
    """
    row: dict[str, Any] = {"system": contender.name, "label": contender.label, "kind": contender.kind, "tried": []}
    try:
        async with asked(contender, ground, setting) as client:
            await asyncio.to_thread(_judged, contender, client, row)
    except PeerFailedError as error:
        row["failed"] = str(error)
    return row


def _judged(contender: Contender, client: Client, row: dict[str, Any]) -> None:
    client.slo_ms = OBJECTIVE_MS
    index: int | None = highest(lambda at: _looks_well(client, RATES[at]), len(RATES))
    while index is not None:
        try:
            rest(client.running.pids)  # until it has worked off the rate before
            judgement = _judge(_case(contender, client, RATES[index]), client.ground.stage.folder / "path")
        except (PeerFailedError, psutil.NoSuchProcess) as error:
            row["failed"] = str(error)
            return
        row["tried"].append({"rate_per_s": RATES[index], **asdict(judgement)})
        index = next_rate(row["tried"])


def _looks_well(client: Client, rate_per_s: float) -> bool:
    return any(holds(client.stretch(rate_per_s, _LOOK_S, _LIMIT_S).tally) for _ in range(_LOOKS))


def next_rate(tried: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the index of the rate to ask about next, for the strict reading and then for the other; None = no more.

    Args:
        tried: what LoadGen said so far, by rate.
    """
    if len(tried) == _TRIES:
        return None
    asked = {RATES.index(said["rate_per_s"]) for said in tried}
    for does in (_has_no_default, _is_in_time):
        good = [RATES.index(said["rate_per_s"]) for said in tried if does(said)]
        index = max(good) + 1 if good else min(asked) - 1
        if index not in asked and 0 <= index < len(RATES):
            return index
    return None


class Verdict(NamedTuple):
    """The highest rates (1/s) that hold in one reading of LoadGen's runs and in the other, 0 where there is none.

    Attributes:
        in_time_per_s: LoadGen says VALID: 99 % are in time, and a default is late. So are peers judged.
        no_default_per_s: it says so, and no answer was a default: a stricter reading of the same runs.
    """

    in_time_per_s: float
    no_default_per_s: float


def verdict(tried: Sequence[Mapping[str, Any]]) -> Verdict:
    """Return what LoadGen's answers come to; `tried` is what it said, by rate."""
    readings = _is_in_time, _has_no_default
    return Verdict(*(max((said["rate_per_s"] for said in tried if does(said)), default=0.0) for does in readings))


def _is_in_time(said: Mapping[str, Any]) -> bool:
    return bool(said["valid"])


def _has_no_default(said: Mapping[str, Any]) -> bool:
    return _is_in_time(said) and not said["defaults"]


def holds(tally: Tally) -> bool:
    """Tell whether 99 % are right and within the objective, and nothing is missing; a default is neither."""
    return not tally.missing and tally.goodput_per_s(OBJECTIVE_MS, 1.0) >= _SHARE * tally.asked


def highest(does: Callable[[int], bool], count: int) -> int:
    """Return the highest number below `count` that does, by halves, as if all below one that does would; 0 if none."""
    least, beyond = 0, count
    while beyond - least > 1:
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if does(middle) else (least, middle)
    return least


def _case(contender: Contender, client: Client, rate: float) -> Case:
    ground = client.ground
    folder = ground.stage.folder / f"judge-{client.running.prefix}-{rate:.0f}"
    folder.mkdir()
    rows = folder / "rows.npy"
    np.save(rows, ground.data.test_x)
    labels = folder / "labels.npy"
    np.save(labels, ground.data.test_y)
    return Case(
        bootstrap=ground.stage.bootstrap,
        prefix=client.running.prefix,
        sink=client.running.sink,
        application=running.APPLICATION,
        model=MODEL if isinstance(contender.wire_format, V2) else "",
        rows=str(rows),
        rate_per_s=rate,
        seconds=SECONDS,
        objective_ms=OBJECTIVE_MS,
        seed=1_000_000 + int(rate),
        folder=str(folder),
        direct=contender.kind == "direct",
        labels=str(labels) if contender.feedback else "",
    )


def _judge(case: Case, path: Path) -> Judgement:
    python = environments.root() / ENVIRONMENT / "bin" / "python"
    command = (str(python), "-P", "-m", "load.research.peers.loadgen_process", json.dumps(asdict(case)))
    try:
        done = subprocess.run(  # noqa: S603  # our own command
            command,
            cwd=case.folder,
            env=running.variables(path),
            capture_output=True,
            text=True,
            timeout=case.seconds + _LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerFailedError(f"LoadGen was not done in time at {case.rate_per_s:g}/s") from error
    if done.returncode != 0:
        raise PeerFailedError(f"LoadGen ended with {done.returncode}: {done.stderr[-_TAIL_CHARS:]}")
    return Judgement(**json.loads(done.stdout.splitlines()[-1]))
