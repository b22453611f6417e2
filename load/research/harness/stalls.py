"""Processes that stand still now and then, as other work on their machine makes them: drawn from a seed, in pairs.

A process that has stopped (SIGSTOP) misses nothing: what comes for it waits. So its queries are late, and none is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

PAIR = 2  # both ends of a transfer between two machines


class Stall(NamedTuple):
    """Two processes that stand still at a time."""

    after_s: float  # the one before
    for_s: float
    places: tuple[int, ...]


def pairs(processes: int, every_s: float, for_s: tuple[float, float], seed: int) -> Iterator[Stall]:
    """Yield stalls without end, of two processes each.

    Args:
        processes: of which two are drawn each time.
        every_s: for each process, how long it runs between two stalls on the average.
        for_s: the shortest and the longest stall.
        seed: of all draws.
    """
    random = np.random.default_rng(seed)
    while True:
        places = random.choice(processes, PAIR, replace=False)
        after_s = random.exponential(every_s * PAIR / processes)
        yield Stall(float(after_s), float(random.uniform(*for_s)), tuple(int(place) for place in places))


@asynccontextmanager
async def stalling(pids: Sequence[int], stalls: Iterator[Stall]) -> AsyncIterator[None]:
    """Have processes stand still as drawn, while the context lasts; afterwards all of them run."""
    task = asyncio.create_task(_stall(pids, stalls))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        _send(pids, signal.SIGCONT)


async def _stall(pids: Sequence[int], stalls: Iterator[Stall]) -> None:
    for stall in stalls:
        await asyncio.sleep(stall.after_s)
        its = [pids[place] for place in stall.places]
        _send(its, signal.SIGSTOP)
        await asyncio.sleep(stall.for_s)
        _send(its, signal.SIGCONT)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
