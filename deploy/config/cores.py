"""How many cores this process may use: fewer than the machine has, where a container or an affinity says so."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def cores(root: Path = _ROOT, own: Path = _OWN) -> float:
    """Return the number of cores, at least a part of one: the fewest that affinity and control groups leave.

    Args:
        root: where control groups are mounted (cgroups(7), both versions).
        own: the file that names those of this process.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(affinity), *_quotas(root, own)])


def _quotas(root: Path, own: Path) -> list[float]:
    """Return the bounds of the groups from this process's own one up to the root, as cores."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    found = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        mount = root if not controllers else root / "cpu"
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = mount / path.lstrip("/")
        for place in [folder, *folder.parents]:
            if place.is_relative_to(mount):
                found += _quota(place)
    return found


def _quota(folder: Path) -> list[float]:
    """Return what one group may use, as cores; nothing if it may use all."""
    try:
        if (both := folder / "cpu.max").is_file():
            quota, period = both.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return [int(quota) / int(period)] if quota not in ("max", "-1") else []
    except (OSError, ValueError, ZeroDivisionError):
        return []
