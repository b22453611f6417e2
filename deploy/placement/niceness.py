"""Gives way to the roles that answer: who learns or records in a process of its own gets less of a core that both want.

    share of a core = niceness of the process, and where Linux groups sessions (autogroup, sched(7)), of its session

With autogroup the niceness of a process counts within its session alone, and `skysail run` gives each process one.
Measured on two cores, five processes, 10,000 queries/s, niceness 0 and 5: p99 60 and 19 ms, p50 11 and 9.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.config.cores import cores
from deploy.placement.grouping import FEW_CORES

if TYPE_CHECKING:
    from collections.abc import Collection

# Nobody waits for what they do; selection and workers are what queries wait for.
PATIENT: Final = frozenset(("joiner", "learner", "record", "telemetry", "control"))
_AUTOGROUP = Path("/proc/self/autogroup")


def niceness(roles: Collection[str], wanted: int) -> int:
    """Return how nice a process of these roles is to be: not at all with a role that answers, or where cores abound.

    Args:
        roles: that it runs.
        wanted: the setting, 0 to 19.
    """
    return wanted if PATIENT.issuperset(roles) and cores() <= FEW_CORES else 0


def give_way(nice: int, autogroup: Path = _AUTOGROUP) -> None:
    """Make this process so much nicer, and its session, if it leads one: others' sessions are theirs.

    Args:
        nice: 0 changes nothing.
        autogroup: the file by which Linux takes a session's niceness.
    """
    if not nice or not hasattr(os, "nice"):
        return
    os.nice(nice)
    if os.getsid(0) == os.getpid() and autogroup.is_file():
        with suppress(OSError):  # a container may forbid it
            autogroup.write_text(str(nice))
