"""Several workers of a model as one role of the driver: each has the records of the partitions that it owns."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from schemas import topics
from streams.operators.contract import NONE_UNREAD, Load, Needs, Operator, Predict, Unload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streams.operators.contract import Effects, Loaded, Ran, Record, Unread


class Replicas(Operator):
    """The workers.

    Args:
        make: makes one, given its instance.
        owners: which worker has each partition.
    """

    def __init__(self, make: Callable[..., Operator], owners: Sequence[int]) -> None:
        self._workers = [make(instance=f"worker-{each}") for each in range(max(owners) + 1)]
        self._owners = owners
        self._numbers = count()
        self._running: dict[int, tuple[int, int]] = {}

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Let each take what is its own; all hear of versions."""
        effects: Effects = []
        for each, worker in enumerate(self._workers):
            its = [one for one in records if one.topic == topics.MODELS or self._owners[one.partition] == each]
            if its:
                effects += self._of(each, worker.on_records(its, now_us))
        return effects

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Let those do what is due for whom something is."""
        effects: Effects = []
        for each, worker in enumerate(self._workers):
            due_us = worker.needs().deadline_us
            if due_us is not None and due_us <= now_us:
                effects += self._of(each, worker.on_timer(now_us))
        return effects

    def needs(self) -> Needs:
        """Be called when one of them is due."""
        dues = [worker.needs().deadline_us for worker in self._workers]
        return Needs(min((due for due in dues if due is not None), default=None))

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Tell who has asked."""
        each, number = self._running.pop(batch_id)
        return self._of(each, self._workers[each].on_predicted(number, ran, now_us))

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Tell whose copy it is."""
        copy, each = divmod(loaded.copy, len(self._workers))
        return self._of(each, self._workers[each].on_loaded(loaded._replace(copy=copy), now_us))

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Pass them on: all are theirs."""
        for worker in self._workers:
            worker.on_partitions(starts)

    def _of(self, each: int, effects: Effects) -> Effects:
        """Return a worker's effects, its batches and copies under numbers that no other worker gives."""
        found: Effects = []
        for effect in effects:
            if isinstance(effect, Predict):
                number = next(self._numbers)
                self._running[number] = each, effect.batch_id
                found.append(effect._replace(batch_id=number, copy=self._copy(each, effect.copy)))
            elif isinstance(effect, Load | Unload):
                found.append(effect._replace(copy=self._copy(each, effect.copy)))
            else:
                found.append(effect)
        return found

    def _copy(self, each: int, copy: int) -> int:
        return copy * len(self._workers) + each
