"""One model of a host: what topic `models` says of it, and its worker, which is made when it is asked first.

A model that nobody asks costs its records alone: about 2 KiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from schemas.records import Model
    from streams.operators.contract import Load, Record
    from workers.kernel.lane import Lane
    from workers.kernel.worker import ModelWorker

# A version that ended the process of the models is loaded again after this long (us), four times as long each time.
OUT_US: Final = 10_000_000
MOST_OUT_US: Final = 640_000_000


@dataclass(slots=True)
class Copy:
    """A copy of a version that a worker wants in memory.

    Attributes:
        load: what the worker asked for.
        unit: its name among all copies of the host.
        is_told: whether the worker has heard that it was loaded. It hears of that once: it does not notice when a copy
            leaves memory and comes back.
        due_us: when its rows are looked at for those that are too late.
        loading_us: since when it was loaded last.
    """

    load: Load
    unit: str
    is_told: bool = False
    due_us: int | None = None
    loading_us: int = 0


class Out(NamedTuple):
    """A version that is taken out: how often in a row it has ended the process, and until when (us)."""

    times: int
    until_us: int


@dataclass(slots=True)
class Hosted:
    """One model of a host.

    Attributes:
        model: its version that serves, as published last.
        records: the last ones of topic `models` about it, by key.
        worker: its kernel; None = it was never asked.
        copies: that the worker wants, by number.
        out: versions that were taken out.
        due_us: when the worker's timer is due.
        held: rows that wait.
    """

    model: Model
    records: dict[bytes, Record] = field(default_factory=dict)
    worker: ModelWorker | None = None
    copies: dict[int, Copy] = field(default_factory=dict)
    out: dict[str, Out] = field(default_factory=dict)
    due_us: int | None = None
    held: int = 0

    def unit_of(self, lane: Lane) -> str:
        """Return the name of what a lane asks: the model, or one of its versions beside the one that serves."""
        assert self.worker is not None, "lanes are a worker's"
        name, version, _ = lane.identity
        return name if lane is self.worker.serving else f"{name}@{version}"

    def lane_of(self, copy: int) -> Lane | None:
        """Return the lane that asks a copy; None = it does not answer (yet)."""
        lanes = () if self.worker is None else self.worker.lanes
        return next((lane for lane in lanes if lane.copy == copy), None)

    def take_out(self, version: str, now_us: int) -> int:
        """Take a version out; returns until when."""
        times = self.out[version].times + 1 if version in self.out else 1
        until_us: int = now_us + min(OUT_US << 2 * (times - 1), MOST_OUT_US)
        self.out[version] = Out(times, until_us)
        return until_us
