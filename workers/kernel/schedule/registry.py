"""The schedules by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers.kernel.schedule.clockwork import ClockworkSchedule
from workers.kernel.schedule.fifo import Fifo
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.residency import Residency
from workers.kernel.schedule.trunks import ByTrunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workers.kernel.schedule.contract import Schedule

SCHEDULES: Mapping[str, Callable[..., Schedule]] = {ClockworkSchedule.name: ClockworkSchedule, Fifo.name: Fifo}


def scheduled(name: str, lanes: int, memory_bytes: int) -> tuple[Schedule, Residency]:
    """Return what chooses the batches of a host, and which models are in its memory.

    Args:
        name: of the schedule; an unknown one is `fifo`.
        lanes: batches that run at a time.
        memory_bytes: that the models in memory may take together.
    """
    chosen = ByTrunk(SCHEDULES.get(name, Fifo)(Profiles(), lanes))
    return chosen, Residency(memory_bytes, demand=chosen.demand)
