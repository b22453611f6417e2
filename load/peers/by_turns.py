"""The batch controller beside fixed batches: deployments side by side, asked by turns at the same rate.

Where two cores are full, three seconds say little: asked 4,000 times a second, fixed batches of 256 gave from 645 to
2,382 right answers a second within 20 ms, in seven stretches of a quarter of an hour. One climb after another compares
the minutes in which they were made. Here everybody has each minute alike, and all rounds are at one rate: that at which
all together had most, in a round which counts no further. One objective comes after the other, as an application has
but one. Everybody is started several times over, and asked forwards and backwards: of two that are alike one does
better for as long as both run. Still one of them comes out some percent ahead in the end, so the ratio has its standard
error beside it.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from load.peers import batching
from load.peers.client import Client
from load.peers.ledger import OBJECTIVES_MS
from load.rounds import held_out, turned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from load.peers.contenders import Contender
    from load.peers.ledger import Tally
    from load.peers.running import Ground

    Row = Mapping[str, Any]

# The controller's own best rate, which is the luckiest of those it climbed, and those next to it.
AROUND: Final = (2**-0.5, 1.0, 2**0.5)
_LIMIT_S = 20.0
_STARTS = 6
_CONTENDERS: Final = tuple((each, setting) for each in (batching.AIMD, batching.FIXED) for setting in each.grid)


async def compare(
    ground: Ground, rates: Mapping[int, float], ceiling_per_s: float, rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return one row for each objective and contender, with the goodput (1/s) of every round.

    Args:
        ground: rows, models and truth.
        rates: the controller's best rate (1/s) by objective (ms).
        ceiling_per_s: no rate is higher.
        rounds: stretches of each, in all; a multiple of twelve has each order as often after each start.
        say: is told what is done.
    """
    rows: dict[int, list[dict[str, Any]]] = {}
    for start in range(_STARTS):
        say(f"AIMD and fixed batches by turns: start {start + 1} of {_STARTS}")
        async with AsyncExitStack() as stack:
            started = {
                contender: await _started(stack, ground, *_CONTENDERS[contender])
                for contender in turned(range(len(_CONTENDERS)), start)
            }
            clients = [started[contender] for contender in sorted(started)]
            for objective in OBJECTIVES_MS:
                say(f"within {objective} ms")
                near = dict.fromkeys(min(rates[objective] * factor, ceiling_per_s) for factor in AROUND)
                asked = _Asked(clients, objective, ground.stage.seconds)
                rows[objective] = await asyncio.to_thread(asked.settled, rows.get(objective, []), near)
                await asyncio.to_thread(asked.by_turns, rows[objective], range(start, start + rounds // _STARTS))
    return [row for objective in OBJECTIVES_MS for row in rows[objective]]


async def _started(stack: AsyncExitStack, ground: Ground, contender: Contender, setting: Mapping[str, Any]) -> Client:
    running = await stack.enter_async_context(contender.start(ground, setting))
    client = Client(ground, running, contender.speech)
    await asyncio.to_thread(client.ready)
    return client


@dataclass(frozen=True, slots=True)
class _Asked:
    """Everybody, asked with one objective.

    Attributes:
        clients: of the contenders, in their order.
        objective: ms.
        seconds: of a stretch.
    """

    clients: Sequence[Client]
    objective: int
    seconds: float

    def settled(self, rows: list[dict[str, Any]], rates: Iterable[float]) -> list[dict[str, Any]]:
        """Let everybody settle; return the rows, new ones at the rate (1/s) at which all together had most."""
        if rows:
            self.together(rows[0]["rate_per_s"])
            return rows
        sought = {rate: self.together(rate) for rate in rates}
        return [
            {
                "name": contender.name,
                "label": contender.label,
                "setting": batching.setting_words(setting),
                "objective_ms": self.objective,
                "rate_per_s": max(sought, key=sought.__getitem__),
                "goodput_per_s": [],
                "wrong": 0,
            }
            for contender, setting in _CONTENDERS
        ]

    def together(self, rate: float) -> float:
        """Return the mean goodput (1/s) of all at a rate."""
        return statistics.mean(
            self._stretch(client, rate).goodput_per_s(self.objective, self.seconds) for client in self.clients
        )

    def by_turns(self, rows: Sequence[dict[str, Any]], turns: Iterable[int]) -> None:
        """Add a round to the rows for each turn."""
        for turn in turns:
            for row, client in turned(zip(rows, self.clients, strict=True), turn):
                tally = self._stretch(client, row["rate_per_s"])
                row["goodput_per_s"].append(tally.goodput_per_s(self.objective, self.seconds))
                row["wrong"] += tally.wrong

    def _stretch(self, client: Client, rate: float) -> Tally:
        client.slo_ms = float(self.objective)
        return client.stretch(rate, self.seconds, _LIMIT_S).tally


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Return the controller's goodput as a ratio to that of the best fixed batch, by objective."""
    compared = {objective: _compared(rows, objective) for objective in OBJECTIVES_MS if rows}
    return {
        f"{batching.AIMD.name}_{objective}ms_to_{batching.FIXED.name}_ratio_rate": _ratio(aimd, fixed)
        for objective, (aimd, fixed) in compared.items()
    }


def standard_error(rows: Sequence[Row], objective: int) -> float:
    """Return the standard error of an objective's ratio: of the mean of those that the starts have."""
    aimd, fixed = _compared(rows, objective)
    size = len(aimd) // _STARTS
    parts = (slice(start, start + size) for start in range(0, size * _STARTS, size))
    return statistics.stdev(_ratio(aimd[part], fixed[part]) for part in parts) / math.sqrt(_STARTS)


def _compared(rows: Sequence[Row], objective: int) -> tuple[Sequence[float], Sequence[float]]:
    """Return the rounds of the controller, and of the fixed batches that were best after the other starts."""
    mine = [row for row in rows if row["objective_ms"] == objective]
    (aimd,) = (row["goodput_per_s"] for row in mine if row["name"] == batching.AIMD.name)
    return aimd, held_out([row["goodput_per_s"] for row in mine if row["name"] == batching.FIXED.name], _STARTS)


def _ratio(aimd: Sequence[float], fixed: Sequence[float]) -> float:
    return sum(aimd) / max(1.0, sum(fixed))
