"""The schedules by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers.kernel.schedule.clockwork import ClockworkSchedule
from workers.kernel.schedule.fifo import Fifo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workers.kernel.schedule.contract import Schedule

SCHEDULES: Mapping[str, Callable[..., Schedule]] = {ClockworkSchedule.name: ClockworkSchedule, Fifo.name: Fifo}
