"""What an attack cost, seen from outside: roles that ended, memory, dead letters by cause."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
from confluent_kafka import TopicPartition

from schemas import topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from load.hostile.arena import Arena

_CAUSE = "skysail.error.cause"


@dataclass(frozen=True, slots=True)
class Before:
    """Restarts and resident bytes of each role at one moment, from which on its peak is counted anew."""

    restarts: Mapping[str, int]
    rss_bytes: Mapping[str, int]

    @classmethod
    def of(cls, arena: Arena) -> Self:
        """Look now."""
        pids = arena.system.pids
        for pid in pids.values():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): the peak of resident memory starts anew
        return cls(
            dict(arena.system.restarts), {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}
        )

    def ended(self, arena: Arena, expected: Iterable[str]) -> dict[str, int]:
        """Return the roles that have ended since, and how often, without those that were to."""
        now = arena.system.restarts
        since = {name: now.get(name, 0) - before for name, before in self.restarts.items()}
        return {name: count for name, count in since.items() if count > (name in expected)}

    def grown(self, arena: Arena) -> dict[str, int]:
        """Return by how many bytes each role's memory was at its peak over what it had."""
        pids = arena.system.pids
        return {name: _peak(pids[name]) - rss for name, rss in self.rss_bytes.items() if name in pids}


def _peak(pid: int) -> int:
    """Return the most resident bytes of a process (proc(5): VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


class DeadLetters:
    """Counts the dead letters of all client topics by topic and cause."""

    def __init__(self, arena: Arena, of: Iterable[str]) -> None:
        self._consumer = arena.consumer()
        self._consumer.assign([TopicPartition(arena.full(topics.dead_letters(name)), 0, 0) for name in of])

    def take(self) -> Counter[str]:
        """Return what has come since the last time."""
        found: Counter[str] = Counter()
        while messages := self._consumer.consume(1000, 0.3):
            for message in messages:
                headers: dict[str, object] = dict(message.headers() or ())
                cause = headers.get(_CAUSE)
                found[cause.decode(errors="replace") if isinstance(cause, bytes) else "none"] += 1
        return found

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
