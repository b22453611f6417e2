"""Finds the rate at which the harness itself is saturated, by sending at rising rates without any system."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, TypedDict

from load.research.peers.client import Client
from load.research.peers.contenders import DIRECT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from load.research.peers.running import Ground

RATES = (4_000, 16_000, 64_000)
SHORT_RATES = (16_000,)
# In so long, one stall of a machine that others share, some 30 ms, is less than the hundredth that p99 leaves out.
_SECONDS = 6.0
_MAJORITY = 2  # looks of three
_LIMIT_S = 5.0
_WARM_UP_RATE, _WARM_UP_S = 300.0, 5.0  # a broker that has just been started compiles for so long
_SATURATED_MS = 20.0  # the shortest objective that anybody is judged by


class Look(TypedDict):
    """One stretch at one rate without any system; None where nothing arrived."""

    rate_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    late_ms: float
    saturated: bool


async def climb(ground: Ground, rates: Sequence[float] = RATES) -> list[Look]:
    """Return a row for each look at each of rising rates, up to the first that is saturated in most of them.

    That is p99 above 20 ms, from the time that each record was meant to be sent, so a late sender shows in it. One look
    may find anything else on the machine in the way.
    """
    async with DIRECT.start(ground, {}) as running:
        client = Client(ground, running, DIRECT.wire_format)
        return await asyncio.to_thread(looks, client, rates)


def looks(client: Client, rates: Sequence[float] = RATES) -> list[Look]:
    """Return a row for each look, as `climb`; at each rate until two of them agree."""
    client.stretch(_WARM_UP_RATE, _WARM_UP_S, _LIMIT_S)
    rows: list[Look] = []
    for rate in rates:
        seen: Counter[bool] = Counter()
        while max(seen.values(), default=0) < _MAJORITY:
            rows.append(_step(client, rate))
            seen[rows[-1]["saturated"]] += 1
        if seen[True] == _MAJORITY:
            break
    return rows


def _step(client: Client, rate: float) -> Look:
    part = client.stretch(rate, _SECONDS, _LIMIT_S)
    latency_ms, late_ms = part.tally.latency_ms(), part.late_us / 1e3
    p50_ms, p99_ms = latency_ms.get("p50"), latency_ms.get("p99")
    saturated = p99_ms is None or p99_ms > _SATURATED_MS or part.tally.missing > 0
    return {"rate_per_s": rate, "p50_ms": p50_ms, "p99_ms": p99_ms, "late_ms": late_ms, "saturated": saturated}


def ceiling_per_s(rows: Sequence[Look]) -> float:
    """Return the highest rate that was saturated in less than half of its looks; half of the lowest where none was."""
    seen: dict[float, list[bool]] = {}
    for row in rows:
        seen.setdefault(float(row["rate_per_s"]), []).append(bool(row["saturated"]))
    return max((rate for rate, bad in seen.items() if 2 * sum(bad) < len(bad)), default=min(seen) / 2)
