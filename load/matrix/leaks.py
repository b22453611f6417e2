"""What processes hold over time, and how that grows; a process that was started again begins anew."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_HOUR_S: Final = 3_600.0
_MINUTE_S: Final = 60.0


class Held(NamedTuple):
    """What one process held at one moment."""

    at_s: float
    pid: int
    mib: float
    handles: int


@dataclass(slots=True)
class Leaks:
    """Looks at processes, by name.

    Attributes:
        seen: what each held, in order.
    """

    seen: defaultdict[str, list[Held]] = field(default_factory=lambda: defaultdict(list))

    def look(self, pids: Mapping[str, int], at_s: float) -> None:
        """Look at all now; who has just ended is left out."""
        for name, pid in pids.items():
            try:
                process = psutil.Process(pid)
                held = Held(at_s, pid, process.memory_info().rss / 2**20, process.num_fds())
            except psutil.NoSuchProcess:
                continue
            self.seen[name].append(held)

    def minutes(self, since_s: float) -> list[dict[str, float | str]]:
        """Return what each process held, a row a minute for each."""
        rows: list[dict[str, float | str]] = []
        for name, seen in self.seen.items():
            first = {(held.pid, int((held.at_s - since_s) // _MINUTE_S)): held for held in reversed(seen)}
            rows += [
                {"process": name, "pid": pid, "minute": minute, "mib": round(held.mib, 2), "handles": held.handles}
                for (pid, minute), held in sorted(first.items(), key=lambda each: each[1].at_s)
            ]
        return rows

    def grown(self, warm_s: float) -> dict[str, tuple[float, float]]:
        """Return MiB and handles an hour by process, from when each process was as old as that."""
        return {name: per_hour(settled(seen, warm_s)) for name, seen in self.seen.items()}


def settled(seen: Sequence[Held], warm_s: float) -> list[list[Held]]:
    """Return the lives of one process after another, each without its first seconds."""
    lives: dict[int, list[Held]] = {}
    for held in seen:
        lives.setdefault(held.pid, []).append(held)
    return [[held for held in life if held.at_s >= life[0].at_s + warm_s] for life in lives.values()]


def per_hour(lives: Iterable[Sequence[Held]]) -> tuple[float, float]:
    """Return the slopes of memory (MiB/h) and handles (1/h): one line for all lives, each from its own height."""
    time = memory = handles = 0.0
    for life in lives:
        if not life:
            continue
        middle_s, mib, count = (fmean(each) for each in zip(*((h.at_s, h.mib, h.handles) for h in life), strict=True))
        for held in life:
            time += (held.at_s - middle_s) ** 2
            memory += (held.at_s - middle_s) * (held.mib - mib)
            handles += (held.at_s - middle_s) * (held.handles - count)
    return (memory / time * _HOUR_S, handles / time * _HOUR_S) if time else (0.0, 0.0)
