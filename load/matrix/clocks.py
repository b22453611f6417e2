"""Rows of clocks: one role's clock is a minute ahead, or a minute behind, all others are right.

`clock_shift.c` is compiled and loaded into the process (LD_PRELOAD): Python, C and librdkafka all see that time.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from load.matrix.broken import Broken, Seen
from load.matrix.evidence import last_report, refused
from load.matrix.traffic import SLOW

if TYPE_CHECKING:
    from load.matrix.broken import Place

CLOCKS: Final = "clocks"
ROLES: Final = ("selection", "worker", "joiner", "learner")
SHIFT_S: Final = 60
_ASKED_S: Final = 25.0
_REFUSED_S: Final = 5.0  # what comes too late is a dead letter by then
_READY_S, _LOOK_S = 60.0, 1.0
_VAGUE_S: Final = 20.0  # between a report and when it is read
_SOURCE: Final = Path(__file__).with_name("clock_shift.c")


def compiled(folder: Path, compiler: str) -> Path:
    """Return the library that shifts a process's clock.

    Raises:
        subprocess.CalledProcessError: it cannot be compiled.
    """
    library = folder / "clock_shift.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)  # noqa: S603
    return library


async def _shifted(place: Place, role: str, seconds: int) -> Seen:
    """Let a role live for a while by a clock that is wrong."""
    compiler = shutil.which("cc")
    if compiler is None:
        return Seen({}, ("its clock was not shifted: there is no C compiler (cc)",))
    library, name = await asyncio.to_thread(compiled, place.trace.parent, compiler), place.process(role)
    await place.system.stop(name)
    await place.system.start(name, {"LD_PRELOAD": str(library), "CLOCK_SHIFT_S": str(seconds)})
    off_s = await _off_s(place, name)
    figures, alone = await _cost(place), place.system.restarts[name]
    await place.system.stop(name)
    await place.system.start(name)
    wrong = {f"it ended by itself {alone} times meanwhile": alone > 0, "it was not ready meanwhile": off_s is None}
    is_other = off_s is not None and abs(off_s - seconds) > _VAGUE_S
    wrong |= {f"its clock was off by {off_s or 0:.0f} s, not by {seconds}": is_other}
    return Seen(figures, tuple(fault for fault, is_so in wrong.items() if is_so))


async def _off_s(place: Place, name: str) -> float | None:
    """Wait until a process reports that it is ready; returns by how much its clock is ahead, None if it is not."""
    end_s = time.monotonic() + _READY_S
    while time.monotonic() < end_s:
        pid = place.system.pids.get(name, 0)
        if (report := await asyncio.to_thread(last_report, place, pid)) is not None:
            return report.time_us / 1e6 - time.time()
        await asyncio.sleep(_LOOK_S)
    return None


async def _cost(place: Place) -> dict[str, float]:
    """Ask for a while, tell the last slow feedback, and return what became of it."""
    traffic, since = place.traffic, place.traffic.sent
    await asyncio.sleep(_ASKED_S)
    until = traffic.sent
    await asyncio.sleep(traffic.delays[SLOW[0]] + _REFUSED_S)
    late = await asyncio.to_thread(refused, place)
    slow = {f"q{number}" for number in traffic.answered(since, until, SLOW)}
    return {
        "complete answers, of 100": 100 * traffic.share_complete(since, until),
        "feedback told after half a window": len(slow),
        "of which dead letters": len(slow & late),
    }


CLOCK_ROWS: Final = tuple(
    Broken(f"{role}'s clock {seconds:+} s", CLOCKS, partial(_shifted, role=role, seconds=seconds), times=1)
    for role in ROLES
    for seconds in (SHIFT_S, -SHIFT_S)
)
