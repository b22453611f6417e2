"""The batch controller beside fixed batches: deployments side by side, asked by turns at the same rate.

Where two cores are full, three seconds say little: asked 4,000 times a second, fixed batches of 256 gave from 645 to
2,382 right answers a second within 20 ms, in seven stretches of a quarter of an hour. One climb after another compares
the minutes in which they were made. Here everybody has each minute alike, and all rounds are at one rate: that at which
all together had most, in a round which counts no further. One objective comes after the other, as an application has
but one.

The best of three sizes is also the luckiest: what is chosen by every second round counts by the others, and the other
way round. Of two that are alike one still comes out some percent ahead of the other, so the ratio has its standard
error beside it.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from load.peers import batching
from load.peers.client import Client
from load.peers.ledger import OBJECTIVES_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.peers.running import Ground

    Row = Mapping[str, Any]

# The controller's own best rate, which is the luckiest of those it climbed, and those next to it.
AROUND: Final = (2**-0.5, 1.0, 2**0.5)
_LIMIT_S = 20.0
_CONTENDERS: Final = tuple((each, setting) for each in (batching.AIMD, batching.FIXED) for setting in each.grid)


async def compare(
    ground: Ground, rates: Mapping[int, float], ceiling_per_s: float, rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return one row for each contender and objective, with the goodput (1/s) of every round.

    Args:
        ground: rows, models and truth.
        rates: the controller's best rate (1/s) by objective (ms).
        ceiling_per_s: no rate is higher.
        rounds: stretches of each, at least two.
        say: is told what is done.
    """
    async with AsyncExitStack() as stack:
        clients = []
        for contender, setting in _CONTENDERS:
            running = await stack.enter_async_context(contender.start(ground, setting))
            client = Client(ground, running, contender.speech)
            await asyncio.to_thread(client.ready)
            clients.append(client)
        seconds, rows = ground.stage.seconds, []
        for objective in OBJECTIVES_MS:
            say(f"AIMD and fixed batches by turns, within {objective} ms: {rounds} rounds")
            asked = [min(rates[objective] * factor, ceiling_per_s) for factor in AROUND]
            rows += await asyncio.to_thread(_ask, clients, objective, list(dict.fromkeys(asked)), seconds, rounds)
    return rows


def _ask(
    clients: Sequence[Client], objective: int, rates: Sequence[float], seconds: float, rounds: int
) -> list[dict[str, Any]]:
    for client in clients:
        client.slo_ms = float(objective)
    sought = {rate: _together(clients, rate, objective, seconds) for rate in rates}
    rate = max(sought, key=sought.__getitem__)
    rows: list[dict[str, Any]] = [
        {
            "name": contender.name,
            "label": contender.label,
            "setting": batching.setting_words(setting),
            "objective_ms": objective,
            "rate_per_s": rate,
            "sought_per_s": sought,
            "goodput_per_s": [],
            "wrong": 0,
        }
        for contender, setting in _CONTENDERS
    ]
    asked = list(zip(rows, clients, strict=True))
    for number in range(rounds):
        for row, client in asked if number // 2 % 2 == 0 else asked[::-1]:  # so each half has both orders
            tally = client.stretch(rate, seconds, _LIMIT_S).tally
            row["goodput_per_s"].append(tally.goodput_per_s(objective, seconds))
            row["wrong"] += tally.wrong
    return rows


def _together(clients: Sequence[Client], rate: float, objective: int, seconds: float) -> float:
    """Return the mean goodput (1/s) of all at a rate."""
    tallies = [client.stretch(rate, seconds, _LIMIT_S).tally for client in clients]
    return statistics.mean(tally.goodput_per_s(objective, seconds) for tally in tallies)


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Return the controller's goodput as a ratio to that of the best fixed batch, by objective; needs two rounds."""
    aimd, fixed = batching.AIMD.name, batching.FIXED.name
    return {
        f"{aimd}_{objective}ms_to_{fixed}_ratio_rate": _held_out(rows, aimd, objective)
        / max(1.0, _held_out(rows, fixed, objective))
        for objective in OBJECTIVES_MS
        if rows
    }


def relative_error(rows: Sequence[Row], objective: int) -> float:
    """Return the standard error of an objective's ratio, as a part of it; needs two rounds."""
    errors = []
    for name in (batching.AIMD.name, batching.FIXED.name):
        best = max(_goodput(rows, name, objective), key=statistics.mean)
        errors.append(statistics.stdev(best) / len(best) ** 0.5 / max(1.0, statistics.mean(best)))
    return math.hypot(*errors)


def _goodput(rows: Sequence[Row], name: str, objective: int) -> list[list[float]]:
    return [row["goodput_per_s"] for row in rows if (row["name"], row["objective_ms"]) == (name, objective)]


def _held_out(rows: Sequence[Row], name: str, objective: int) -> float:
    """Return the goodput of the best size, in the rounds by which it was not chosen; over both halves."""
    mine = _goodput(rows, name, objective)
    halves = ([(goodput[place::2], goodput[1 - place :: 2]) for goodput in mine] for place in (0, 1))
    return statistics.mean(statistics.mean(max(half, key=_chosen_by)[1]) for half in halves)


def _chosen_by(halves: tuple[Sequence[float], Sequence[float]]) -> float:
    return statistics.mean(halves[0])
