"""Measures a contender once: starts it, lets it drain a backlog, sends at some rates, stops it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from load.errors import PeerFailedError
from load.harness.processes import peak_mib
from load.research.peers.answer_audit import OBJECTIVES_MS
from load.research.peers.client import Client
from load.research.peers.loadgen import bounded_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.research.peers.client import Part
    from load.research.peers.contenders import Contender
    from load.research.peers.running import Ground

COUNTS = ("lost", "unanswered", "duplicates", "wrong", "defaults")
_WARM_UP_RATE = 300.0
_WARM_UP_S = 1.0
_BACKLOG_S = 3.0  # for which contenders' backlogs are sized
_LIMIT_S = 30.0  # for a backlog that should take three
_TAIL_S = 5.0
_LEAST_ROWS, _MOST_ROWS = 1_000, 150_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How much a visit does.

    Attributes:
        seconds: of a stretch.
        drain_s: of a backlog.
        rates: for everybody who can keep up with them (1/s).
        shares: of the contender's own capacity.
        judged: shares, of the ceiling where that is less, that the judge may try; none = it is not asked.
        judged_up_to_per_s: what the judge itself can do, without any system.
        ceiling_per_s: rates beyond it are left out: the row without a system is saturated there.
    """

    seconds: float
    drain_s: float
    rates: tuple[float, ...]
    shares: tuple[float, ...] = ()
    judged: tuple[float, ...] = ()
    ceiling_per_s: float = float("inf")
    judged_up_to_per_s: float = float("inf")

    def common(self, capacity_per_s: float) -> dict[str, float]:
        """Return the rates for everybody, by name; the ceiling is one: what is faster has no other to show it at."""
        most = min(capacity_per_s, self.ceiling_per_s)
        rates = [*self.rates, self.ceiling_per_s] if self.ceiling_per_s < float("inf") else self.rates
        return {f"at_{rate:g}": rate for rate in rates if rate <= most}

    def own(self, capacity_per_s: float) -> dict[str, float]:
        """Return the shares of a capacity, by name, as rates."""
        rates = {share_name(share): share * capacity_per_s for share in self.shares}
        return {name: rate for name, rate in rates.items() if 0 < rate <= self.ceiling_per_s}

    def to_judge(self, capacity_per_s: float) -> set[float]:
        """Return the rates that the judge may try."""
        rates = {share * min(capacity_per_s, self.ceiling_per_s) for share in self.judged if capacity_per_s}
        return {rate for rate in rates if rate <= self.judged_up_to_per_s}


@dataclass(slots=True)
class Seen:
    """The measurements of a visit.

    Attributes:
        figures: by name.
        counts: over all its parts.
        capacity_per_s: that the shares are taken of.
        judgement: the judge's row, if it was asked.
        latencies_us: by stretch, for what needs more of them than one visit gives.
    """

    figures: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    capacity_per_s: float = 0.0
    judgement: dict[str, Any] | None = None
    latencies_us: dict[str, list[int]] = field(default_factory=dict)

    def add(self, name: str, part: Part, rate: float, seconds: float) -> None:
        """Add a stretch of so many seconds at a rate (1/s)."""
        self._count(part)
        flat_per_s = rate if part.tally.is_flat else 0.0
        self.figures["flat_per_s"] = max(self.figures.get("flat_per_s", 0.0), flat_per_s)
        self.figures[f"{name}_defaults_percent"] = 100.0 * part.tally.defaults / max(1, part.tally.answered)
        self.figures |= {f"{name}_{point}_ms": value for point, value in part.tally.latency_ms().items()}
        self.latencies_us[name] = part.tally.latencies_us
        self.figures[f"{name}_cpu_us_per_query"] = part.cpu_us_per_query
        self.figures[f"{name}_sender_late_ms"] = part.late_us / 1e3
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
    contender: Contender, ground: Ground, setting: Mapping[str, object], plan: Plan, capacity_per_s: float = 0.0
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
            client = Client(ground, running, contender.wire_format, contender.feedback)
            return await asyncio.to_thread(_visit, contender, client, plan, capacity_per_s)
    except (psutil.NoSuchProcess, TimeoutError) as error:
        raise PeerFailedError(f"{contender.label}: {error}") from error


def _visit(contender: Contender, client: Client, plan: Plan, capacity_per_s: float) -> Seen:
    client.ready()
    client.stretch(_WARM_UP_RATE, _WARM_UP_S, _TAIL_S)
    seen = Seen(capacity_per_s=capacity_per_s)
    _stretches(client, seen, plan, plan.common(capacity_per_s or contender.backlog / _BACKLOG_S))
    if contender.backlog:
        rows = plan.drain_s * (capacity_per_s or contender.backlog / _BACKLOG_S)
        part = client.backlog(int(min(max(rows, _LEAST_ROWS), _MOST_ROWS)), _LIMIT_S)
        seen.drained(part)
        seen.capacity_per_s = capacity_per_s or part.rate_per_s
        _stretches(client, seen, plan, plan.own(seen.capacity_per_s))
    seen.figures["peak_mib"] = peak_mib(client.running.pids())
    rates = plan.to_judge(seen.capacity_per_s)
    if rates:
        seen.judgement = bounded_rate(contender, client.ground, client.running, rates, plan.seconds)
    return seen


def _stretches(client: Client, seen: Seen, plan: Plan, rates: Mapping[str, float]) -> None:
    for name, rate in rates.items():
        seen.add(name, client.stretch(rate, plan.seconds, _TAIL_S), rate, plan.seconds)
