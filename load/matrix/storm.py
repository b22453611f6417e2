"""The row of a storm: workers of one model come and go at random, and their group is balanced anew all the time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from load.harness.progress import say
from load.matrix.broken import Broken, Seen
from streams.topology import worker_role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from load.matrix.broken import Place

STORM: Final = "storm"
ON: Final = 0.6  # of the time each worker is there
QUERIES: Final = 500_000
_MOST_S, _SHORT_S = 1_500.0, 60.0
_EACH_S: Final = 10.0  # between two draws of a worker: of a dozen there is one a second
_LOOK_S: Final = 1.0
_SAY_S: Final = 60.0
_MODEL: Final = "right"


class Draw(NamedTuple):
    """Whether a worker is there, from so many seconds after its last draw; whether it is asked to end, or killed."""

    after_s: float
    is_on: bool
    is_asked: bool


def draws(seed: str) -> Iterator[Draw]:
    """Yield what becomes of one worker."""
    random = Random(seed)  # noqa: S311
    while True:
        yield Draw(random.expovariate(1 / _EACH_S), random.random() < ON, random.random() < 0.5)


async def _stormed(place: Place) -> Seen:
    """Let all workers of a model come and go until enough was asked; then all are there."""
    names = sorted(name for name in place.system.pids if name.partition("@")[0] == worker_role(_MODEL))
    since, began_s, over = place.traffic.sent, time.monotonic(), asyncio.Event()
    toggled = [asyncio.create_task(_toggled(place, name, over)) for name in names]
    there = []
    while not _is_enough(place, since, began_s) and not any(task.done() for task in toggled):
        await asyncio.sleep(_LOOK_S)
        there.append(len({*names} & place.system.pids.keys()))
        if len(there) % _SAY_S == 0:
            say(STORM, f"{place.traffic.sent - since:,} queries, {there[-1]} of {len(names)} workers")
    over.set()
    took_s, asked = time.monotonic() - began_s, place.traffic.sent - since
    done = sum(await asyncio.gather(*toggled), Counter[str]())
    alone = done.pop("ended alone", 0)
    figures = {"workers": len(names), "there, of 100": 100 * sum(there) / len(there) / len(names), **done}
    figures |= {"queries": asked, "queries a second": asked / took_s}
    return Seen(figures, (f"{alone} workers ended that were not ended",) if alone else ())


def _is_enough(place: Place, since: int, began_s: float) -> bool:
    """Tell whether it is over: the short form after a minute, whatever was asked."""
    most_s = _SHORT_S if place.is_short else _MOST_S
    return place.traffic.sent - since >= QUERIES or time.monotonic() - began_s > most_s


async def _toggled(place: Place, name: str, over: asyncio.Event) -> Counter[str]:
    """Let one worker come and go; returns what was done to it, and how often it ended by itself."""
    done, is_on = Counter[str](), True
    before = place.system.restarts[name]
    for draw in draws(name):
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), draw.after_s)
        wanted = draw.is_on or over.is_set()
        if is_on and not wanted:
            done["ended alone"] += place.system.restarts[name] - before
            await place.system.stop(name, None if draw.is_asked else 0.0)
            done["asked to end" if draw.is_asked else "killed"] += 1
        elif wanted and not is_on:
            await place.system.start(name)
            done["started"], before = done["started"] + 1, 0
        is_on = wanted
        if over.is_set():
            break
    return done


STORM_ROWS: Final = (Broken("workers come and go", STORM, _stormed, times=1),)
