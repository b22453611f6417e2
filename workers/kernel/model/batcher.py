"""Decides which model queries are predicted together: a bounded queue by due time, and a cap from the controller.

    offer ──▶ in order of due time ──take──▶ batch of at most `cap` ──predict──▶ done ──▶ controller, service times
                │                 ├────▶ wait: the controller wants more rows, and there is time
                │                 └────▶ expired: could not be answered in time
                └─ full ─▶ refused: those due furthest in the future

Adaptive batching (Clipper, NSDI'17) caps the take, not the fetch. With the fetch capped, a fresh query waits for
another partition's backlog (87 ms measured, 11 ms with this queue).

Early drop (Nexus, SOSP'19) assumes that a whole planned batch runs before a row's answer is there. A row that cannot
make its due time then is dropped at once. So an overloaded worker still runs full batches instead of many late small
ones.

The controller may ask for deferral (Symphony, 2023). A row that waited for it is not dropped because of it. Instead the
batch is made as small as the most urgent row needs.

Priorities count only where they differ, and where the planned batches cannot answer all rows in time. Then as few rows
as possible, of the lowest priorities, are set apart (Moore and Hodgson, 1968). They wait until there is room, or until
they expire.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, overload

from policies.deferred import MARGIN_US
from workers.kernel.model.service_times import ServiceTimes, Slack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policies.batching import Controller

T = TypeVar("T")
NO_RANKS: Final[Mapping[int, int]] = MappingProxyType({})
# Why a batch started. cap: it was full. eager: the controller never waits, or waiting gains nothing. deadline: the most
# urgent row could wait no longer. linger: the model had waited as long as it may. "": there was no batch.
Reason: TypeAlias = Literal["cap", "eager", "deadline", "linger", ""]

# Rows fetched this soon after a batch that blocked fetching may have arrived during the batch.
_JUST_NOW_US = 5_000
# A derived objective is at least twice the cost of a call, and up to four times where the slack has room for it: rows
# that stay behind wait for another call.
_CALLS, _CALLS_WITH_ROOM = 2, 4


class Waiting(NamedTuple, Generic[T]):
    """One row that waits; `order` breaks ties in order of arrival, so that items are never compared."""

    due_us: int
    order: int
    fetched_us: int
    item: T
    priority: int = 0


@dataclass(slots=True, weakref_slot=True)
class Learnt:
    """What batches have taught; queues of models that run together have it in common.

    Attributes:
        state: of the controller.
        times: of batches.
    """

    state: Any
    times: ServiceTimes = field(default_factory=ServiceTimes)


@dataclass(frozen=True, slots=True)
class Take(Generic[T]):
    """What `take` decided: rows to predict now, rows given up, and the figures for the report."""

    rows: tuple[Waiting[T], ...]
    expired: tuple[Waiting[T], ...]
    cap: int  # the controller's, when the batch was taken
    queued: int  # rows that stay behind
    reason: Reason = ""
    wait_until_us: int | None = None  # without rows: when to take again, unless more rows come before
    latest_us: int = 0  # when the batch had to start so that its most urgent row is in time by the estimate


class Batcher(Generic[T]):
    """One replica's queue. Every time is an argument, in microseconds.

    Attributes:
        spare_us: how much later than due a row may be done if no other row waits for it.
        bytes: of the rows that wait.
        learnt: what batches have taught.
    """

    def __init__(
        self,
        controller: Controller,
        *,
        limit: int = 10_000,
        objective_us: int | None = None,
        limit_bytes: int = 1 << 40,
        size: Callable[[T], int] = lambda _: 0,
    ) -> None:
        """Start empty.

        Args:
            controller: sizes the batches.
            limit: rows that may wait; the surplus is refused.
            objective_us: how long a batch may take; None = derived from the due times, see `objective`.
            limit_bytes: of the rows that may wait; of a surplus the largest are refused.
            size: returns the bytes of a row.
        """
        self._controller = controller
        self.learnt = self.unlearnt()
        self._limit, self._limit_bytes = limit, limit_bytes
        self._size = size
        self.bytes = 0
        self._objective_us = objective_us
        self._queue: list[Waiting[T]] = []  # sorted: polls come in order of time, so nearly all go behind the others
        self._order = 0
        self._slack = Slack()
        self._since_us: int | None = None  # since when a free model is kept waiting for more rows
        self._held = 0  # rows of a smaller order were kept waiting
        self._is_ranked = False  # priorities may differ
        self._deaf_us = self._deaf_until_us = 0  # how long nothing could be fetched, and until when
        self.spare_us = 0

    def __len__(self) -> int:
        return len(self._queue)

    def unlearnt(self) -> Learnt:
        """Return what is known before any batch."""
        return Learnt(self._controller.init())

    @property
    def cap(self) -> int:
        """Rows that the next take may hold."""
        return self._controller.cap(self.learnt.state)

    @property
    def room(self) -> int:
        """Rows that may be offered before any is refused."""
        return self._limit - len(self._queue)

    @property
    def room_in_batch(self) -> int:
        """Rows that the next take has room for beside those that wait."""
        return self.cap - len(self._queue)

    @property
    def mark(self) -> int:
        """A mark behind all rows offered so far; see `waits_before`."""
        return self._order

    def waits_before(self, mark: int) -> bool:
        """Tell whether a row that was offered before that mark still waits; those rows are usually taken first."""
        return any(row.order < mark for row in self._queue)

    def wait_us(self, rows_at_work: int) -> int:
        """Return how long a row offered now would wait until its batch begins, if batches take what they usually do.

        Args:
            rows_at_work: of the batch that is with the model.
        """
        usual, cap = self.learnt.times.usual, max(1, self.cap)
        return len(self._queue) // cap * usual(cap) + (usual(rows_at_work) if rows_at_work else 0)

    def objective(self, now_us: int) -> int:
        """Return how long a batch may take (us).

        Unless it is given, it is half of the slack, with two bounds:

        - At least twice the cost of a call, however few its rows. Below that a controller would end at single rows,
          which are as slow and gain nothing (forest of 30 trees under scikit-learn, 6 ms a call, due in 20 ms: 18 % of
          the goodput of fixed batches).
        - Up to four times that cost, as far as all of the slack allows (2 ms a call, due in 20 ms, full cores: 1.15 to
          1.3 times the rows in time).
        """
        if self._objective_us is not None:
            return self._objective_us
        half_us, call_us = self._slack.objective(now_us), self.learnt.times.least_us
        return max(half_us, min(_CALLS_WITH_ROOM * call_us, 2 * half_us), _CALLS * call_us)

    def offer(
        self, items: Sequence[tuple[int, T]], now_us: int, ranks: Mapping[int, int] = NO_RANKS
    ) -> list[Waiting[T]]:
        """Queue rows (due_us, item) that have just been fetched.

        Args:
            items: the rows.
            now_us: the time.
            ranks: priority by place in `items`; rows that are not named have 0.

        Returns:
            The rows refused because the queue is full, new or old: the lowest priorities, and of these those due last.
        """
        self._is_ranked = self._is_ranked or bool(ranks)
        new, rank, first = tuple.__new__, ranks.get, self._order  # a third of the constructor's cost
        rows: list[Waiting[T]] = [
            new(Waiting, (due_us, first + place, now_us, item, rank(place, 0) if ranks else 0))
            for place, (due_us, item) in enumerate(items)
        ]
        self._order += len(items)
        self._slack.observe([due_us for due_us, _ in items], now_us - self._deaf_before(now_us))
        self._deaf_us = 0
        self.learnt.state = self._controller.arrived(self.learnt.state, len(items), now_us)
        self._queue_up(rows)
        self.bytes += self._bytes_of(rows)
        return [*self._refuse_rows(), *self._refuse_bytes()]

    def put_back(self, rows: Sequence[Waiting[T]]) -> None:
        """Queue rows again that were taken; they keep their places."""
        self._queue_up([*rows])
        self.bytes += self._bytes_of(rows)

    def _refuse_rows(self) -> list[Waiting[T]]:
        if self.room >= 0:
            return []
        if self._is_ranked:
            self._queue.sort(key=_last_refused)
        refused = self._queue[self._limit :]
        del self._queue[self._limit :]
        if self._is_ranked:
            self._queue.sort()
        self.bytes -= self._bytes_of(refused)
        return refused

    def _refuse_bytes(self) -> list[Waiting[T]]:
        """Refuse the largest rows, so that senders of small ones do not pay for them; lowest priorities first."""
        if self.bytes <= self._limit_bytes:
            return []
        kept = sorted(self._queue, key=lambda row: (-row.priority, self._size(row.item), row.due_us, row.order))
        refused = []
        while self.bytes > self._limit_bytes:
            refused.append(kept.pop())
            self.bytes -= self._size(refused[-1].item)
        self._queue = sorted(kept)
        return refused

    def _bytes_of(self, rows: Sequence[Waiting[T]]) -> int:
        return sum([self._size(row.item) for row in rows])

    def _queue_up(self, rows: list[Waiting[T]]) -> None:
        """Merge rows into the queue by due time; only queued rows due later than the first new one are touched."""
        rows.sort()
        queue = self._queue
        at = bisect(queue, rows[0]) if rows else len(queue)
        behind = queue[at:]
        queue[at:] = sorted(behind + rows) if behind else rows

    @property
    def dues_us(self) -> Dues[T]:
        """When each row that waits is due (us), rising; it follows the queue."""
        return Dues(self)

    @property
    def since_us(self) -> int:
        """Since when the row that is due first has waited (us); there is one."""
        return self._queue[0].fetched_us

    def due_us(self, index: int) -> int:
        """Return when a row is due (us), by its place in the queue."""
        return self._queue[index].due_us

    def give_up(self, rows: int) -> Take[T]:
        """Give up so many rows, those that are due first."""
        given_up = tuple(self._queue[:rows])
        del self._queue[:rows]
        self.bytes -= self._bytes_of(given_up)
        return Take((), given_up, self.cap, len(self._queue))

    def take_now(self, now_us: int, most: int, latest_us: int, whole: int = 0) -> Take[T]:
        """Take a batch of at most so many rows without waiting for more, because others wait for their turn.

        Rows that the batch would answer too late expire, as in `take`; there may be none left.

        Args:
            now_us: the time.
            most: rows.
            latest_us: when it has to start, by the estimate of who says so.
            whole: rows of the batch that these are a part of; 0 = they are all of it.
        """
        cap = min(self.cap, most)
        expired = self._expire_joined(now_us, whole) if whole > most else self._expire(now_us, cap)
        rows = self._chosen(min(cap, len(self._queue)), now_us, cap)
        self.bytes -= self._bytes_of(rows)
        self._since_us, self._held = None, 0
        return Take(rows, expired, cap, len(self._queue), "cap" if len(rows) == cap else "eager", latest_us=latest_us)

    def take(self, now_us: int) -> Take[T]:
        """Take the batch to predict now, or say until when to wait; the other rows expire, or wait.

        If by the estimate no row at all can be done in time, rows that are not yet due are taken anyway. Only running a
        batch corrects an estimate (or a cap) that is too high, e.g. after a pause of the machine.
        """
        cap = self.cap
        expired = self._expire(now_us, cap)
        until_us, reason = self._release(now_us, cap)
        if until_us > now_us:
            self._since_us = now_us if self._since_us is None else self._since_us
            self._held = self._order
            return Take((), expired, cap, len(self._queue), wait_until_us=until_us)
        rows = self._chosen(self._fitting(now_us, cap), now_us, cap)
        self.bytes -= self._bytes_of(rows)
        self._since_us, self._held = None, 0
        if reason == "cap" and len(rows) < cap:  # made smaller
            reason = "deadline"
        latest_us = rows[0].due_us - self.learnt.times.predict(len(rows)) if rows else 0
        return Take(rows, expired, cap, len(self._queue), reason, latest_us=latest_us)

    def _chosen(self, count: int, now_us: int, cap: int) -> tuple[Waiting[T], ...]:
        """Take `count` rows out of the queue by due time; rows that yield to higher priorities come last."""
        if self._is_ranked and count < len(self._queue) and (aside := self._aside(now_us, cap)):
            ordered = sorted(self._queue, key=lambda row: row.order in aside)
            self._queue = sorted(ordered[count:])
            return tuple(ordered[:count])
        rows = tuple(self._queue[:count])
        del self._queue[:count]
        return rows

    def _aside(self, now_us: int, cap: int) -> frozenset[int]:
        """Return the orders of the rows that must yield so that the others are in time, lowest priorities first."""
        priorities = {row.priority for row in self._queue}
        self._is_ranked = priorities != {0}
        batch_us = self.learnt.times.predict(cap)
        if len(priorities) == 1 or not batch_us:
            return frozenset()
        kept: list[tuple[int, int, int]] = []
        aside = []
        for row in self._queue:
            heappush(kept, (row.priority, row.due_us, row.order))
            if len(kept) > (row.due_us - now_us) // batch_us * cap:
                aside.append(heappop(kept)[2])
        return frozenset(aside)

    def _expire(self, now_us: int, cap: int) -> tuple[Waiting[T], ...]:
        """Drop the rows that cannot be answered in time."""
        queue, queued = self._queue, len(self._queue)
        lost = 0
        while lost < queued and self._lost(queue[lost], queued - lost, now_us, cap):
            lost += 1
        if lost == queued:  # nothing seems feasible: rows that are not yet due stay
            lost = bisect(queue, now_us, key=attrgetter("due_us"))
        expired = tuple(queue[:lost])
        del queue[:lost]
        self.bytes -= self._bytes_of(expired)
        return expired

    def _expire_joined(self, now_us: int, whole: int) -> tuple[Waiting[T], ...]:
        """Drop the rows that a batch of so many in all cannot answer in time; if there are no others, those due."""
        end_us = now_us + self._quickly(whole) - self.spare_us
        lost = bisect(self._queue, end_us - 1, key=attrgetter("due_us"))
        if lost == len(self._queue):
            lost = bisect(self._queue, now_us, key=attrgetter("due_us"))
        return self.give_up(lost).expired

    def _quickly(self, rows: int) -> int:
        """Return what a batch takes if nothing delays it (us)."""
        return min(self.learnt.times.usual(rows), self.learnt.times.predict(rows))

    def _lost(self, row: Waiting[T], queued: int, now_us: int, cap: int) -> bool:
        """Tell whether the most urgent row must be dropped.

        Only the planned batch is looked at, in which no row is due earlier. A longer look could keep the row by a
        smaller batch if all others stay in time. That answers no more rows at equal slack, and 1 % more if a tenth of
        them has 15 ms and the rest 100 (virtual time). This is not worth a sort.
        """
        if row.order < self._held:
            return row.due_us <= now_us
        if (
            queued <= cap
        ):  # all fit into the batch: a late row delays no other, so it goes only if it is likely to be late
            return row.due_us + self.spare_us < now_us + self._quickly(queued)
        return row.due_us < now_us + self.learnt.times.predict(cap)

    def _release(self, now_us: int, cap: int) -> tuple[int, Reason]:
        """Return when the next batch starts, and why then."""
        queued = len(self._queue)
        if not queued:
            return now_us, ""
        if queued >= cap:
            return now_us, "cap"
        due_us = self._queue[0].due_us
        latest_us = self._controller.wait_until(self.learnt.state, queued, due_us, now_us)
        if latest_us == now_us and self._since_us is None:
            return now_us, "eager"
        # When the wait ends, neither the present size nor the next may be estimated as too slow.
        predict = self.learnt.times.predict
        latest_us = min(latest_us, due_us - MARGIN_US - max(predict(queued), predict(queued + 1)))
        linger_us = (now_us if self._since_us is None else self._since_us) + self._controller.linger_us
        return (latest_us, "deadline") if latest_us <= linger_us else (linger_us, "linger")

    def _fitting(self, now_us: int, cap: int) -> int:
        """Return how many rows to take: fewer than planned, if a row that waited for more would be late otherwise."""
        rows = planned = min(cap, len(self._queue))
        if not self._queue or self._queue[0].order >= self._held:
            return planned
        slack_us = self._queue[0].due_us - now_us
        while rows and self.learnt.times.predict(rows) > slack_us:
            rows = (1 << rows.bit_length() - 1) - 1  # the largest size of the next smaller class
        return rows or planned

    def done(
        self, rows: int, duration_us: int, now_us: int, *, deaf: bool = False, objective_us: int | None = None
    ) -> None:
        """Learn from a batch of `rows` that took `duration_us`.

        Args:
            rows: of the batch.
            duration_us: that it took.
            now_us: when it was over.
            deaf: nothing could be fetched during this batch. So rows that arrive next already waited for its end, and
                that wait must not be counted twice.
            objective_us: how long it may have taken; None = the objective of this queue.
        """
        if deaf:
            self._deaf_us = self._deaf_before(now_us - duration_us) + duration_us
            self._deaf_until_us = now_us
        learnt, within_us = self.learnt, self.objective(now_us) if objective_us is None else objective_us
        learnt.times.observe(rows, duration_us)
        learnt.state = self._controller.observe(learnt.state, rows, duration_us, within_us)

    def _deaf_before(self, now_us: int) -> int:
        """Return for how long nothing could be fetched until just now."""
        return self._deaf_us if now_us - self._deaf_until_us <= _JUST_NOW_US else 0

    def forget(self, gone: Callable[[T], bool]) -> int:
        """Drop the rows whose item is `gone`, e.g. of a revoked partition; return how many."""
        before = len(self._queue)
        self._queue = [row for row in self._queue if not gone(row.item)]
        self.bytes = self._bytes_of(self._queue)
        self._since_us, self._held = None, 0
        return before - len(self._queue)


class Dues(Sequence[int], Generic[T]):
    """The due times of a queue (us), rising, without a copy."""

    def __init__(self, batcher: Batcher[T]) -> None:
        self._batcher = batcher

    def __len__(self) -> int:
        return len(self._batcher)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        """Return a due time, or several."""
        if isinstance(index, slice):
            return [self._batcher.due_us(place) for place in range(*index.indices(len(self)))]
        return self._batcher.due_us(index)


def _last_refused(row: Waiting[T]) -> tuple[int, int, int]:
    """Order rows by how long they stay where there is too little room."""
    return -row.priority, row.due_us, row.order
