"""What processes cost: CPU seconds and resident memory, read from outside by process id."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_IDLE_CORES, _IDLE_LOOK_S, _IDLE_LIMIT_S = 0.1, 0.5, 20.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process and its children have used so far."""

    cpu_s: float
    rss_bytes: int


def usage(pids: Mapping[str, int]) -> dict[str, Usage]:
    """Return the usage by instance.

    Raises:
        psutil.NoSuchProcess: an instance is gone; a measurement without it would be a lie.
    """
    return {name: _tree(psutil.Process(pid)) for name, pid in pids.items()}


def cpu_seconds(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, float]:
    """Return the CPU seconds that each instance used between two readings."""
    return {name: after[name].cpu_s - before[name].cpu_s for name in before}


def rest(pids: Callable[[], Mapping[str, int]]) -> None:
    """Wait until the processes do next to nothing (a twentieth of a second in half a second), at most 20 s.

    Raises:
        psutil.NoSuchProcess: an instance is gone.
    """
    end_s = time.monotonic() + _IDLE_LIMIT_S
    before_s = total_cpu_s(pids())
    while time.monotonic() < end_s:
        time.sleep(_IDLE_LOOK_S)
        now_s = total_cpu_s(pids())
        if now_s - before_s < _IDLE_CORES * _IDLE_LOOK_S:
            return
        before_s = now_s


def total_cpu_s(pids: Mapping[str, int]) -> float:
    """Return the CPU seconds of all instances so far.

    Raises:
        psutil.NoSuchProcess: an instance is gone.
    """
    return sum(used.cpu_s for used in usage(pids).values())


def _tree(process: psutil.Process) -> Usage:
    family = [process, *process.children(recursive=True)]
    times = [member.cpu_times() for member in family]
    return Usage(
        cpu_s=sum(t.user + t.system for t in times),
        rss_bytes=sum(member.memory_info().rss for member in family),
    )
