"""One visit to a contender: start it, let it drain a backlog, send at some rates, stop it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from load.errors import PeerFailedError
from load.peers.client import Client
from load.peers.ledger import OBJECTIVES_MS
from load.peers.memory import peak_mib

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.peers.client import Part
    from load.peers.contenders import Contender
    from load.peers.running import Ground

COUNTS = ("lost", "unanswered", "duplicates", "wrong", "defaults")
SHARES = (0.25, 0.5, 0.75, 0.9)
_WARM_UP_RATE = 300.0
_LIMIT_S = 30.0  # for a backlog that should take three
_TAIL_S = 5.0
_LEAST_ROWS, _MOST_ROWS = 1_000, 150_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How much a visit does.

    Attributes:
        seconds: of a stretch.
        drain_s: of a backlog.
        shares: of the contender's own capacity.
        rates: for everybody (1/s).
        ceiling_per_s: rates beyond it are left out: the row without a system is saturated there.
    """

    seconds: float
    drain_s: float
    shares: tuple[float, ...]
    rates: tuple[float, ...]
    ceiling_per_s: float = float("inf")

    def stretches(self, capacity_per_s: float) -> dict[str, float]:
        """Return the rates by name, those for everybody first, without those beyond the ceiling."""
        rates = {f"at_{rate:g}": rate for rate in self.rates} | {
            share_name(share): share * capacity_per_s for share in self.shares
        }
        return {name: rate for name, rate in rates.items() if 0 < rate <= self.ceiling_per_s}


@dataclass(slots=True)
class Seen:
    """What a visit measured: figures, counts over all its parts, and the capacity."""

    figures: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    capacity_per_s: float = 0.0

    def add(self, name: str, part: Part, seconds: float) -> None:
        """Add a stretch."""
        self._count(part)
        self.figures |= {f"{name}_{point}_ms": value for point, value in part.tally.latency_ms().items()}
        self.figures[f"{name}_cpu_us_per_query"] = part.cpu_us_per_query
        for objective_ms in OBJECTIVES_MS:
            goodput = f"goodput_{objective_ms}ms_per_s"
            value = part.tally.goodput_per_s(objective_ms, seconds)
            self.figures[f"{name}_{goodput}"] = value
            self.figures[goodput] = max(self.figures.get(goodput, 0.0), value)

    def drained(self, part: Part) -> None:
        """Add the backlog."""
        self._count(part)
        self.figures |= {"rate_per_s": part.rate_per_s, "cpu_us_per_query": part.cpu_us_per_query}

    def _count(self, part: Part) -> None:
        tally = part.tally
        missing = "lost" if part.settled else "unanswered"
        self.counts[missing] += tally.missing
        self.counts["duplicates"] += tally.duplicates
        self.counts["wrong"] += tally.wrong
        self.counts["defaults"] += tally.defaults


def share_name(share: float) -> str:
    """Return the name of a stretch at a share of the capacity."""
    return f"at_{share:.0%}".replace("%", "pct")


async def visit(
    contender: Contender, ground: Ground, setting: Mapping[str, Any], plan: Plan, capacity_per_s: float = 0.0
) -> Seen:
    """Measure a contender once.

    Args:
        contender: who.
        ground: where.
        setting: of its grid.
        plan: how much.
        capacity_per_s: from an earlier visit; 0 = what this one's backlog shows.

    Raises:
        PeerFailedError: it did not start, or it ended.
    """
    try:
        async with contender.start(ground, setting) as running:
            client = Client(ground, running, contender.speech, contender.feedback)
            return await asyncio.to_thread(_visit, contender, client, plan, capacity_per_s)
    except (psutil.NoSuchProcess, TimeoutError) as error:
        raise PeerFailedError(f"{contender.label}: {error}") from error


def _visit(contender: Contender, client: Client, plan: Plan, capacity_per_s: float) -> Seen:
    client.ready()
    client.stretch(_WARM_UP_RATE, 1.0, _TAIL_S)
    seen = Seen(capacity_per_s=capacity_per_s)
    if contender.backlog:
        expected = capacity_per_s * plan.drain_s if capacity_per_s else contender.backlog * plan.drain_s / 3
        part = client.backlog(int(min(max(expected, _LEAST_ROWS), _MOST_ROWS)), _LIMIT_S)
        seen.drained(part)
        seen.capacity_per_s = capacity_per_s or part.rate_per_s
    for name, rate in plan.stretches(seen.capacity_per_s).items():
        seen.add(name, client.stretch(rate, plan.seconds, _TAIL_S), plan.seconds)
    seen.figures["peak_mib"] = peak_mib(client.running.pids())
    return seen
