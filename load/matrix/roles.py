"""Rows of roles: each is asked to end, is killed, and stands still for longer than its session."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Final

from load.matrix.broken import STILL_S, Broken, still
from load.matrix.setting import INSTANCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.matrix.broken import Check, Place


_PAGE_S: Final = 5.0  # that a page may take on a busy machine


async def _ended(place: Place, role: str, number: signal.Signals) -> None:
    before = dict(place.system.restarts)
    place.signal(role, number)
    await place.restarted(role, before)


async def _still(place: Place, role: str) -> None:
    async with still(place.system.pids[place.process(role)]):
        await asyncio.sleep(STILL_S)


def _records(place: Place, since_s: float) -> str:
    """Tell whether the trace grows again."""
    files = [file.stat().st_mtime for file in place.trace.iterdir()]
    is_growing = max(files, default=0.0) > time.time() - (time.monotonic() - since_s)
    return "" if is_growing else "nothing is recorded"


def _replies(place: Place, since_s: float) -> str:
    """Tell whether the gateway replies again."""
    return "" if place.door.replied_s > since_s else "the gateway does not reply"


def _is_shown(place: Place, _since_s: float) -> str:
    """Tell whether the page has all processes again."""
    address = f"http://127.0.0.1:{place.page}/api/status"
    try:
        with urllib.request.urlopen(address, timeout=_PAGE_S) as reply:
            shown = json.load(reply)["processes"]
    except (OSError, ValueError) as fault:
        return f"the page does not come: {fault}"
    missing = {*INSTANCES} - _UNSHOWN - {each["instance"].partition("@")[0] for each in shown if not each["silent"]}
    return f"the page lacks {', '.join(sorted(missing))}" if missing else ""


_WORKS: Final[Mapping[str, Check]] = {"record": _records, "gateway": _replies, "control": _is_shown}
# They report by other names, or not at all.
_UNSHOWN: Final = {"worker", "host", "control", "record", "gateway", "mapping"}


def _rows(role: str) -> tuple[Broken, ...]:
    works = _WORKS.get(role)
    ended = [
        Broken(f"{role} {number.name}", role, partial(_ended, role=role, number=number), (role,), 3, works)
        for number in (signal.SIGTERM, signal.SIGKILL)
    ]
    return (*ended, Broken(f"{role} SIGSTOP", role, partial(_still, role=role), (), 3, works))


ROLE_ROWS: Final = tuple(row for role in INSTANCES for row in _rows(role))
