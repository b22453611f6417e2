"""The next version of a worker's model: loaded and warmed up beside the present one, which answers meanwhile.

    topic models ─▶ on_record ─▶ load, check, warm up ─▶ offered ─▶ the old one drains ─▶ taken ─▶ the old one is let go
                                └─ canary, shadows: `beside`

Inside the worker, not in another process: a second member of the group would stop it twice for a rebalance, and
queries would be late. What cannot be loaded changes nothing: the present version goes on, and loading is tried again.

Where two versions do not fit into memory together, the old one is unloaded first (`unload_first`): queries wait
meanwhile, or are answered without this model at their deadline, and if the new one cannot be loaded the old one is
loaded again.

A worker whose version cannot be loaded at its start takes the last one that was added before it and can be loaded, and
goes on trying the one that is wanted. So does one that starts with a version that takes nothing of what is asked, where
an earlier one does.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Model
from workers.errors import PackageError, WorkerError
from workers.inputs.likeness import taken, takes_alike, takes_none
from workers.rollout.warm_up import Recent, Trial, prepare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from workers.executors.thread import Executor

_log = logging.getLogger(__name__)

# A start reads the topic from its beginning, all wanted versions of the past: only what stays wanted is loaded.
SETTLE_S = 0.3
# A package may be on its way to this machine, or its disk away.
RETRY_S = 10.0


class Successor(NamedTuple):
    """A version that is ready to answer."""

    model: Model
    executor: Executor


class Wanted(NamedTuple):
    """A version that is to run beside the serving one, and the share of queries that it answers; 0 = a shadow."""

    model: Model
    share: float


class Versions:
    """Follows which version is wanted of one model, and gets it ready.

    Attributes:
        served: the version that answers.
        wanted: the version that should.
        failures: attempts to get one ready that failed.
        switches: versions that took over.
        ready_s: how long it took to get the version ready that took over last, by its name.
        vacating: whether the present version is to be unloaded now, by `vacate`.
        is_lost: whether none is loaded: `served` could not be.
        failing: the version that is wanted and could not be had; empty if it serves, or has not been tried yet.
        recent: the last rows, which the next version is tried on.
    """

    def __init__(
        self,
        model: Model,
        make: Callable[[Model], Executor],
        ring: Callable[[], None],
        *,
        unload_first: bool = False,
        recent: Recent | None = None,
    ) -> None:
        """Nothing is loaded before `run`.

        Args:
            model: that is served.
            make: returns what runs a version, not started yet.
            ring: called when a successor is ready to be taken, or the present version must be unloaded.
            unload_first: never hold two versions at once.
            recent: the last rows; None = those that are noted.
        """
        self.served = self.wanted = model
        self.failures = self.switches = 0
        self.ready_s: dict[str, float] = {}
        self.recent = recent or Recent()
        self.vacating = self.is_lost = False
        self.failing = ""
        self._is_first = True  # nothing has been compared yet with what was asked before this start
        self._known: dict[str, Model] = {}
        self._unload_first = unload_first
        self._vacant = asyncio.Event()
        self._offering = asyncio.Event()
        self._make = make
        self._ring = ring
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._offered: Successor | None = None
        self._leaving: Executor | None = None

    def on_record(self, record: Record, codec: Codec) -> None:
        """Take a record of topic `models`; another model's, a removal and what cannot be read change nothing."""
        name, is_known, version = (record.key or b"").decode(errors="replace").partition(topics.MODEL_VERSION)
        if name != self.served.name or record.value is None:
            return
        try:
            model = codec.decode(Model, record.value)
        except DecodeError as fault:
            _log.error("a record about model %s cannot be read: %s", self.served.name, fault)
            return
        if is_known:
            self._known.pop(version, None)  # in the order in which they were written last, as operators see them listed
            self._known[version] = model
        else:
            self.wanted = model
        self.look()

    def lose(self, fault: Exception) -> None:
        """Say that the version to be served could not be loaded."""
        _log.error("%s %s cannot be loaded, its rows fail until one can be: %s", *_named(self.served), fault)
        self.failures += 1
        self.is_lost, self.failing = True, self.served.version
        self.look()

    def look(self) -> None:
        """Look again whether what runs is what is wanted."""
        self._changed.set()

    @property
    def is_changing(self) -> bool:
        """Whether there is a version to take, or the present one is to be unloaded."""
        return self._offered is not None or self.vacating

    def take(self, present: Executor) -> Successor | None:
        """Return the version to answer with from now on, if there is one; `present` is let go of."""
        successor, self._offered = self._offered, None
        if successor is not None:
            if _differs(successor.model, self.served):
                _log.info("%s %s answers from now on, no longer %s", *_named(successor.model), self.served.version)
                self.switches += 1
            self.served, self._leaving, self.is_lost = successor.model, present, False
            self.recent.clear()
            self._taken.set()
        return successor

    async def vacate(self, present: Executor) -> None:
        """Unload the present version; returns when there is another one to take."""
        self.vacating = False
        await present.stop()
        self._offering.clear()
        self._vacant.set()
        await self._offering.wait()

    async def run(self, beside: Callable[[Sequence[Wanted]], Awaitable[bool]]) -> None:
        """Get ready what is wanted, one version after the other, until cancelled.

        Args:
            beside: has versions run beside the serving one; returns whether they do.
        """
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await asyncio.sleep(SETTLE_S)
                while not await self._converge(beside):
                    await self._wait_change(RETRY_S)
        finally:
            await self._let_go()

    async def _converge(self, beside: Callable[[Sequence[Wanted]], Awaitable[bool]]) -> bool:
        """Have served what is wanted, then beside it what is wanted there; False if something cannot be had now."""
        wanted = self.wanted
        if self.failing != wanted.version:
            self.failing = ""
        is_served = not (self.is_lost or _differs(wanted, self.served)) or await self._succeed(wanted)
        if self.is_lost:
            await self._fall_back(wanted)
        elif self._is_first and not _differs(wanted, self.served):
            is_served = not await self._give_way(wanted)
        self._is_first = False
        self.failing = "" if is_served else wanted.version
        # As they are wanted by now: that one may have taken minutes.
        shares = {v: share for v, share in self.wanted.shares.items() if v != self.served.version}
        known = [Wanted(self._known[v], share) for v, share in shares.items() if v in self._known]
        return await beside(known) and is_served and len(known) == len(shares)

    async def _fall_back(self, wanted: Model) -> None:
        """Have serve what was added before the wanted version, the last one first; what is wanted is tried again.

        What was added after it was gone back from, and what runs beside it has not been found good yet.
        """
        for model in self._before(wanted):
            if _differs(model, wanted) and await self._succeed(model):
                return

    async def _give_way(self, wanted: Model) -> bool:
        """Have an earlier version serve that takes what is asked, where the wanted one does not; returns whether so."""
        for model in self._before(wanted):
            if not takes_alike(wanted, model) and takes_none(wanted, model, await self.recent.rows()):
                self.failures += 1
                text = "%s %s takes %s, and nothing that was asked of late: %s, which takes %s, is to answer"
                _log.error(text, *_named(wanted), taken(wanted), model.version, taken(model))
                return await self._succeed(model)
        return False

    def _before(self, wanted: Model) -> list[Model]:
        known = [*self._known.values()]
        end = next((place for place, model in enumerate(known) if model.version == wanted.version), len(known))
        return [model for model in reversed(known[:end]) if model.version not in wanted.shares]

    async def _succeed(self, model: Model) -> bool:
        """Get a version ready and have it taken; False if it cannot be had now."""
        try:
            trial = await self._trial(model)  # while the present version answers
        except PackageError as fault:
            self.failures += 1
            _log.error("%s %s cannot take over, %s goes on: %s", *_named(model), self.served.version, fault)
            return False
        unload_first = self._unload_first and not self.is_lost
        if unload_first:
            self._vacant.clear()
            self.vacating = True
            self._ring()
            await self._vacant.wait()
        executor, clock = self._make(model), asyncio.get_running_loop()
        started_s = clock.time()
        try:
            await prepare(executor, trial)
        except (WorkerError, OSError) as fault:
            self.failures += 1
            going_on = "no version" if self.is_lost else self.served.version
            _log.error("%s %s cannot take over, %s goes on: %s", *_named(model), going_on, fault)
            if unload_first:
                await self._restore()
            return False
        self.ready_s = {model.version: clock.time() - started_s}
        tried = len(trial.asked) + len(trial.answered)
        _log.info(
            "%s %s is ready: loaded and tried on %d rows in %.1f s", *_named(model), tried, clock.time() - started_s
        )
        await self._offer(model, executor)
        return True

    async def _trial(self, model: Model) -> Trial:
        """Return what to try a version on.

        Raises:
            PackageError: it takes nothing of what the present version is asked.
        """
        if not self.is_lost and not takes_alike(model, self.served):
            rows = await self.recent.rows()
            if takes_none(model, self.served, rows):
                message = f"it answers none of {len(rows)} rows that were asked just now: it takes {taken(model)}"
                raise PackageError(f"{message}, and {self.served.version} {taken(self.served)}")
        return await self.recent.trial(model.version)

    async def _restore(self) -> None:
        """Load again what was unloaded."""
        while True:
            executor = self._make(self.served)
            try:
                await prepare(executor, Trial())
            except (WorkerError, OSError) as fault:
                self.failures += 1
                _log.error("%s %s cannot be loaded again: %s", *_named(self.served), fault)
                await self._wait_change(RETRY_S)
            else:
                return await self._offer(self.served, executor)

    async def _offer(self, model: Model, executor: Executor) -> None:
        """Return when the version has been taken."""
        self._taken.clear()
        self._offered = Successor(model, executor)
        self._offering.set()
        self._ring()
        await self._taken.wait()
        await self._let_go()

    async def _wait_change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                self._changed.clear()
        except TimeoutError:
            return

    async def _let_go(self) -> None:
        held = [self._leaving, self._offered.executor if self._offered is not None else None]
        self._leaving = self._offered = None
        for executor in held:
            if executor is not None:
                await executor.stop()


def _differs(one: Model, other: Model) -> bool:
    """Whether they answer differently; the same package may have moved."""
    return (one.version, one.digest) != (other.version, other.digest)


def _named(model: Model) -> tuple[str, str]:
    return model.name, model.version
