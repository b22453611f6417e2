"""Finds each contender's best setting for each thing that is measured.

For latency the lowest p50 at 500/s counts, for the rate of a backlog the highest one. Within a bound, it is the share
of right answers within 50 ms, at half of the contender's own rate.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypedDict

from load.errors import PeerFailedError
from load.research.peers.contenders import Chosen
from load.research.peers.measurement import asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.research.peers.client import Client
    from load.research.peers.contenders import Contender
    from load.research.peers.running import Ground

_RATE, _SECONDS, _BOUNDED_SECONDS = 500.0, 2.0, 1.0
_DRAIN_S, _BACKLOG_S, _LIMIT_S = 1.5, 3.0, 30.0
_OBJECTIVE_MS = 50
_HALF = 0.5
FOR = Chosen._fields


class Tried(TypedDict):
    """The result of one setting, None if it does not work; `chosen` says what it is the best for."""

    system: str
    label: str
    setting: str
    index: int
    rate_per_s: float | None
    p50_ms: float | None
    in_time_percent: float | None
    chosen: str


async def search(contender: Contender, ground: Ground, say: Callable[[str], None]) -> tuple[Chosen, list[Tried]]:
    """Return the best settings, and a row for each that was tried.

    Raises:
        PeerFailedError: none works.
    """
    rows, failed = [], ""
    for index, setting in enumerate(contender.grid):
        say(f"{contender.label}: trying {words(setting)}")
        row = Tried(
            system=contender.name,
            label=contender.label,
            setting=words(setting),
            index=index,
            rate_per_s=None,
            p50_ms=None,
            in_time_percent=None,
            chosen="",
        )
        rows.append(row)
        try:
            async with asked(contender, ground, setting) as client:
                await asyncio.to_thread(_look, client, contender.backlog / _BACKLOG_S, row)
        except PeerFailedError as error:
            failed = str(error)
            say(f"{contender.label}: {words(setting)} does not work: {failed}")
    if all(row["rate_per_s"] is None for row in rows):
        raise PeerFailedError(failed)
    best = choose(rows)
    for index in dict.fromkeys(best):
        rows[index]["chosen"] = ", ".join(name for name, each in zip(FOR, best, strict=True) if each == index)
    return Chosen(*(contender.grid[index] for index in best)), rows


def _look(client: Client, capacity_per_s: float, row: Tried) -> None:
    row["p50_ms"] = client.stretch(_RATE, _SECONDS, _LIMIT_S).tally.latency_ms().get("p50")
    row["rate_per_s"] = rate = client.backlog(int(_DRAIN_S * capacity_per_s), _LIMIT_S).rate_per_s
    tally = client.stretch(_HALF * rate, _BOUNDED_SECONDS, _LIMIT_S).tally
    row["in_time_percent"] = 100.0 * tally.goodput_per_s(_OBJECTIVE_MS, 1.0) / max(1, tally.asked)


def choose(rows: Sequence[Tried]) -> tuple[int, int, int]:
    """Return the best settings of those that work, as numbers, in the order of `FOR`."""
    working = [row for row in rows if row["rate_per_s"] is not None]
    latency = min(working, key=lambda row: float("inf") if row["p50_ms"] is None else row["p50_ms"])
    rate = max(working, key=lambda row: row["rate_per_s"] or 0.0)
    bounded = max(working, key=lambda row: row["in_time_percent"] or 0.0)
    return latency["index"], rate["index"], bounded["index"]


def words(setting: Mapping[str, object]) -> str:
    """Return a setting in words."""
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "defaults"
