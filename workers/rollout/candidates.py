"""The versions of a model that run beside the one that serves: its canary and its shadows.

    wanted shares ─▶ converge ─┬─ new:  load, check, warm up ─▶ a task of its own predicts ─▶ rows are routed to it
                               └─ gone: no more rows ─▶ it answers what it still holds ─▶ let go

Each has its own queue, batch controller and thread, so that one that is slow or broken makes only its own rows late;
one that hangs fails its rows and is routed around. What cannot be loaded gets no rows, and loading is tried again.

Loading may take minutes: meanwhile `route` gives what runs its new share, or none, and `converge` does the rest.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from workers.errors import WorkerError, refusing
from workers.executors.thread import Elsewhere, Timed
from workers.inputs.rows import Predicted
from workers.kernel import routing as traffic
from workers.kernel.routing import Routes
from workers.rollout.warm_up import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input, Model
    from streams.operators.contract import Effects
    from workers.executors.thread import Executor
    from workers.kernel.worker import ModelWorker
    from workers.rollout.switch import Wanted
    from workers.rollout.warm_up import Recent

_log = logging.getLogger(__name__)


class Side(Protocol):
    """One version at work: its kernel, and the task that predicts."""

    @property
    def kernel(self) -> ModelWorker:
        """Takes its rows."""
        ...

    async def run(self, perform: Callable[[Effects], None]) -> None:
        """Predict batch after batch; returns after `drain`, when nothing is queued."""
        ...

    def drain(self) -> None:
        """Take no more rows."""
        ...

    async def stop(self) -> None:
        """Let go of the model."""
        ...


class Contained(Elsewhere):
    """A loaded executor whose end is not the worker's: after a fault all rows fail, at once.

    Attributes:
        fault: why it is of no more use.
    """

    def __init__(self, inner: Executor, changed: Callable[[], None]) -> None:
        """Tell by `changed` when there is a fault."""
        self._inner = inner
        self._changed = changed
        self.fault: Exception | None = None

    @property
    def ready(self) -> bool:
        """Whether `run` can be called."""
        return self.fault is not None or self._inner.ready

    async def start(self) -> None:
        """Load the model again if it was lost."""
        try:
            with refusing("it cannot be loaded", but=(WorkerError, OSError)):
                await self._inner.start()
        except (WorkerError, OSError) as fault:
            self._break(fault)

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict one batch, or fail it."""
        if self.fault is None:
            try:
                with refusing("it cannot be asked", but=(WorkerError, OSError)):
                    return await self._inner.run(inputs, patience_s)
            except (WorkerError, OSError) as fault:
                self._break(fault)
        return Timed(Predicted.failed(len(inputs), str(self.fault)), 0)

    async def stop(self) -> None:
        """Let go of the model."""
        await self._inner.stop()

    def _break(self, fault: Exception) -> None:
        self.fault = fault
        self._changed()


class _Running(NamedTuple):
    wanted: Wanted
    side: Side
    executor: Contained
    task: asyncio.Task[None]


class Beside:
    """Has the wanted versions run beside the serving one, and no others.

    Attributes:
        failures: attempts to get one ready that failed, and ends of some that ran.
        fault: what ended the task of one, an error of this program's; None = all go on.
    """

    def __init__(
        self,
        kernel: ModelWorker,
        load: Callable[[Model], Executor],
        make: Callable[[Wanted, Executor], Side],
        wanted: Callable[[], Model],
        changed: Callable[[], None],
    ) -> None:
        """Nothing runs yet.

        Args:
            kernel: of the serving version, which routes rows.
            load: returns what runs a version, not started yet.
            make: returns a version at work.
            wanted: returns the version that is to serve now, with the shares of the others.
            changed: called when one has broken.
        """
        self.failures = 0
        self.fault: BaseException | None = None
        self._kernel = kernel
        self._load = load
        self._make = make
        self._wanted = wanted
        self._changed = changed
        self._running: dict[str, _Running] = {}
        self._broken: dict[str, Model] = {}

    async def converge(self, wanted: Sequence[Wanted], recent: Recent, perform: Callable[[Effects], None]) -> bool:
        """Have these run, and no others; False if one cannot be had now and is to be tried again."""
        named = {each.model.version: each for each in wanted}
        self.route()
        for version, running in tuple(self._running.items()):
            if running.executor.fault is not None:
                _log.error("%s %s is of no more use: %s", running.wanted.model.name, version, running.executor.fault)
                self._broken[version] = running.wanted.model
                self.failures += 1
            now = named.get(version)
            if now is None or not _alike(now, running.wanted) or version in self._broken:
                await self._retire(version)
            else:
                self._running[version] = running._replace(wanted=running.wanted._replace(model=now.model))
        self._broken = {v: model for v, model in self._broken.items() if v in named and named[v].model == model}
        missing = [each for v, each in named.items() if v not in self._running and v not in self._broken]
        ready = [await self._begin(each, recent, perform) for each in missing]
        return all(ready)

    def route(self) -> None:
        """Give rows to what runs and works, by the shares that are wanted now."""
        shares: dict[str, float] = {}
        for version, running in self._running.items():
            share = self._share(running.wanted)
            if share is not None and running.executor.fault is None:
                shares[version] = share
                self._running[version] = running._replace(wanted=running.wanted._replace(share=share))
        self._kernel.route(Routes(shares, {version: self._running[version].side.kernel for version in shares}))

    def _share(self, running: Wanted) -> float | None:
        """Return the share that is wanted now of what runs; None = no rows: it is to end, or to begin anew."""
        serving, version = self._wanted(), running.model.version
        if version == serving.version:  # until it serves it goes on
            return running.share
        share = serving.shares.get(version)
        return share if share is not None and bool(share) == bool(running.share) else None

    def check(self) -> None:
        """Raise what ended the task of one: an error of this program's, which is the worker's end."""
        if self.fault is not None:
            raise self.fault

    async def stop(self) -> None:
        """End all of them; what they hold is read again by another process."""
        for running in self._running.values():
            running.task.cancel()
            await asyncio.wait([running.task])
            await running.side.stop()
        self._running.clear()

    async def _begin(self, wanted: Wanted, recent: Recent, perform: Callable[[Effects], None]) -> bool:
        model, label = wanted.model, traffic.label(wanted.share)
        if model.version not in self._wanted().shares:  # any more: others have been loaded before it
            return True
        executor = self._load(model)
        try:
            await prepare(executor, await recent.trial(model.version))
        except (WorkerError, OSError) as fault:
            self.failures += 1
            _log.error("%s %s cannot run as %s: %s", model.name, model.version, label, fault)
            return False
        contained = Contained(executor, self._broke)
        side = self._make(wanted, contained)
        task = asyncio.create_task(side.run(perform))
        task.add_done_callback(self._ended)
        self._running[model.version] = _Running(wanted, side, contained, task)
        self.route()
        _log.info("%s %s runs as %s", model.name, model.version, label)
        return True

    async def _retire(self, version: str) -> None:
        """Give it no more rows, and let go of it when it has answered those that it holds."""
        running = self._running.pop(version)
        self.route()
        running.side.drain()
        try:
            await asyncio.wait([running.task])
        finally:
            running.task.cancel()
            await running.side.stop()
        _log.info("%s %s runs no longer beside another version", running.wanted.model.name, version)

    def _broke(self) -> None:
        self.route()
        self._changed()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.fault = task.exception()
            self._kernel.ring()


def _alike(one: Wanted, other: Wanted) -> bool:
    """Whether the running one may go on, perhaps with another share."""
    return (one.model.digest, bool(one.share)) == (other.model.digest, bool(other.share))
