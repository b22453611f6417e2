"""Lets models that have one trunk run together: what waits for them is one queue of another schedule.

    queues of a, b, c ─▶ one queue, by due time ─▶ schedule ─▶ Start of the trunk ─▶ parts of a, b, c

So whatever the schedule decides holds for the trunk: how large a batch is, when it starts, what cannot make it, and
what its profile says. A model that is not in memory waits alone, until it has been loaded. Prefix batching is of Nexus
(SOSP'19), where the models must also have one objective; here each row keeps its own due time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from itertools import islice, repeat
from typing import TYPE_CHECKING, ClassVar, overload

from workers.kernel.schedule.contract import Queue, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers.kernel.schedule.contract import Schedule, Start
    from workers.kernel.schedule.profiles import Profiles


class Heads:
    """The models that are in memory with one trunk; those for which rows wait are one queue."""

    def __init__(self, trunk: str) -> None:
        self._trunk = trunk
        self._waiting: dict[str, Queue] = {}
        self._models: set[str] = set()

    def take(self, queue: Queue) -> None:
        """Take what now waits for one of them."""
        self._models.add(queue.model)
        self._waiting.pop(queue.model, None)
        if queue.dues_us:
            self._waiting[queue.model] = queue

    def drop(self, model: str) -> None:
        """Forget one of them."""
        self._waiting.pop(model, None)
        self._models.discard(model)

    def __len__(self) -> int:
        """Return how many they are."""
        return len(self._models)

    def queue(self, now_us: int) -> Queue:
        """Return what waits for all of them."""
        queues = self._waiting.values()
        dues_us = Merged([queue.dues_us for queue in queues])
        since_us = min((queue.since_us for queue in queues), default=now_us)
        return Queue(self._trunk, dues_us, since_us, True, 0, 0, max((queue.cap for queue in queues), default=1))

    def parts(self, rows: int) -> tuple[tuple[str, int], ...]:
        """Return whose the most urgent of the waiting rows are: models with their numbers, the most urgent first."""
        by_due = merge(*(zip(queue.dues_us, repeat(model)) for model, queue in self._waiting.items()))
        return tuple(Counter(model for _, model in islice(by_due, rows)).items())

    def share(self, model: str) -> tuple[int, int]:
        """Return how many of the waiting rows are a model's, and how many there are."""
        own = self._waiting.get(model)
        return (0 if own is None else len(own.dues_us)), sum(len(queue.dues_us) for queue in self._waiting.values())


class Merged(Sequence[int]):
    """The due times of several queues, rising; they are put in order when more than the first is asked for."""

    def __init__(self, queues: Sequence[Sequence[int]]) -> None:
        self._queues = queues
        self._merged: list[int] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        """Return a due time, or several."""
        if index == 0:
            return min(queue[0] for queue in self._queues if queue)
        if self._merged is None:
            self._merged = [*merge(*self._queues)]
        return self._merged[index]


class ByTrunk:
    """A schedule of which models with one trunk share a queue; see `contract.Schedule`."""

    name: ClassVar[str] = "by trunk"

    def __init__(self, schedule: Schedule) -> None:
        """Know no model; `schedule` decides."""
        self.profiles: Profiles = schedule.profiles
        self._schedule = schedule
        self._trunks: dict[str, Heads] = {}
        self._of: dict[str, str] = {}  # the trunk under which a model waits

    def changed(self, queue: Queue, now_us: int) -> None:
        """Take what now waits for one model."""
        trunk = _name(queue.trunk) if queue.trunk else ""
        if trunk:
            self.profiles.share(queue.model, trunk)
        under = trunk if queue.is_resident else ""
        before = self._of.get(queue.model, "")
        if before and before != under:
            self._leave(queue.model, before, now_us)
        if not under:
            self._schedule.changed(queue, now_us)
            return
        if before != under:
            self._schedule.changed(queue._replace(dues_us=(), is_resident=False), now_us)
            self._of[queue.model] = under
        heads = self._trunks.setdefault(under, Heads(under))
        heads.take(queue)
        self._schedule.changed(heads.queue(now_us), now_us)

    def forget(self, model: str, now_us: int) -> None:
        """Forget a model, and a trunk without any."""
        if trunk := self._of.get(model, ""):
            self._leave(model, trunk, now_us)
        self._schedule.forget(model, now_us)

    def refused(self, now_us: int) -> Sequence[Refusal]:
        """Return what is to be dropped."""
        return [part for refusal in self._schedule.refused(now_us) for part in self._parts(refusal)]

    def next(self, now_us: int) -> Start | None:
        """Return the batch to start now."""
        start = self._schedule.next(now_us)
        if start is None or start.model not in self._trunks:
            return start
        return start._replace(parts=self._trunks[start.model].parts(start.rows))

    def due_us(self) -> int | None:
        """Return when `refused` may have something new."""
        return self._schedule.due_us()

    def demand(self, model: str, now_us: int) -> int:
        """Return how much a model is worth having in memory: of its trunk's demand as much as of its rows."""
        trunk = self._of.get(model)
        if trunk is None:
            return self._schedule.demand(model, now_us)
        own, all_of_them = self._trunks[trunk].share(model)
        return self._schedule.demand(trunk, now_us) * own // all_of_them if own else 0

    def done(self, model: str, rows: int, took_us: int, now_us: int) -> None:
        """Take that a batch is over, of a model or of what several share."""
        self._schedule.done(model, rows, took_us, now_us)

    def _leave(self, model: str, trunk: str, now_us: int) -> None:
        del self._of[model]
        heads = self._trunks[trunk]
        heads.drop(model)
        if heads:
            self._schedule.changed(heads.queue(now_us), now_us)
            return
        del self._trunks[trunk]
        self._schedule.forget(trunk, now_us)
        self.profiles.forget(trunk)  # its models have its times, too

    def _parts(self, refusal: Refusal) -> Iterator[Refusal]:
        if refusal.model not in self._trunks:
            yield refusal
            return
        for model, rows in self._trunks[refusal.model].parts(refusal.rows):
            yield refusal._replace(model=model, rows=rows)


def _name(trunk: str) -> str:
    """Return a trunk's name among models, of which none has a space in its name."""
    return f"trunk {trunk}"
