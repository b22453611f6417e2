"""Rows of roles: each is asked to end, is killed, and stands still for longer than its session."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING, Final

from load.matrix.broken import STILL_S, Broken, still
from load.matrix.setting import INSTANCES

if TYPE_CHECKING:
    from load.matrix.broken import Place

# Nobody who asks misses these.
_BESIDE: Final = frozenset({"joiner", "learner", "control", "record", "gateway"})


async def _ended(place: Place, role: str, number: signal.Signals) -> None:
    before = dict(place.system.restarts)
    place.signal(role, number)
    await place.restarted(role, before)


async def _still(place: Place, role: str) -> None:
    async with still(place.system.pids[place.process(role)]):
        await asyncio.sleep(STILL_S)


def _rows(role: str) -> tuple[Broken, ...]:
    disturbs = role not in _BESIDE
    ended = [
        Broken(f"{role} {number.name}", role, partial(_ended, role=role, number=number), (role,), disturbs=disturbs)
        for number in (signal.SIGTERM, signal.SIGKILL)
    ]
    return (*ended, Broken(f"{role} SIGSTOP", role, partial(_still, role=role), disturbs=disturbs))


ROLE_ROWS: Final = tuple(row for role in INSTANCES for row in _rows(role))
