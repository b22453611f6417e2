"""`clockwork`: the model with the latest feasible start runs next, in the largest full batch that is in time.

Each row stands in the queue of every batch size of its model (Clockwork, OSDI'20). A size's latest feasible start is
the due time of its first row less what a batch of that size takes. The model whose start comes first goes first. Of its
sizes the largest runs that has enough rows, all in time by the estimate. What cannot make it is refused at once.

Four things differ from the publication. A batch of a size between two classes runs where that costs less a row: models
on a processor take any size. Rows are passed over for a larger batch only if no more are lost so. A model whose
estimates let nothing pass is tried with one row now and then, because only an execution corrects an estimate. Where
more waits than can be in time, the rows that take longest give way (`excess`).
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from workers.kernel.schedule.contract import Refusal, Start
from workers.kernel.schedule.demand import Demand
from workers.kernel.schedule.excess import Excess
from workers.kernel.schedule.profiles import class_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workers.kernel.schedule.contract import Queue
    from workers.kernel.schedule.profiles import Profiles

# A model that may not run by its estimate is tried this often at most (us): ten tries renew the estimate within 1 s.
PROBE_US: Final = 100_000
# Entries a model in each heap, above which those that are outlived are taken out.
_SPARSE: Final = 8

_Entry: TypeAlias = "tuple[int, int, str]"  # when (us), number, model


class _ScheduledModel:
    """One model.

    Attributes:
        queue: what waits for it.
        entry: the number of its last entries in the heaps.
        ran_us: when it last ran.
        ready_us: when it can run at the earliest.
        probes: its first row is tried although it may be late.
    """

    __slots__ = ("entry", "probes", "queue", "ran_us", "ready_us")

    def __init__(self, queue: Queue, now_us: int) -> None:
        self.entry = 0
        self.ran_us = 0
        self.probes = False
        self.take(queue, now_us)

    def take(self, queue: Queue, now_us: int) -> None:
        """Take what now waits."""
        self.queue = queue
        self.ready_us = now_us + queue.load_us
        self.probes = self.probes and queue.is_resident and bool(queue.dues_us)


class ClockworkSchedule:
    """Latest feasible start first."""

    name: ClassVar[str] = "clockwork"

    def __init__(self, profiles: Profiles, lanes: int = 1) -> None:
        """Start with nothing queued; `lanes` batches run at a time."""
        self.profiles = profiles
        self._lanes = lanes
        self._demand = Demand(profiles)
        self._excess = Excess(profiles, lanes)
        self._models: dict[str, _ScheduledModel] = {}
        self._ends_us: dict[str, int] = {}  # when what runs should be over
        self._number = 0
        # Entries that are not the last of their model are dropped when they come up.
        self._starts: list[_Entry] = []  # by latest feasible start
        self._losses: list[_Entry] = []  # by the last moment for the first row

    def changed(self, queue: Queue, now_us: int) -> None:
        """Take what now waits for one model."""
        model = self._models.get(queue.model)
        if model is None:
            model = self._models[queue.model] = _ScheduledModel(queue, now_us)
        else:
            model.take(queue, now_us)
        self._demand.changed(queue)
        self._enter(model, now_us)

    def forget(self, model: str, now_us: int) -> None:
        """Forget a model; its entries in the heaps are dropped when they come up."""
        if (known := self._models.pop(model, None)) is not None:
            self._demand.forget(model)
            self._excess.changed(known.queue._replace(dues_us=()), counts=False)

    def refused(self, now_us: int) -> Sequence[Refusal]:
        """Return the rows that cannot be in time, even if their model runs next, and those passed over."""
        free_us = self._free_us(now_us)
        found, kept = [], []
        while self._losses and self._losses[0][0] < free_us:
            entry = heappop(self._losses)
            if self._is_last(entry):
                model = self._models[entry[2]]
                refusal = self._lost(model, free_us, now_us)
                found.append(refusal) if refusal is not None else kept.append(model)
        for model in kept:
            self._enter(model, now_us)
        if not found:
            found.extend(self._giving_way(free_us))
        for refusal in found:
            self._demand.refused(self._models[refusal.model].queue, refusal.rows, now_us)
        if not found and len(self._ends_us) < self._lanes and (top := self._top()) is not None:
            found.extend(self._passed(top, now_us))
        return found

    def next(self, now_us: int) -> Start | None:
        """Return the batch of the model with the latest feasible start."""
        if len(self._ends_us) >= self._lanes or (model := self._top()) is None:
            return None
        heappop(self._starts)
        queue, times = model.queue, self.profiles.of(model.queue.model).by_class
        rows = self._rows(queue, queue.dues_us[0] - now_us)
        took_us = times[class_of(rows)]
        self._ends_us[queue.model] = now_us + took_us
        model.probes = False
        return Start(queue.model, rows, now_us, max(now_us, queue.dues_us[0] - took_us))

    def due_us(self) -> int | None:
        """Return when the next row is lost, if nothing runs before."""
        while self._losses and not self._is_last(self._losses[0]):
            heappop(self._losses)
        return self._losses[0][0] + 1 if self._losses else None

    def demand(self, model: str, now_us: int) -> int:
        """Return a model's demand (see `demand`)."""
        return self._demand.of(model, now_us)

    def done(self, model: str, rows: int, took_us: int, now_us: int) -> None:
        """Take that a batch is over; the model's estimates have changed."""
        self.profiles.observe(model, rows, took_us)
        self._ends_us.pop(model, None)
        known = self._models.get(model)
        if known is not None:
            known.ran_us = now_us
            self._enter(known, now_us)

    def _free_us(self, now_us: int) -> int:
        """Return when a lane is free."""
        return now_us if len(self._ends_us) < self._lanes else max(now_us, min(self._ends_us.values()))

    def _enter(self, model: _ScheduledModel, now_us: int) -> None:
        """Put a model where it belongs in both heaps."""
        self._number += 1
        model.entry = self._number
        queue = model.queue
        self._excess.changed(queue, counts=not model.probes)
        if not queue.dues_us:
            return
        due_us, times = queue.dues_us[0], self.profiles.of(queue.model).by_class
        lost_us = due_us if model.probes else due_us - times[0]
        if lost_us < model.ready_us and not queue.is_resident:
            lost_us = now_us - 1  # even if it is loaded at once
        self._push(self._losses, (lost_us, model.entry, queue.model))
        if queue.is_resident and queue.model not in self._ends_us:
            start_us = due_us if model.probes else due_us - times[class_of(_full(queue))]
            self._push(self._starts, (start_us, model.entry, queue.model))

    def _push(self, heap: list[_Entry], entry: _Entry) -> None:
        """Add an entry; now and then those that models have outlived are taken out."""
        if len(heap) > _SPARSE * len(self._models) + _SPARSE:
            heap[:] = [each for each in heap if self._is_last(each)]
            heapify(heap)
        heappush(heap, entry)

    def _is_last(self, entry: _Entry) -> bool:
        """Tell whether an entry is the last one of its model."""
        model = self._models.get(entry[2])
        return model is not None and model.entry == entry[1]

    def _top(self) -> _ScheduledModel | None:
        """Return the model that goes first."""
        while self._starts:
            name = self._starts[0][2]
            if self._is_last(self._starts[0]) and name not in self._ends_us:
                return self._models[name]
            heappop(self._starts)
        return None

    def _lost(self, model: _ScheduledModel, free_us: int, now_us: int) -> Refusal | None:
        """Return the rows of a model that cannot be in time."""
        queue = model.queue
        least_us = self.profiles.of(queue.model).by_class[0]
        least_end_us = max(free_us, model.ready_us) + least_us
        rows = bisect_left(queue.dues_us, now_us if model.probes else least_end_us)
        if rows == len(queue.dues_us) and self._may_probe(model, now_us):
            model.probes, rows = True, rows - 1
        if not rows:
            return None
        if queue.is_resident:
            return Refusal(queue.model, rows, f"no time is left: one row takes {least_us / 1e3:.1f} ms")
        return Refusal(queue.model, rows, f"the model is not loaded: that takes {queue.load_us / 1e3:.1f} ms more")

    def _may_probe(self, model: _ScheduledModel, now_us: int) -> bool:
        """Tell whether a model of whose rows none can make it is tried all the same."""
        queue = model.queue
        is_free = queue.is_resident and queue.model not in self._ends_us
        return is_free and queue.dues_us[-1] > now_us and now_us - model.ran_us >= PROBE_US

    def _giving_way(self, free_us: int) -> Iterator[Refusal]:
        """Yield the rows that take longest, where more waits than can be in time."""
        first_us = self._losses[0][0] if self._losses else free_us
        for name, rows in self._excess.surplus(first_us, free_us).items():
            row_us = self.profiles.estimate(name, 1)
            yield Refusal(name, rows, f"more waits than can be in time, and a row takes {row_us / 1e3:.1f} ms")

    def _passed(self, model: _ScheduledModel, now_us: int) -> Iterator[Refusal]:
        """Yield the rows that are passed over for a larger batch, if as many would be lost otherwise."""
        queue, times = model.queue, self.profiles.of(model.queue.model).by_class
        dues_us = queue.dues_us
        if model.probes:
            return
        for index in range(class_of(_full(queue)), 0, -1):
            passed = bisect_left(dues_us, now_us + times[index])
            if len(dues_us) - passed < 1 << index:
                continue
            first = self._rows(queue, dues_us[0] - now_us)
            then_us = now_us + times[class_of(first)] + times[index]
            if passed and bisect_left(dues_us, then_us) - first >= passed:
                yield Refusal(queue.model, passed, "no time is left: a larger batch of later rows runs instead")
            return

    def _rows(self, queue: Queue, slack_us: int) -> int:
        """Return how many rows run: the largest full batch that is in time, or all rows if that costs less a row."""
        times = self.profiles.of(queue.model).by_class
        most = min(queue.cap, len(queue.dues_us))
        index = class_of(_full(queue))
        while index and times[index] > slack_us:
            index -= 1
        rows, whole = 1 << index, class_of(most)
        is_cheaper = times[whole] * rows <= times[index] * most
        return most if most > rows and times[whole] <= slack_us and is_cheaper else rows


def _full(queue: Queue) -> int:
    """Return the rows of the largest batch that is full."""
    return 1 << min(queue.cap, len(queue.dues_us)).bit_length() - 1
