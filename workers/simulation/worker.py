"""One replica of a model: the real batcher, a model that takes simulated time, and answers on their way back.

What a lane of the worker's kernel does, it does: a free model gets the next batch at once, or when the batcher says.
Models run beside the event loop, as all do that take longer than a millisecond and do not keep Python's lock.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streams.testing.events import Events
    from workers.kernel.model.batcher import Batcher, Take
    from workers.simulation.service import Draw

# Called with the time, the rows that were predicted and those that were given up, as numbers of queries.
Reply = "Callable[[int, Sequence[int], Sequence[int]], None]"


class Journal:
    """What all replicas of a model have done; times in microseconds.

    Attributes:
        waited_us: of each query, from being fetched to the start of its batch; -1 = it was in none.
        started_us, took_us, rows, cap, queued: of each batch, in the order in which they started.
    """

    __slots__ = ("cap", "queued", "rows", "started_us", "took_us", "waited_us")

    def __init__(self, queries: int) -> None:
        self.waited_us = array("q", [-1]) * queries
        self.started_us, self.took_us = array("q"), array("q")
        self.rows, self.cap, self.queued = array("q"), array("q"), array("q")


class SimulatedTimes(NamedTuple):
    """What a worker's batches take (us).

    Attributes:
        draw: the model's time by rows.
        call_us: on top of each.
        turnaround_us: before the next batch can start.
    """

    draw: Draw
    call_us: int
    turnaround_us: int


class SimulatedWorker:
    """One queue and the models that take from it: one, unless replicas share a queue.

    Args:
        batcher: the queue.
        queue_rows: that may wait in it; what comes then is left unread in its topic.
        times: of batches.
        events: takes what will happen.
        journal: takes what has happened.
        reply: takes answers.
        models: that take from the queue.
    """

    __slots__ = (
        "_batcher",
        "_events",
        "_free",
        "_journal",
        "_queue_rows",
        "_reply",
        "_times",
        "_unread",
        "_wake_us",
    )

    def __init__(
        self,
        batcher: Batcher[int],
        queue_rows: int,
        times: SimulatedTimes,
        events: Events,
        journal: Journal,
        reply: Callable[[int, Sequence[int], Sequence[int]], None],
        models: int = 1,
    ) -> None:
        self._batcher = batcher
        self._queue_rows = queue_rows
        self._times = times
        self._events = events
        self._journal = journal
        self._reply = reply
        self._free = models
        self._unread: deque[list[tuple[int, int]]] = deque()
        self._wake_us = -1

    def arrive(self, now_us: int, rows: list[tuple[int, int]]) -> None:
        """Take rows (due_us, query) that have come to the topic."""
        if self._unread or len(self._batcher) >= self._queue_rows:
            self._unread.append(rows)
            return
        self._batcher.offer(rows, now_us)
        if self._free:
            self._start(now_us)

    def _read_on(self, now_us: int) -> None:
        while self._unread and len(self._batcher) < self._queue_rows:
            self._batcher.offer(self._unread.popleft(), now_us)

    def _start(self, now_us: int) -> None:
        """Start all batches that can start now."""
        batcher = self._batcher
        while self._free and len(batcher):
            take = batcher.take(now_us)
            if take.rows:
                self._predict(take, now_us)
            elif take.expired:
                self._reply(now_us, (), [row.item for row in take.expired])
            if self._unread:
                self._read_on(now_us)
            if take.wait_until_us is not None:
                if take.wait_until_us != self._wake_us:
                    self._wake_us = take.wait_until_us
                    self._events.add(take.wait_until_us, self._wake)
                return

    def _wake(self, now_us: int, _about: object) -> None:
        if now_us == self._wake_us:
            self._wake_us = -1
            self._start(now_us)

    def _predict(self, take: Take[int], now_us: int) -> None:
        times, journal, rows = self._times, self._journal, take.rows
        count = len(rows)
        took_us = times.draw(count) + times.call_us
        self._free -= 1
        journal.started_us.append(now_us)
        journal.took_us.append(took_us)
        journal.rows.append(count)
        journal.cap.append(take.cap)
        journal.queued.append(take.queued)
        waited_us = journal.waited_us
        for row in rows:
            waited_us[row.item] = now_us - row.fetched_us
        self._reply(now_us + took_us, [row.item for row in rows], [row.item for row in take.expired])
        self._events.add(now_us + took_us + times.turnaround_us, self._done, (count, took_us))

    def _done(self, now_us: int, about: tuple[int, int]) -> None:
        rows, took_us = about
        self._free += 1
        self._batcher.done(rows, took_us, now_us)
        if self._unread:
            self._read_on(now_us)
        self._start(now_us)
