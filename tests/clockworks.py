"""Models as Clockwork has published them, and a host in virtual time that runs schedules."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas.records import Profile
from workers.kernel.schedule.contract import Queue
from workers.kernel.schedule.profiles import Profiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.kernel.schedule.contract import Refusal, Schedule, Start

SIZES = (1, 2, 4, 8, 16)
# ResNet-50 on a V100 (Clockwork, OSDI'20): a batch of each size; 102 MB of weights within 8.33 ms.
RESNET50 = Profile("resnet50", "1", SIZES, (2_610, 3_780, 5_610, 9_130, 15_670), 8_330, 102_228_128)


def profiles(*names: str) -> Profiles:
    """Return profiles in which each name is a ResNet-50."""
    found = Profiles()
    for name in names:
        found.restore(RESNET50._replace(model=name))
    return found


def queue(
    model: str, *dues_us: int, since_us: int = 0, is_resident: bool = True, cap: int = 16, trunk: str = ""
) -> Queue:
    """Return what waits for a ResNet-50."""
    left_us = 0 if is_resident else RESNET50.load_us
    return Queue(model, dues_us, since_us, is_resident, left_us, RESNET50.bytes, cap, trunk)


@dataclass
class Lane:
    """Runs a schedule with one lane; every batch takes what `took_us` says, or else what was estimated.

    Attributes:
        schedule: that decides.
        waiting: due times by model, rising.
        starts, refusals: what was decided, with the due times concerned.
        trunks: that models have in common.
        gone: the rows that were started or refused, by model and due time.
    """

    schedule: Schedule
    is_resident: bool = True
    waiting: dict[str, list[int]] = field(default_factory=dict)
    starts: list[tuple[Start, list[int]]] = field(default_factory=list)
    refusals: list[tuple[int, Refusal, list[int]]] = field(default_factory=list)
    running: tuple[Start, int, int] | None = None  # what runs, since when, and until when
    trunks: Mapping[str, str] = field(default_factory=dict)
    gone: Counter[tuple[str, int]] = field(default_factory=Counter)

    def offer(self, model: str, due_us: int, now_us: int) -> None:
        """Queue a row."""
        insort(self.waiting.setdefault(model, []), due_us)
        self._tell(model, now_us)
        self.advance(now_us)

    def advance(self, now_us: int, took_us: int | None = None) -> None:
        """Do what can be done."""
        if self.running is not None and self.running[2] <= now_us:
            start, since_us, until_us = self.running
            self.running = None
            self.schedule.done(start.model, start.rows, until_us - since_us, until_us)
        for refusal in self.schedule.refused(now_us):
            rows = self._drop(refusal.model, refusal.rows, now_us)
            self.refusals.append((now_us, refusal, rows))
        start_now = self.schedule.next(now_us)
        if start_now is not None:
            estimate_us = self.schedule.profiles.estimate(start_now.model, start_now.rows)
            parts = start_now.parts or ((start_now.model, start_now.rows),)
            rows = sorted(due_us for model, count in parts for due_us in self._drop(model, count, now_us))
            self.starts.append((start_now, rows))
            self.running = start_now, now_us, now_us + (took_us or estimate_us)

    def run_out(self, now_us: int) -> None:
        """Let everything happen that is still to happen."""
        for _ in range(10_000):
            if self.running is not None:
                now_us = max(now_us, self.running[2])
            elif (due_us := self.schedule.due_us()) is not None:
                now_us = max(now_us, due_us)
            else:
                return
            self.advance(now_us)
        raise AssertionError("it does not end")

    def _drop(self, model: str, rows: int, now_us: int) -> list[int]:
        dropped = self.waiting[model][:rows]
        assert len(dropped) == rows
        del self.waiting[model][:rows]
        self.gone.update((model, due_us) for due_us in dropped)
        self._tell(model, now_us)
        return dropped

    def _tell(self, model: str, now_us: int) -> None:
        trunk = self.trunks.get(model, "")
        waits = queue(model, *self.waiting[model], since_us=now_us, is_resident=self.is_resident, trunk=trunk)
        self.schedule.changed(waits, now_us)
