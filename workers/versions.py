"""The next version of a worker's model: loaded and warmed up beside the present one, which answers meanwhile.

    topic models ─▶ on_record ─▶ load, check, warm up ─▶ offered ─▶ taken between two batches ─▶ the old one is let go

Inside the worker, not in another process: a second member of the group would stop it twice for a rebalance, and
queries would be late. What cannot be loaded changes nothing: the present version goes on, and loading is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from schemas.errors import DecodeError
from schemas.records import Model, Outcome
from workers.errors import PackageError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.codec import Codec
    from schemas.records import Input
    from streams.operators.contract import Record
    from workers.executor import Executor

_log = logging.getLogger(__name__)

# A start reads the topic from its beginning, all wanted versions of the past: only what stays wanted is loaded.
SETTLE_S = 0.3
# A package may be on its way to this machine, or its disk away.
RETRY_S = 10.0
# The warm-up is not timed by anybody, and the first rows of a network may take seconds.
WARM_UP_S = 60.0


class Successor(NamedTuple):
    """A version that is ready to answer."""

    model: Model
    executor: Executor


class Versions:
    """Follows which version is wanted of one model, and gets it ready.

    Attributes:
        served: the version that answers.
        wanted: the version that should.
        failures: attempts to get one ready that failed.
        switches: versions that took over.
        sample: rows that the served version answered lately: the next one must answer one of them, too.
    """

    def __init__(self, model: Model, make: Callable[[Model], Executor], ring: Callable[[], None]) -> None:
        """Nothing is loaded before `run`.

        Args:
            model: that is served.
            make: returns what runs a version, not started yet.
            ring: called when a successor is ready to be taken.
        """
        self.served = self.wanted = model
        self.failures = self.switches = 0
        self.sample: Sequence[Input] = ()
        self._make = make
        self._ring = ring
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._offered: Successor | None = None
        self._leaving: Executor | None = None

    def on_record(self, record: Record, codec: Codec) -> None:
        """Take a record of topic `models`; another model's, a removal and what cannot be read change nothing."""
        if record.key != self.served.name.encode() or record.value is None:
            return
        try:
            self.wanted = codec.decode(Model, record.value)
        except DecodeError as fault:
            _log.error("a record about model %s cannot be read: %s", self.served.name, fault)
        else:
            self._changed.set()

    def take(self, present: Executor) -> Successor | None:
        """Return the version to answer with from now on, if there is one; `present` is let go of."""
        successor, self._offered = self._offered, None
        if successor is not None:
            _log.info("%s %s answers from now on, no longer %s", *_named(successor.model), self.served.version)
            self.served, self.sample, self._leaving = successor.model, (), present
            self.switches += 1
            self._taken.set()
        return successor

    async def run(self) -> None:
        """Get ready what is wanted, one version after the other, until cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await asyncio.sleep(SETTLE_S)
                while _differs(self.wanted, self.served) and not await self._succeed(self.wanted):
                    await self._wait_change(RETRY_S)
        finally:
            await self._let_go()

    async def _succeed(self, model: Model) -> bool:
        """Get a version ready and have it taken; False if it cannot be had now."""
        executor = self._make(model)
        try:
            await executor.start()
            await self._warm_up(executor)
        except (WorkerError, OSError) as fault:
            self.failures += 1
            _log.error("%s %s cannot take over, %s goes on: %s", *_named(model), self.served.version, fault)
            await executor.stop()
            return False
        except asyncio.CancelledError:
            await executor.stop()
            raise
        self._taken.clear()
        self._offered = Successor(model, executor)
        self._ring()
        await self._taken.wait()
        await self._let_go()
        return True

    async def _warm_up(self, executor: Executor) -> None:
        """Replay the last rows, their answers discarded; loading has made the very first call on a blank row.

        Raises:
            PackageError: it answers none of the rows that the present version answers.
        """
        if not self.sample:
            return
        timed = await executor.run(self.sample, WARM_UP_S)
        if Outcome.OK not in timed.predicted.outcomes:
            why = timed.predicted.fault or "they do not fit its signature"
            raise PackageError(f"it answers none of {len(self.sample)} rows that were asked just now: {why}")

    async def _wait_change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
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
