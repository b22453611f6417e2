"""The most memory that processes have held, as the kernel has noted it: nobody has to look while it happens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping


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
