"""Measures a contender once: starts it, sends at some rates, lets it drain a backlog, stops it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from load.errors import PeerFailedError
from load.harness.aggregates import cores
from load.harness.processes import peak_mib
from load.research.peers.answer_audit import OBJECTIVES_MS
from load.research.peers.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from load.research.peers.client import Part
    from load.research.peers.contenders import Chosen, Contender
    from load.research.peers.running import Ground

COUNTS = ("lost", "unanswered", "duplicates", "wrong", "backlog_defaults")
_WARM_UP_RATE = 300.0
_WARM_UP_S = 1.0
_BACKLOG_S = 3.0  # for which contenders' backlogs are sized
_LIMIT_S = 60.0  # for a backlog that should take five
_TAIL_S = 5.0
_LEAST_ROWS, _MOST_ROWS = 1_000, 300_000
_NEAR = 0.9  # of a capacity: what is asked more than that piles up


@dataclass(frozen=True, slots=True)
class Plan:
    """How much a visit does.

    Attributes:
        seconds: of a stretch.
        drain_s: of a backlog.
        learn_s: of the backlog of one that learns; roles commit twice a second, which is in its time.
        rates: for floors and for Skysail (1/s), where they can keep up with them.
        others: for everybody else.
        ceiling_per_s: rates beyond it are left out: the harness is not known to keep up with them.
        drains: whether there is a backlog at all.
    """

    seconds: float
    drain_s: float
    learn_s: float
    rates: tuple[float, ...]
    others: tuple[float, ...] = ()
    ceiling_per_s: float = float("inf")
    drains: bool = True

    def at(self, contender: Contender, capacity_per_s: float) -> dict[str, float]:
        """Return the rates at which a contender of this capacity is asked, by name."""
        most = min(_NEAR * capacity_per_s, self.ceiling_per_s)
        rates = self.rates if contender.kind in ("floor", "skysail") else self.others
        return {f"at_{rate:g}": rate for rate in rates if contender.paced and rate <= most}


@dataclass(slots=True)
class Seen:
    """The measurements of a visit.

    Attributes:
        figures: by name.
        counts: over all its parts.
        capacity_per_s: by which rates and backlogs are chosen.
        latencies_us: by stretch, for what needs more of them than one visit gives.
    """

    figures: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    capacity_per_s: float = 0.0
    latencies_us: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, part: Part) -> None:
        """Add a stretch."""
        self._count(part)
        tally = part.tally
        self.latencies_us[name] = tally.latencies_us
        self.figures |= {f"{name}_{point}_ms": value for point, value in tally.latency_ms().items()}
        for objective_ms in OBJECTIVES_MS:
            right = tally.goodput_per_s(objective_ms, 1.0)
            self.figures[f"{name}_within_{objective_ms}ms_percent"] = 100.0 * right / max(1, tally.asked)
        self.figures[f"{name}_defaults"] = tally.defaults
        self.figures[f"{name}_cpu_us_per_query"] = part.cpu_us_per_query
        self.figures[f"{name}_all_cpu_us_per_query"] = part.cpu_us_per_query + part.services_cpu_us_per_query
        self.figures[f"{name}_sender_late_ms"] = part.late_us / 1e3

    def drained(self, part: Part) -> None:
        """Add the backlog; its rate ends at what is learnt, where anything is."""
        self._count(part)
        self.counts["backlog_defaults"] += part.tally.defaults
        rate = part.rate_per_s if part.learnt_per_s is None else part.learnt_per_s
        own_us, services_us = part.cpu_us_per_query, part.services_cpu_us_per_query
        self.figures |= {
            "drained_per_s": rate,
            "answered_per_s": part.rate_per_s,
            "cpu_us_per_query": own_us,
            "services_cpu_us_per_query": services_us,
            "all_cpu_us_per_query": own_us + services_us,
            "own_cores": cores(rate, own_us),
            "all_cores": cores(rate, own_us, services_us),
        }

    def _count(self, part: Part) -> None:
        tally = part.tally
        missing = "lost" if part.settled else "unanswered"
        self.counts[missing] += tally.missing
        self.counts["duplicates"] += tally.duplicates
        self.counts["wrong"] += tally.wrong


@asynccontextmanager
async def asked(contender: Contender, ground: Ground, setting: Mapping[str, object]) -> AsyncIterator[Client]:
    """Start a contender and warm it up; it is asked by the client that this returns.

    Raises:
        PeerFailedError: it did not start, or it ended.
    """
    try:
        async with contender.start(ground, setting) as running:
            client = Client(ground, running, contender.wire_format, contender.feedback)
            await asyncio.to_thread(_warm_up, client)
            yield client
    except (psutil.NoSuchProcess, TimeoutError) as error:
        raise PeerFailedError(f"{contender.label}: {error}") from error


def _warm_up(client: Client) -> None:
    client.ready()
    client.stretch(_WARM_UP_RATE, _WARM_UP_S, _TAIL_S)


async def visit(contender: Contender, ground: Ground, chosen: Chosen, plan: Plan, capacity_per_s: float = 0.0) -> Seen:
    """Measure a contender once, with the settings that are best for latency and for the rate of a backlog.

    Args:
        contender: who.
        ground: where.
        chosen: settings; where those two differ it is started twice.
        plan: how much.
        capacity_per_s: from an earlier visit; 0 = what is known beforehand.

    Raises:
        PeerFailedError: it did not start, or it ended.
    """
    expected = capacity_per_s or contender.backlog / _BACKLOG_S
    seen, rates = Seen(capacity_per_s=capacity_per_s), plan.at(contender, expected)
    if plan.drains and (chosen.latency == chosen.rate or not rates):
        async with asked(contender, ground, chosen.rate) as client:
            await asyncio.to_thread(_stretches, client, seen, plan, rates)
            await asyncio.to_thread(_backlog, client, seen, plan, expected)
        return seen
    async with asked(contender, ground, chosen.latency) as client:
        await asyncio.to_thread(_stretches, client, seen, plan, rates)
    if not plan.drains:
        return seen
    async with asked(contender, ground, chosen.rate) as client:
        await asyncio.to_thread(_backlog, client, seen, plan, expected)
    return seen


def _stretches(client: Client, seen: Seen, plan: Plan, rates: Mapping[str, float]) -> None:
    for name, rate in rates.items():
        seen.add(name, client.stretch(rate, plan.seconds, _TAIL_S))


def _backlog(client: Client, seen: Seen, plan: Plan, capacity_per_s: float) -> None:
    seconds = plan.learn_s if client.feedback else plan.drain_s
    rows = int(min(max(seconds * capacity_per_s, _LEAST_ROWS), _MOST_ROWS))
    seen.drained(client.backlog(rows, _LIMIT_S))
    seen.capacity_per_s = seen.capacity_per_s or seen.figures["drained_per_s"]
    seen.figures["peak_mib"] = peak_mib(client.running.pids())
