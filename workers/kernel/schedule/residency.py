"""Which models of a host are resident: loaded by demand within a budget of bytes, unloaded when used least lately.

A model's demand is the work that waits for it or was refused lately, over what the host can do before it is too late
(Clockwork, OSDI'20):

    demand = rows * time of one row * capacity / time until loading must have started

Of the models that are not resident, the one of the largest demand is loaded next. One model loads at a time. To make
room, those without work go first, the least lately used before others. One with work goes only for a larger demand.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers.kernel.schedule.contract import Queue
    from workers.kernel.schedule.profiles import Profiles

# Of the publication, in us: over which demand is reckoned and remembered (its default objective); what is kept free for
# surprises; how far ahead it schedules; the longest time that loading may be put off.
CAPACITY_US: Final = 100_000
BUFFER_US: Final = 5_000
AHEAD_US: Final = 10_000
MOST_WEIGHTS_US: Final = 25_000
# After a model could not be loaded it is left alone for so long (us), and twice as long after each further time.
RETRY_US: Final = 1_000_000
MOST_RETRY_US: Final = 300_000_000


class Wanted(NamedTuple):
    """What is to be done, in this order.

    Attributes:
        unload: models, to make room.
        load: the model to load then; None = none.
        why: the reason, for the log.
    """

    unload: tuple[str, ...] = ()
    load: str | None = None
    why: str = ""


class _Known:
    """One model.

    Attributes:
        bytes: it needs.
        demand: of the rows that wait.
        refused: demand of rows that were refused, and until when it counts (us).
        used_us: when it last ran, or was loaded.
        retry_us, failures: when it may be loaded again, and how often that failed.
    """

    __slots__ = ("bytes", "demand", "failures", "refused", "retry_us", "used_us")

    def __init__(self) -> None:
        self.bytes = 0
        self.demand = 0
        self.refused: deque[tuple[int, int]] = deque()
        self.used_us = self.retry_us = self.failures = 0

    def total(self, now_us: int) -> int:
        """Return all of its demand."""
        while self.refused and self.refused[0][0] <= now_us:
            self.refused.popleft()
        return self.demand + sum(demand for _, demand in self.refused)


class Residency:
    """The resident models of a host. Every time is an argument (us)."""

    def __init__(self, budget_bytes: int, profiles: Profiles) -> None:
        """Start with nothing resident.

        Args:
            budget_bytes: that resident models and the one that loads take together at most.
            profiles: what executions and loading take.
        """
        self._budget = budget_bytes
        self._profiles = profiles
        self._known: dict[str, _Known] = {}
        self._asked: set[str] = set()  # not resident, and with demand
        self._resident: dict[str, int] = {}  # model to bytes, the least lately used first
        self._loading: str | None = None
        self._busy: set[str] = set()
        self._evicted: tuple[str, str] = ("", "")

    @property
    def resident(self) -> tuple[str, ...]:
        """The resident models, the least lately used first."""
        return tuple(self._resident)

    @property
    def loading(self) -> str | None:
        """The model that loads."""
        return self._loading

    @property
    def evicted(self) -> tuple[str, str]:
        """The model that was unloaded last, and why."""
        return self._evicted

    @property
    def used_bytes(self) -> int:
        """Bytes of all resident models, and of the one that loads."""
        loading = self._known[self._loading].bytes if self._loading is not None else 0
        return sum(self._resident.values()) + loading

    def changed(self, queue: Queue, now_us: int) -> None:
        """Take what now waits for a model."""
        known = self._of(queue.model)
        known.bytes = queue.bytes
        known.demand = self._demand(queue) if queue.dues_us else 0
        if known.demand and queue.model not in self._resident:
            self._asked.add(queue.model)

    def refused(self, queue: Queue, rows: int, now_us: int) -> None:
        """Take that `rows` of those that waited were refused: for a while they count as work that there is."""
        known = self._of(queue.model)
        known.bytes = queue.bytes
        demand = self._demand(queue) * rows // max(1, len(queue.dues_us))
        known.refused.append((now_us + CAPACITY_US, demand))
        if queue.model not in self._resident:
            self._asked.add(queue.model)

    def started(self, model: str, now_us: int) -> None:
        """Take that a model runs: it is not unloaded before it is done."""
        self._busy.add(model)
        self._use(model, now_us)

    def done(self, model: str, now_us: int) -> None:
        """Take that a model has run."""
        self._busy.discard(model)
        self._use(model, now_us)

    def loaded(self, model: str, size_bytes: int, now_us: int) -> None:
        """Take that a model is resident, and what it takes in memory."""
        self._loading = None
        known = self._of(model)
        known.bytes, known.used_us, known.failures, known.retry_us = size_bytes, now_us, 0, 0
        self._resident[model] = size_bytes
        self._asked.discard(model)

    def failed(self, model: str, now_us: int) -> int:
        """Take that a model could not be loaded, or that it was taken out; return when it may be loaded again (us)."""
        self._loading = None if self._loading == model else self._loading
        self._gone(model)
        known = self._of(model)
        known.retry_us = now_us + min(RETRY_US << known.failures, MOST_RETRY_US)
        known.failures = min(known.failures + 1, MOST_RETRY_US.bit_length())
        return known.retry_us

    def lost(self) -> tuple[str, ...]:
        """Take that the process that held them is gone; return what was resident or loading."""
        lost = (*self._resident, *(() if self._loading is None else (self._loading,)))
        self._resident.clear()
        self._busy.clear()
        self._loading = None
        self._asked.update(model for model in lost if self._known[model].demand)
        return lost

    def wanted(self, now_us: int) -> Wanted:
        """Return the next model to load, with the models to unload for it; they count as done.

        The host answers with `loaded` or `failed`.
        """
        if self._loading is not None:
            return Wanted()
        over = self._excess(now_us)
        if over:
            return Wanted(over, None, f"resident models take more than {self._budget} bytes")
        for demand, model in self._by_demand(now_us):
            unload = self._room_for(model, demand, now_us)
            if unload is None:
                continue
            why = f"room for {model}, whose demand is {demand / CAPACITY_US:.2f} of what the host can do"
            for each in unload:
                self._gone(each)
                self._evicted = each, why
            self._loading = model
            return Wanted(unload, model, why)
        return Wanted()

    def load_us(self, model: str) -> int:
        """Return what is left of loading a model if that starts now (us)."""
        return 0 if model in self._resident else self._profiles.load_us(model)

    def _of(self, model: str) -> _Known:
        found = self._known.get(model)
        if found is None:
            found = self._known[model] = _Known()
        return found

    def _use(self, model: str, now_us: int) -> None:
        """Make a model the most lately used."""
        self._of(model).used_us = now_us
        if model in self._resident:
            self._resident[model] = self._resident.pop(model)

    def _gone(self, model: str) -> None:
        self._resident.pop(model, None)
        self._busy.discard(model)
        if self._of(model).demand:
            self._asked.add(model)

    def _demand(self, queue: Queue) -> int:
        """Return the demand of the rows that wait (us of `CAPACITY_US`)."""
        row_us = self._profiles.estimate(queue.model, 1)
        objective_us = queue.dues_us[0] - queue.since_us if queue.dues_us else CAPACITY_US
        spare_us = objective_us - (self._profiles.load_us(queue.model) + row_us + BUFFER_US + AHEAD_US)
        until_us = max(min(spare_us, MOST_WEIGHTS_US), AHEAD_US + BUFFER_US)
        return max(1, len(queue.dues_us)) * row_us * CAPACITY_US // until_us

    def _by_demand(self, now_us: int) -> Iterator[tuple[int, str]]:
        """Yield the models that are asked and not resident, the largest demand first."""
        found = []
        for model in tuple(self._asked):
            known = self._known[model]
            demand = known.total(now_us)
            if not demand or model in self._resident:
                self._asked.discard(model)
            elif known.bytes <= self._budget and known.retry_us <= now_us:
                found.append((demand, model))
        yield from sorted(found, key=lambda each: (-each[0], each[1]))

    def _room_for(self, model: str, demand: int, now_us: int) -> tuple[str, ...] | None:
        """Return the models that make room for another; None = they are worth more."""
        needed = self.used_bytes + self._known[model].bytes - self._budget
        unload = []
        for each, is_idle in self._unloadable(now_us):
            if needed <= 0:
                break
            if not is_idle and self._known[each].total(now_us) >= demand:
                return None
            unload.append(each)
            needed -= self._resident[each]
        return tuple(unload) if needed <= 0 else None

    def _unloadable(self, now_us: int) -> Iterator[tuple[str, bool]]:
        """Yield what may be unloaded, and whether it has no work: those first, the least lately used before others."""
        free = [model for model in self._resident if model not in self._busy]
        yield from ((model, True) for model in free if not self._known[model].demand)
        yield from ((model, False) for model in free if self._known[model].demand)

    def _excess(self, now_us: int) -> tuple[str, ...]:
        """Return what is to be unloaded because loaded models have turned out larger than they said."""
        unload = []
        for model, _ in self._unloadable(now_us):
            if self.used_bytes <= self._budget:
                break
            unload.append(model)
            self._gone(model)
            self._evicted = model, "resident models took more than the budget"
        return tuple(unload)
