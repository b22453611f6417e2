"""Compares the batch controller with fixed batches: deployments side by side, asked in alternation at the same rates.

Where two cores are full, three seconds say little. Asked 4,000 times a second, fixed batches of 256 gave 645 to 2,382
right answers a second within 20 ms, in seven stretches within a quarter of an hour. Two climbs, one after the other,
would compare the minutes in which they were made. Here all contenders share each minute.

Each round goes over the same few rates. A contender's goodput is its mean over the rounds, at the rate where that is
highest. One rate alone could be beyond all of them, and the ratio would compare how they fail: 0.79 +- 0.14 at 11,300 a
second within 20 ms, where none reached 8,000.

One objective comes after the other, because an application has only one. All contenders are started several times, and
asked forwards and backwards: of two equal ones, one does better for as long as both run. Some percent of lead remain
even so. The ratio therefore has a standard error.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from load.harness.aggregates import held_out, turned
from load.research.peers import batching
from load.research.peers.answer_audit import OBJECTIVES_MS
from load.research.peers.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from load.research.peers.answer_audit import Tally
    from load.research.peers.contenders import Contender
    from load.research.peers.running import Ground

    Row = Mapping[str, Any]

# Of the controller's own best rate, which is the luckiest of those it climbed.
AROUND: Final = (2**-0.5, 1.0, 2**0.5)
_LIMIT_S = 20.0
STARTS = 3
_CONTENDERS: Final = tuple((each, setting) for each in (batching.AIMD, batching.FIXED) for setting in each.grid)


async def compare(
    ground: Ground, rates: Mapping[int, float], ceiling_per_s: float, rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return one row for each objective, contender and rate, with the goodput (1/s) of every round.

    Args:
        ground: rows, models and truth.
        rates: the controller's best rate (1/s) by objective (ms).
        ceiling_per_s: no rate is higher.
        rounds: stretches of each at each rate, in all; as many after each start.
        say: called with each step.
    """
    rows: list[dict[str, Any]] = []
    near = {ms: dict.fromkeys(min(rates[ms] * factor, ceiling_per_s) for factor in AROUND) for ms in OBJECTIVES_MS}
    for start in range(STARTS):
        say(f"AIMD and fixed batches by turns: start {start + 1} of {STARTS}")
        async with AsyncExitStack() as stack:
            started = {
                contender: await _started(stack, ground, *_CONTENDERS[contender])
                for contender in turned(range(len(_CONTENDERS)), start)
            }
            clients = [started[contender] for contender in sorted(started)]
            turns = range(start, start + rounds // STARTS)
            for objective, its in near.items():
                say(f"within {objective} ms")
                asked = _Asked(clients, objective, ground.stage.seconds)
                await asyncio.to_thread(asked.settle, rates[objective])
                rows += await asyncio.to_thread(asked.rounds, its, turns)
    return _over_rounds(rows)


async def _started(
    stack: AsyncExitStack, ground: Ground, contender: Contender, setting: Mapping[str, object]
) -> Client:
    running = await stack.enter_async_context(contender.start(ground, setting))
    client = Client(ground, running, contender.wire_format)
    await asyncio.to_thread(client.ready)
    return client


@dataclass(frozen=True, slots=True)
class _Asked:
    """All contenders, asked with one objective.

    Attributes:
        clients: of the contenders, in their order.
        objective: ms.
        seconds: of a stretch.
    """

    clients: Sequence[Client]
    objective: int
    seconds: float

    def settle(self, rate: float) -> None:
        """Let all contenders settle at a rate (1/s)."""
        for client in self.clients:
            self._stretch(client, rate)

    def rounds(self, rates: Iterable[float], turns: Iterable[int]) -> list[dict[str, Any]]:
        """Return the results of all contenders at each rate (1/s), once for each turn."""
        return [row for turn in turns for row in self._round(turned(rates, turn), turn)]

    def _round(self, rates: Iterable[float], turn: int) -> list[dict[str, Any]]:
        """Return the results of all contenders at each rate (1/s), asked in this turn's order."""
        rows = []
        for rate in rates:
            for (contender, setting), client in turned(zip(_CONTENDERS, self.clients, strict=True), turn):
                tally = self._stretch(client, rate)
                row: dict[str, Any] = {
                    "name": contender.name,
                    "label": contender.label,
                    "setting": batching.setting_words(setting),
                }
                row |= {"objective_ms": self.objective, "rate_per_s": rate, "wrong": tally.wrong}
                rows.append({**row, "goodput_per_s": tally.goodput_per_s(self.objective, self.seconds)})
        return rows

    def _stretch(self, client: Client, rate: float) -> Tally:
        client.slo_ms = float(self.objective)
        return client.stretch(rate, self.seconds, _LIMIT_S).tally


def _over_rounds(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one row for all rounds of a contender at a rate, in the order of contenders and rates."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    order = [(contender.name, batching.setting_words(setting)) for contender, setting in _CONTENDERS]
    for row in rows:
        key = row["objective_ms"], order.index((row["name"], row["setting"])), row["rate_per_s"]
        into = found.setdefault(key, {**row, "wrong": 0, "goodput_per_s": []})
        into["wrong"] += row["wrong"]
        into["goodput_per_s"].append(row["goodput_per_s"])
    return [found[key] for key in sorted(found)]


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
    size = len(aimd) // STARTS
    parts = (slice(start, start + size) for start in range(0, size * STARTS, size))
    return statistics.stdev(_ratio(aimd[part], fixed[part]) for part in parts) / math.sqrt(STARTS)


def best_rate(rows: Sequence[Row]) -> Row:
    """Return the row of the rate with the highest mean, of one contender's for an objective."""
    return max(rows, key=lambda row: statistics.mean(row["goodput_per_s"]))


def _compared(rows: Sequence[Row], objective: int) -> tuple[Sequence[float], Sequence[float]]:
    """Return the rounds of the controller, and of fixed batches, each as what was best after the other starts."""
    mine = [row for row in rows if row["objective_ms"] == objective]
    aimd, fixed = (
        held_out([row["goodput_per_s"] for row in mine if row["name"] == name], STARTS)
        for name in (batching.AIMD.name, batching.FIXED.name)
    )
    return aimd, fixed


def _ratio(aimd: Sequence[float], fixed: Sequence[float]) -> float:
    return sum(aimd) / max(1.0, sum(fixed))
