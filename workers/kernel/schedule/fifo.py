"""`fifo`: the model whose row has waited longest runs next, in a batch that its own controller caps."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, ClassVar

from workers.kernel.schedule.contract import Refusal, Start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.kernel.schedule.contract import Queue
    from workers.kernel.schedule.profiles import Profiles


class Fifo:
    """Oldest row first. It refuses nothing: each model's own queue drops what is late."""

    name: ClassVar[str] = "fifo"

    def __init__(self, profiles: Profiles, lanes: int = 1) -> None:
        """Start with nothing queued; `lanes` batches run at a time."""
        self.profiles = profiles
        self._lanes = lanes
        self._queues: dict[str, Queue] = {}
        self._running: set[str] = set()
        self._oldest: list[tuple[int, str]] = []  # entries that a queue has outlived are dropped when they come up

    def changed(self, queue: Queue, now_us: int) -> None:
        """Take what now waits for one model."""
        self._queues[queue.model] = queue
        self._enter(queue.model)

    def forget(self, model: str, now_us: int) -> None:
        """Forget a model."""
        self._queues.pop(model, None)

    def refused(self, now_us: int) -> Sequence[Refusal]:
        """Return nothing."""
        return ()

    def next(self, now_us: int) -> Start | None:
        """Return the batch of the model whose row is the oldest."""
        if len(self._running) >= self._lanes:
            return None
        while self._oldest:
            since_us, model = heappop(self._oldest)
            queue = self._queues.get(model)
            if queue is not None and self._is_ready(queue) and queue.since_us == since_us:
                self._running.add(model)
                return Start(model, min(queue.cap, len(queue.dues_us)), now_us, queue.dues_us[0])
        return None

    def due_us(self) -> int | None:
        """Return None: nothing is refused."""
        return None

    def demand(self, model: str, now_us: int) -> int:
        """Return 0: models are loaded in the order in which they are asked."""
        return 0

    def done(self, model: str, rows: int, took_us: int, now_us: int) -> None:
        """Take that a batch is over."""
        self.profiles.observe(model, rows, took_us)
        self._running.discard(model)
        self._enter(model)

    def _enter(self, model: str) -> None:
        queue = self._queues.get(model)
        if queue is not None and self._is_ready(queue):
            heappush(self._oldest, (queue.since_us, model))

    def _is_ready(self, queue: Queue) -> bool:
        return queue.is_resident and bool(queue.dues_us) and queue.model not in self._running
