"""The task that predicts batch after batch: takes from a worker's kernel, hands what it answers to whoever performs it.

kernel: on_records ─▶ bell, or timer ─▶ take ─┬─▶ executor's thread ─▶ done ─▶ the next take, while this one is answered
                                              └─▶ here, if it is quick ─▶ done, answered ─▶ the next take
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from policies.allowed_sizes import AllowedSizes
from policies.batching import create_controller
from workers.errors import HungError, WorkerError
from workers.executors.factory import executor_of
from workers.executors.loop_budget import QUICK_US
from workers.executors.thread import Executor, Missing, Timed, patience_s
from workers.kernel import routing as traffic
from workers.kernel.batcher import Batcher, Take
from workers.kernel.results import Identity, inputs_of, size_of
from workers.kernel.routing import SHADOW
from workers.rollout.candidates import Beside
from workers.rollout.switch import Versions, Wanted
from workers.rollout.warm_up import Recent, Trial, prepare
from workers.waking import Waking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from schemas.codec import Codec
    from schemas.records import Input, Model
    from streams.operators.contract import Effects
    from workers.kernel.results import Asked
    from workers.packages.autotune import Choice
    from workers.settings import WorkerSettings

_log = logging.getLogger(__name__)

# The poll after which no more is read may bring this much more than the queue should hold, and it is kept: 4 partitions
# of 1 MiB each hold 40,000 of the smallest queries (100 B). Beyond that memory comes first.
OVERSHOOT_ROWS = 50_000
# The same in bytes: of 4 partitions, unpacked.
OVERSHOOT_BYTES = 64 << 20
# Turns of the event loop between two batches that kept it: from a socket that can be read to rows in the queue it takes
# three or four, and as many from answers to a socket.
TURNS = 8
# And until a model has its rows: its executor's task, and of a pool those of its children.
STARTS = 2
# How long it is waited between two such batches for what a fetch brings that is answered at once; at most half of the
# batch. Beside other work on two cores a leg takes 1 to 2 ms.
LISTEN_US = 5_000
# How often the same complaint about a model is logged.
COMPLAINT_US = 10_000_000


class Predicting:
    """One model: its kernel, what runs it, and the task between them.

    Attributes:
        kernel: takes model queries; a poll of them wakes the task.
    """

    def __init__(
        self,
        model: Model,
        instance: str,
        settings: WorkerSettings,
        codec: Codec,
        now_us: Callable[[], int],
        executor: Executor | None = None,
        make: Callable[[Model], Executor] | None = None,
        beside: str = "",
        recall: Callable[[], Awaitable[Sequence[Input]]] | None = None,
    ) -> None:
        """Nothing runs before `start`.

        Args:
            model: which; its package must lie where the record says.
            instance: unique in the deployment.
            settings: how it is run.
            codec: of all records.
            now_us: the clock.
            executor: runs the model; None = as the settings say.
            make: returns what runs a later version; None = as the settings say.
            beside: label of this version, if it runs beside the one that serves.
            recall: returns what the model was asked last; None = nobody knows.
        """
        self._name = model.name
        controller = create_controller(settings.controller, settings.parameters)
        limit = settings.queue_rows + (OVERSHOOT_ROWS if beside != SHADOW else 0)
        sizes = settings.allowed_batch_sizes.get(model.name)
        if sizes:
            controller = AllowedSizes(controller, sizes)
        self._batcher: Batcher[Asked] = Batcher(
            controller,
            limit=limit,
            objective_us=settings.objective_us,
            limit_bytes=settings.queue_bytes + (OVERSHOOT_BYTES if beside != SHADOW else 0),
            size=size_of,
        )
        row_bytes = max(1, settings.queue_bytes // settings.queue_rows)
        identity = Identity(model.name, model.version, instance)
        self.kernel = Waking(codec, identity, self._batcher, settings.partitions, beside, row_bytes)
        load_beside = make or (lambda version: executor_of(version, settings, now_us, lambda _: None))
        make = make or (lambda version: executor_of(version, settings, now_us, self._chose))
        self._executor = executor or make(model)
        recent = Recent(recall, settings.warm_up_rows)
        self._versions = Versions(model, make, self.kernel.ring, unload_first=settings.unload_first, recent=recent)
        self._drains = False
        self._preparing: asyncio.Task[None] | None = None
        self._last_rows: tuple[int, int] | None = None  # it answers before it leaves (`Batcher.mark`), and until when

        def side(wanted: Wanted, loaded: Executor) -> Predicting:
            its = traffic.label(wanted.share)
            return Predicting(wanted.model, instance, settings, codec, now_us, loaded, make, its)

        versions = self._versions
        self._beside = Beside(self.kernel, load_beside, side, lambda: versions.wanted, versions.look)
        if not beside:
            self.kernel.versions, self.kernel.beside = self._versions, self._beside
        self._patience_s = settings.patience_of(model.name)
        self._drain_us = settings.drain_us
        self._now_us = now_us
        self._complained_us = -COMPLAINT_US

    def _chose(self, choice: Choice) -> None:
        self.kernel.gauges = choice.gauges(self._name)

    async def start(self) -> None:
        """Load the model; where that cannot be done its rows fail until another version, or this one, can be loaded.

        Raises:
            HungError: loading it does not end.
        """
        try:
            await prepare(self._executor, Trial())
        except HungError:
            raise
        except (WorkerError, OSError) as fault:
            self._versions.lose(fault)
            self._executor = Missing(f"it is not loaded: {fault}")

    async def stop(self) -> None:
        """Let go of the model."""
        await self._executor.stop()

    async def run(self, perform: Callable[[Effects], None]) -> None:
        """Predict batch after batch, and have each written while the next one is predicted.

        Raises:
            HungError: the model did not come back.
        """
        preparing = self._preparing = asyncio.create_task(self._versions.run(partial(self._have_beside, perform)))
        preparing.add_done_callback(lambda _: self.kernel.ring())  # it only ends by a fault
        try:
            await self._predict(perform)
        finally:
            preparing.cancel()
            await asyncio.wait([preparing])
            await self._beside.stop()

    def drain(self) -> None:
        """Have `run` return when nothing is queued any more."""
        self._drains = True
        self.kernel.ring()

    async def _have_beside(self, perform: Callable[[Effects], None], wanted: Sequence[Wanted]) -> bool:
        return await self._beside.converge(wanted, self._versions.recent, perform)

    def _check(self) -> None:
        """Raise what ended the versions beside, or the following of versions: none would ever be changed again."""
        self._beside.check()
        if self._preparing is not None and self._preparing.done():
            self._preparing.result()

    async def _predict(self, perform: Callable[[Effects], None]) -> None:
        last: _Done | None = None
        while True:
            self._check()
            if not self._executor.ready or self._is_due():
                if last is not None:
                    perform(self._finish(last))  # in the name of the version that answered, before anything is awaited
                    last = None
                await self._change()
            take = self.kernel.take(self._now_us())
            if take.rows:
                last = await self._batch(perform, take, last)
                continue
            if last is not None:
                perform(self._finish(last))
            if take.expired:
                perform(self.kernel.expire(take, self._now_us()))
            if last is None:
                if self._drains and not self.kernel.held:
                    return
                if not self._is_due():  # it may have become so by a ring that was for rows, too
                    await self.kernel.wait_records(_seconds(self._until_us(take.wait_until_us), self._now_us()))
            last = None

    def _is_due(self) -> bool:
        """Whether to change now: the present version has answered what had been read when the next one was ready.

        Or has had its time for it: a rollback from a slow version must not wait for that one's queue.
        """
        if not self._versions.is_changing:
            return False
        now_us = self._now_us()
        if self._last_rows is None:
            self._last_rows = self._batcher.mark, now_us + self._drain_us
        mark, end_us = self._last_rows
        return now_us >= end_us or not self._batcher.waits_before(mark)

    def _until_us(self, wait_until_us: int | None) -> int | None:
        """Return when to look again: when rows are to be taken, or when the present version has had its time."""
        ends = [wait_until_us, None if self._last_rows is None else self._last_rows[1]]
        return min((end_us for end_us in ends if end_us is not None), default=None)

    async def _change(self) -> None:
        self._last_rows = None
        if self._versions.vacating:
            await self._versions.vacate(self._executor)
        successor = self._versions.take(self._executor)
        if successor is not None:
            self._executor = successor.executor
            self.kernel.succeed(successor.model.version)
        if not self._executor.ready:
            await self._executor.start()

    async def _batch(self, perform: Callable[[Effects], None], take: Take[Asked], last: _Done | None) -> _Done | None:
        """Predict a batch, and answer the last one meanwhile; a quick one is answered at once: None is left to do."""
        started_us = self._now_us()
        inputs = inputs_of(take.rows)
        patience = self._patience_s or patience_s(self._batcher.objective(started_us))
        quick = None
        if self._executor.is_quick(len(inputs), more=take.queued > 0):
            if last is not None:
                perform(self._finish(last))  # which would wait for the batch
                last = None
            quick = self._executor.run_quick(inputs, patience)
        timed = quick or await self._handed_over(perform, inputs, patience, last)
        self.kernel.done(take, timed.predict_us, self._now_us(), deaf=quick is not None and timed.predict_us > QUICK_US)
        self._versions.recent.note(inputs, timed.predicted.outcomes)
        done = _Done(take, timed, started_us)
        if quick is None:
            return done
        for each in (last, done):
            if each is not None:
                perform(self._finish(each))
        await self._listen(timed.predict_us)
        if not len(self._batcher) and not self._drains and not self._is_due():
            await self.kernel.wait_records()
        return None

    async def _listen(self, kept_us: int) -> None:
        """Let others have the event loop; after a batch that kept it, until rows are there that the next one can take.

        A fetch is answered when its first row comes. Those that come after it while the model predicts wait for the
        next fetch: without its answer they would miss the next batch, too.
        """
        is_deaf = kept_us > QUICK_US
        for _ in range(TURNS if is_deaf else int(len(self._batcher) > 0)):
            await asyncio.sleep(0)
        if is_deaf and 0 < len(self._batcher) < self._batcher.cap and not self._drains:
            self.kernel.forget_ring()
            await self.kernel.wait_records(min(LISTEN_US, kept_us // 2) / 1e6)
            self.kernel.ring()  # whatever rang, perhaps not for rows, is looked at

    async def _handed_over(
        self, perform: Callable[[Effects], None], inputs: Sequence[Input], patience: float, last: _Done | None
    ) -> Timed:
        running = asyncio.create_task(self._executor.run(inputs, patience))
        try:
            if last is not None:
                for _ in range(STARTS):
                    await asyncio.sleep(0)
                perform(self._finish(last))
            return await running
        finally:
            running.cancel()

    def _finish(self, done: _Done) -> Effects:
        fault = done.timed.predicted.fault
        refused = next(iter(done.timed.predicted.messages.values()), None)
        if (fault or refused) is not None and done.started_us - self._complained_us >= COMPLAINT_US:
            self._complained_us = done.started_us
            what = "failed on rows" if fault is not None else "refused rows"
            _log.warning("the model %s of a batch of %d: %s", what, len(done.take.rows), fault or refused)
        return self.kernel.answer(done.take, done.timed.predicted, done.started_us, done.timed.predict_us)


class _Done(NamedTuple):
    """A predicted batch that has not been written yet."""

    take: Take[Asked]
    timed: Timed
    started_us: int


def _seconds(until_us: int | None, now_us: int) -> float | None:
    return None if until_us is None else max(0, until_us - now_us) / 1e6
