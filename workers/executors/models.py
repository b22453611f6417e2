"""Runs the models of one role: `streams.runtime.ports.Executors`, over an executor for each copy.

    Load ─────▶ executor.start ─▶ loaded                         a task each
    Predict ─┬▶ executor.run ───▶ predicted                      a task each: a thread or processes work meanwhile
             └▶ quick: `go_on` ─▶ run_quick ─▶ predicted         here and now, for as long as a turn may take

A vital model that hangs ends the role, and a batch that fails in an unforeseen way fails alone. Any other model is
dropped, and the kernel gets the reason.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.foreign import discreet, pass_on_interrupt, told
from streams.operators.contract import Loaded, Predicted, Ran
from workers.errors import HungError, WorkerError, refusing
from workers.executors.joining import joined
from workers.executors.thread import Timed
from workers.inputs.columns import Stacked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from schemas.records import Input, Model, Tensor
    from streams.operators.contract import Load, Predict, Unload
    from streams.runtime.ports import ExecutorEvents
    from workers.executors.careful import Careful
    from workers.executors.thread import Executor
    from workers.packages.autotune import Choice

_log = logging.getLogger(__name__)

# How long quick batches, and what their answers lead to, may keep the event loop before others get their turn. A batch
# that has begun is ended.
TURN_S = 0.000_5
# The event loop's pause for other work after a batch that kept it: this part of the batch's time (1/8), at most 0.5 ms.
BREATH_SHARE, BREATH_S = 8, 0.000_5
# How a task is told that it is over.
_ENDED: Final = (asyncio.CancelledError, GeneratorExit)
# How often the same complaint about a model is logged.
COMPLAINT_S = 10.0


class _LoadedCopy(NamedTuple):
    """A copy of a version, loaded or being loaded."""

    load: Load
    executor: Executor


class ModelExecutors:
    """Executors by model and copy.

    Args:
        make: returns what runs a version, not started yet; it calls the given function with the forms that run.
        careful: loads versions; None = they are loaded at once.
        now_s: the clock that turns of the event loop are bounded by, and loads are timed.
    """

    def __init__(
        self,
        make: Callable[[Model, Callable[[Choice], None]], Executor],
        careful: Careful | None = None,
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._make = make
        self._careful = careful
        self._now_s = now_s
        self._copies: dict[tuple[str, int], _LoadedCopy] = {}
        self._figures: dict[str, Mapping[str, float]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._leaving: dict[str, set[asyncio.Task[None]]] = {}
        self._vital = 0
        self._loaded = asyncio.Event()
        self._loaded.set()
        self._quick: deque[tuple[Predict, Executor]] = deque()
        self._is_at_it = False  # quick batches run, or will in the next turn of the event loop
        self._breath_until_s = -math.inf
        self._complained_s: dict[str, float] = {}

    def connect(self, events: ExecutorEvents, tasks: asyncio.TaskGroup) -> None:
        """Set who hears of events, and who owns the tasks."""
        self._events = events
        self._tasks = tasks

    def load(self, load: Load) -> None:
        """Load a copy of a version."""
        name = load.model.name

        def chose(choice: Choice) -> None:
            if not load.is_beside:
                self._figures[name] = choice.gauges(name)

        copy = _LoadedCopy(load, self._make(load.model, chose))
        self._copies[name, load.copy] = copy
        if load.is_vital:
            self._vital += 1
            self._loaded.clear()
        self._do(self._load(copy, ends=(HungError,) if load.is_vital else ()))

    def unload(self, unload: Unload) -> None:
        """Let go of a copy."""
        copy = self._copies.pop((unload.model, unload.copy), None)
        if copy is not None:
            leaving = self._leaving.setdefault(unload.model, set())
            task = self._do(copy.executor.stop())
            leaving.add(task)
            task.add_done_callback(leaving.discard)

    def predict(self, predict: Predict) -> None:
        """Predict a batch: on the event loop (see `go_on`) if it is quick and a hang would end the role anyway."""
        executor = self._copies[predict.model, predict.copy].executor
        if predict.is_vital and executor.ready and executor.is_quick(len(predict.rows), more=predict.queued > 0):
            self._quick.append((predict, executor))
        else:
            self._do(self._run(predict, executor))

    def go_on(self) -> None:
        """Run quick batches now, unless that is what has led here: then they follow those that run."""
        if self._quick and not self._is_at_it:
            self._is_at_it = True
            self._run_quick()

    def ask_now(self, model: str, copy: int, rows: Tensor, patience_us: int) -> tuple[Predicted, int] | None:
        """Ask a copy that is instant, here and now; see `streams.operators.contract.AskNow`."""
        held, left, took_us = self._copies.get((model, copy)), rows.shape[0], 0
        width, parts = len(rows.data) // max(left, 1), list[Predicted]()
        while held is not None and held.executor.ready and (count := held.executor.instant(left)):
            data = rows.data[len(rows.data) - left * width :][: count * width]
            timed = _quickly(model, Stacked(rows.dtype, rows.shape[1:], data, count), patience_us, held.executor)
            if timed is None:
                return None
            left, took_us = left - count, took_us + timed.predict_us
            parts.append(timed.predicted)
            if not left:
                return joined(parts), took_us
        return None

    async def loaded(self) -> None:
        """Return when no vital copy is being loaded."""
        await self._loaded.wait()

    async def stop(self) -> None:
        """Let go of all models, without waiting for them."""
        self._quick.clear()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        copies, self._copies = [*self._copies.values()], {}
        for copy in copies:
            await copy.executor.stop()
        await asyncio.gather(*running, return_exceptions=True)

    def statistics(self) -> Mapping[str, float]:
        """Return which forms of the models run, and what was measured."""
        return {name: value for figures in self._figures.values() for name, value in figures.items()}

    def _do(self, job: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(job)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _load(self, copy: _LoadedCopy, ends: tuple[type[Exception], ...]) -> None:
        """Load a copy, or load it again; some faults end the role."""
        load = copy.load
        started_s = self._now_s()
        leaving = self._leaving.get(load.model.name)
        if leaving:
            await asyncio.wait(tuple(leaving))
        fault = None
        try:
            with refusing("it cannot be loaded", but=(WorkerError, OSError, *_ENDED)):
                await self._start(copy)
        except (WorkerError, OSError) as error:
            if isinstance(error, ends):
                raise
            fault = str(error) or type(error).__name__
            await self._drop(copy)
        took_us = int((self._now_s() - started_s) * 1e6)
        if load.is_vital and not self._loaded.is_set():
            self._vital -= 1
            if not self._vital:
                self._loaded.set()
        self._events.loaded(Loaded.of(load, fault, took_us))

    async def _start(self, copy: _LoadedCopy) -> None:
        load, executor = copy
        if self._careful is None:
            await executor.start()
        else:
            await self._careful.start(load.model, executor, is_first=load.is_vital and not self._loaded.is_set())

    async def _run(self, predict: Predict, executor: Executor) -> None:
        """Predict in a thread or a process."""
        patience_s = predict.patience_us / 1e6
        try:
            with refusing("it cannot be asked", but=(WorkerError, OSError, *_ENDED)):
                timed = await executor.run(predict.rows, patience_s)
        except (WorkerError, OSError) as error:
            if not predict.is_vital:
                await self._give_up(predict, str(error) or type(error).__name__)
                return
            if isinstance(error, HungError):
                raise
            timed = Timed(Predicted.failed(len(predict.rows), str(error) or type(error).__name__), 0)
        self._tell_first(predict, timed, is_lost=not executor.ready)
        if not executor.ready:
            await self._load_again(predict)

    def _run_quick(self) -> None:
        """Predict here, batch after batch, until there are none or others need the event loop."""
        now_s = self._now_s()
        end_s = now_s + TURN_S if now_s >= self._breath_until_s else now_s
        while self._quick and now_s < end_s:
            self._run_here(*self._quick.popleft())
            now_s = self._now_s()
        self._leave_rest()

    def _leave_rest(self) -> None:
        """Run what is left in the next turn of the event loop, after what is due by now."""
        self._is_at_it = bool(self._quick)
        if self._is_at_it:
            asyncio.get_running_loop().call_soon(self._run_quick)

    def _run_here(self, predict: Predict, executor: Executor) -> None:
        """Predict one batch and have everything done about it; what that raises ends the role, and no other batch."""
        timed = _quickly(predict.model, predict.rows, predict.patience_us, executor)
        if timed is None:
            self._do(self._run(predict, executor))
            return
        self._breath_until_s = self._now_s() + min(timed.predict_us / 1e6 / BREATH_SHARE, BREATH_S)
        try:
            self._tell(predict, timed, is_blocking=True)
        except Exception as error:  # noqa: BLE001 - raised again where it ends the role
            self._do(_raise(error))

    def _tell_first(self, predict: Predict, timed: Timed, *, is_lost: bool) -> None:
        """Tell of a batch that ran elsewhere: it is answered before quick ones run that follow it."""
        was_at_it, self._is_at_it = self._is_at_it, True
        self._tell(predict, timed, is_lost=is_lost)
        if not was_at_it:
            self._leave_rest()

    def _tell(self, predict: Predict, timed: Timed, *, is_blocking: bool = False, is_lost: bool = False) -> None:
        self._complain(predict, timed.predicted)
        self._events.predicted(predict, Ran(timed.predicted, timed.predict_us, is_blocking, is_lost))

    def _complain(self, predict: Predict, predicted: Predicted) -> None:
        """Log what is wrong with a batch, seldom."""
        refused = next(iter(predicted.messages.values()), None)
        if predicted.fault is None and refused is None:
            return
        now_s = time.monotonic()
        if now_s - self._complained_s.get(predict.model, -COMPLAINT_S) >= COMPLAINT_S:
            self._complained_s[predict.model] = now_s
            what = "failed on rows" if predicted.fault is not None else "refused rows"
            why = discreet(predicted.fault or refused or "")
            _log.warning("model %s %s of a batch of %d: %s", predict.model, what, len(predict.rows), why)

    async def _give_up(self, predict: Predict, fault: str) -> None:
        """Fail a batch and drop its model, which cannot be used any more."""
        copy = self._copies[predict.model, predict.copy]
        await self._drop(copy)
        self._events.predicted(predict, Ran(Predicted.failed(len(predict.rows), fault), 0, is_lost=True))
        self._events.loaded(Loaded.of(copy.load, fault))

    async def _load_again(self, predict: Predict) -> None:
        copy = self._copies.get((predict.model, predict.copy))
        if copy is not None:
            await self._load(copy, ends=(WorkerError, OSError) if predict.is_vital else ())

    async def _drop(self, copy: _LoadedCopy) -> None:
        self._copies.pop((copy.load.model.name, copy.load.copy), None)
        await copy.executor.stop()


def _quickly(model: str, rows: Sequence[Input], patience_us: int, executor: Executor) -> Timed | None:
    """Predict a batch here; None = it is left to `run`, where whatever this raised fails it."""
    try:
        return executor.run_quick(rows, patience_us / 1e6)
    except BaseException as error:  # noqa: BLE001 - in a callback of the loop, where nobody else would hear of it
        pass_on_interrupt(error)
        _log.warning("a batch of model %s goes to its thread: %s", model, discreet(told(error)))
        return None


async def _raise(error: Exception) -> None:
    raise error
