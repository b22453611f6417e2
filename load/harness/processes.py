"""The cost of processes: CPU seconds and memory, read from outside by process id."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HERE = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that one process and its children have used so far."""

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


def rest(
    pids: Callable[[], Mapping[str, int]], *, cores: float = 0.1, look_s: float = 0.5, limit_s: float = 20.0
) -> None:
    """Wait until the processes do next to nothing.

    Args:
        pids: theirs, by instance.
        cores: that are next to nothing, of all of them together.
        look_s: for how long they must use no more.
        limit_s: how long it is waited at most.

    Raises:
        psutil.NoSuchProcess: an instance is gone.
    """
    end_s = time.monotonic() + limit_s
    before_s = total_cpu_s(pids())
    while time.monotonic() < end_s:
        time.sleep(look_s)
        now_s = total_cpu_s(pids())
        if now_s - before_s < cores * look_s:
            return
        before_s = now_s


def total_cpu_s(pids: Mapping[str, int]) -> float:
    """Return the CPU seconds of all instances so far.

    Raises:
        psutil.NoSuchProcess: an instance is gone.
    """
    return sum(used.cpu_s for used in usage(pids).values())


def machine_cpu_s() -> float:
    """Return the CPU seconds that all processes of this machine have used so far."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0))


def listening(address: str) -> dict[str, int]:
    """Return the process that listens at `host:port` of this machine, by its name; nothing where none is seen."""
    host, _, port = address.rpartition(":")
    if host.strip("[]") not in _HERE:
        return {}
    with suppress(psutil.AccessDenied):
        found = (each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN and each.pid)
        return {psutil.Process(each.pid).name(): each.pid for each in found if each.laddr.port == int(port)}
    return {}


def _tree(process: psutil.Process) -> Usage:
    family = [process, *process.children(recursive=True)]
    times = [member.cpu_times() for member in family]
    return Usage(
        cpu_s=sum(t.user + t.system for t in times),
        rss_bytes=sum(member.memory_info().rss for member in family),
    )


def peak_mib(pids: Mapping[str, int]) -> float:
    """Return the sum of the peaks of processes and their children (MiB, resident); shared pages count twice."""
    roots = [psutil.Process(pid) for pid in pids.values()]
    family = [member for root in roots for member in (root, *root.children(recursive=True))]
    return sum(_peak_bytes(member) for member in family) / 2**20


def _peak_bytes(process: psutil.Process) -> int:
    """Where the kernel does not say, what it holds now."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return int(process.memory_info().rss)
    kibibytes = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), "0")
    return int(kibibytes) * 1024
