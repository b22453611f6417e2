"""Whose turn it is in the process of a host's models: as many batches run as there are lanes.

    what waits for a unit ─▶ schedule ─▶ refused: its rows are told so
                                 └─▶ next ─▶ each model of the batch takes its rows ─▶ Predict ─▶ done

A version that is tried before it answers has its turn before all others.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from streams.operators.contract import Predict
from workers.kernel.host.joint_batches import JointBatch, JointPart, joined
from workers.kernel.schedule.contract import Queue

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from streams.operators.contract import Effects
    from workers.kernel.host.memory import Memory
    from workers.kernel.host.models import Hosted
    from workers.kernel.model.lane import Joint
    from workers.kernel.schedule.contract import Schedule, Start


class RunningBatch(NamedTuple):
    """A batch that is with the models' process.

    Attributes:
        hosted: whose.
        predict: as its worker asked for it.
        unit: that was asked.
        epoch: the number of the process.
        batch: of which it is a part, or all.
    """

    hosted: Hosted
    predict: Predict
    unit: str
    epoch: int
    batch: JointBatch


class HostScheduler:
    """The lanes of one host."""

    def __init__(
        self,
        schedule: Schedule,
        memory: Memory,
        lanes: int,
        touch: Callable[[Hosted], None],
        counters: Counter[str],
    ) -> None:
        """Run nothing.

        Args:
            schedule: chooses the next batch.
            memory: tells which units can run.
            lanes: so many batches run at a time.
            touch: is told of each model whose queue has changed.
            counters: of the host.
        """
        self._schedule = schedule
        self._memory = memory
        self._lanes = lanes
        self._touch = touch
        self._counters = counters
        self._number = count().__next__  # each worker counts its own batches
        self._running: dict[int, RunningBatch] = {}
        self._at_work = 0  # batches that run; of one that several models share, each has a part
        self._trials: deque[tuple[Hosted, Predict]] = deque()  # wait for their turn

    @property
    def due_us(self) -> int | None:
        """When `advance` has something to do; None = never."""
        return self._schedule.due_us()

    @property
    def busy(self) -> set[str]:
        """The units that run."""
        return {run.unit for run in self._running.values()}

    def add_trial(self, hosted: Hosted, predict: Predict) -> None:
        """Take a batch on which a version is tried."""
        self._trials.append((hosted, predict))

    def forget(self, hosted: Hosted) -> None:
        """Drop what waits to be tried for a model that was removed."""
        self._trials = deque(trial for trial in self._trials if trial[0] is not hosted)

    def advance(self, now_us: int) -> Effects:
        """Refuse what cannot be in time, and start all batches that can start."""
        effects: Effects = []
        while True:
            self._tell_schedule(now_us)
            for model, rows, reason in self._schedule.refused(now_us):
                effects += self._refuse(model, rows, reason, now_us)
            self._tell_schedule(now_us)
            started = self._start(now_us)
            if started is None:
                return effects
            effects += started

    def ended(self, batch_id: int, took_us: int, now_us: int, *, is_lost: bool) -> tuple[RunningBatch, Joint | None]:
        """Note that a batch, or a part of one, is over; returns it, and what it is a part of."""
        run = self._running.pop(batch_id)
        batch, joint = run.batch, run.batch.end_part()
        if not batch.left:
            self._at_work -= 1
            if batch.name:
                self._schedule.done(batch.name, 0 if is_lost else batch.rows, took_us, now_us)
        return run, joint

    def _tell_schedule(self, now_us: int) -> None:
        memory = self._memory
        emptied, memory.emptied = memory.emptied, []
        for unit in emptied:
            self._schedule.forget(unit, now_us)
        changed, memory.changed = memory.changed, {}
        for unit in changed:
            if unit in memory.units:
                self._tell_of(unit, now_us)

    def _tell_of(self, unit: str, now_us: int) -> None:
        """Tell the schedule what waits for a unit, and wish that one for which rows wait is in memory."""
        memory = self._memory
        hosted, copy = memory.units[unit]
        offer = hosted.offer_of(copy)
        if offer is None:
            return
        is_there, waits = unit in memory, len(offer.dues_us) > 0
        memory.residency.ask(unit, is_asked=waits)
        load_us = 0 if is_there else memory.left_to_load(copy, now_us)
        since_us = offer.since_us if waits else now_us
        size_bytes = hosted.size_of(copy.load.model)
        can_run = is_there and offer.is_ready
        queue = Queue(unit, offer.dues_us, since_us, can_run, load_us, size_bytes, offer.cap, offer.trunk)
        self._schedule.changed(queue, now_us)
        if waits and not is_there:
            memory.want(unit, now_us)

    def _start(self, now_us: int) -> Effects | None:
        """Start one batch; None = none can start now."""
        if self._at_work >= self._lanes:
            return None
        for index, (hosted, predict) in enumerate(self._trials):
            copy = hosted.copies.get(predict.copy)
            if copy is None or copy.unit in self._memory:
                del self._trials[index]
                return [] if copy is None else [self._alone(hosted, predict, copy.unit, now_us)]
            self._memory.want(copy.unit, now_us)  # it has made room for another one meanwhile
        start = self._schedule.next(now_us)
        return None if start is None else self._begin(start, now_us)

    def _begin(self, start: Start, now_us: int) -> Effects:
        """Have every model of a batch begin its part."""
        effects: Effects = []
        parts: list[JointPart] = []
        try:
            self._divide(start, now_us, parts, effects)
        except Exception:  # the kernel starts over, and the schedule must not wait for this batch
            for part in parts:
                assert part.hosted.worker is not None, "it has begun a part"
                part.hosted.worker.ended(part.predict.batch_id, None, now_us)
                self._touch(part.hosted)
            self._schedule.done(start.model, 0, 0, now_us)
            raise
        if not parts:
            self._schedule.done(start.model, 0, 0, now_us)
            return effects
        batch = joined(start.model, parts, now_us)
        self._at_work += 1
        if len(parts) > 1:
            self._counters["host_joint_batches_total"] += 1
            self._counters["host_joint_parts_total"] += len(parts)
        first, *others = [self._given(part.hosted, part.predict, part.unit, batch, now_us) for part in parts]
        return [*effects, first._replace(joined=tuple(others))]

    def _divide(self, start: Start, now_us: int, parts: list[JointPart], effects: Effects) -> None:
        """Have each model of a batch take its rows; adds the parts, and what else comes of it."""
        whole = start.rows if start.parts else 0
        for unit, rows in start.parts or ((start.model, start.rows),):
            hosted, copy = self._memory.units[unit]
            assert hosted.worker is not None, "the schedule has heard of it"
            for effect in hosted.worker.start(copy.load.copy, rows, now_us, start.latest_us, whole):
                if isinstance(effect, Predict):
                    parts.append(JointPart(hosted, unit, effect))
                else:
                    effects.append(effect)
            self._touch(hosted)

    def _alone(self, hosted: Hosted, predict: Predict, unit: str, now_us: int) -> Predict:
        """Return a batch that no schedule has started."""
        self._at_work += 1
        return self._given(hosted, predict, unit, JointBatch("", len(predict.rows)), now_us)

    def _given(self, hosted: Hosted, predict: Predict, unit: str, batch: JointBatch, now_us: int) -> Predict:
        """Return a part under a number that no other worker here gives; it does not end the role if it hangs."""
        number = self._number()
        self._running[number] = RunningBatch(hosted, predict, unit, self._memory.epoch, batch)
        self._memory.residency.use(unit, now_us, is_busy=True)
        return predict._replace(batch_id=number, is_vital=False)

    def _refuse(self, unit: str, rows: int, reason: str, now_us: int) -> Effects:
        """Drop rows that cannot be in time, with the reason."""
        hosted, copy = self._memory.units[unit]
        if hosted.worker is None or hosted.offer_of(copy) is None:
            return []
        self._counters["host_refused_total"] += rows
        effects = hosted.worker.refuse(copy.load.copy, rows, now_us, reason)
        self._touch(hosted)
        return effects
