"""Runs predictions off the event loop, or on it for very short batches, and detects hung models.

    ThreadExecutor     a thread of its own (default): no copy of the inputs; a hung model ends the worker.
                       Batches known to take less than a millisecond run on the event loop instead, and so do
                       batches of a model that keeps Python's lock; the thread only watches them
    ProcessExecutor    a child process of its own: a hung or crashed model is killed, its batch fails, a new one starts
    PoolExecutor       several child processes, among which each batch is divided

Each answers one batch at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from policies.foreign import told
from workers.errors import HungError, PackageError, WorkerError
from workers.executors.hang_monitor import Sentinel, hung
from workers.executors.loop_budget import Quickness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input
    from streams.operators.contract import Predicted

    Predict: TypeAlias = Callable[[Sequence[Input]], Predicted]

R = TypeVar("R")

# Even a large network is read from a disk within this time; only a model that hangs takes longer.
LOAD_S = 120.0


class Timed(NamedTuple):
    """Results, and how long the model took for them, without other work of the event loop.

    Attributes:
        predicted: the results.
        predict_us: how long it took.
        cpu_us: of that, how long its thread was at work; 0 = not known.
    """

    predicted: Predicted
    predict_us: int
    cpu_us: int = 0


class Executor(Protocol):
    """Predicts batches."""

    @property
    def ready(self) -> bool:
        """Whether the model is loaded; `start` takes its time if not."""
        ...

    async def start(self) -> None:
        """Load the model, or load it again if it was lost; returns at once if it is there.

        Raises:
            PackageError: it cannot be loaded.
            HungError: loading it does not end, and it cannot be replaced from inside.
        """
        ...

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Whether a batch of this many rows should go to `run_quick`, on the event loop.

        If `more` rows wait for the next batch, only a batch that takes less than handing it over should. Beside `run`
        the event loop goes on with the others. A model that keeps Python's lock is an exception.
        """
        ...

    def instant(self, rows: int) -> int:
        """Return how many of so many rows `run_quick` is known to answer in less than a millisecond; 0 = none.

        It may be asked while a batch is with the model: 0 = not now.
        """
        ...

    def run_quick(self, inputs: Sequence[Input], patience_s: float) -> Timed | None:
        """Predict one batch here and now, if `is_quick` or `instant` said so; None = call `run` instead.

        A model that hangs in it ends the process, after about `patience_s`.
        """
        ...

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict one batch, n rows.

        Raises:
            HungError: the model did not come back within `patience_s` and cannot be replaced from inside.
        """
        ...

    async def stop(self) -> None:
        """Let go of the model without waiting for it."""
        ...


class OffLoopExecutor:
    """Base of executors that never predict in the event loop's thread, where a hang would end the worker."""

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Return False."""
        return False

    def instant(self, rows: int) -> int:
        """Return 0."""
        return 0

    def run_quick(self, inputs: Sequence[Input], patience_s: float) -> Timed | None:
        """Leave it to `run`."""
        return None


class ThreadExecutor:
    """Loads and predicts in one daemon thread, so that it cannot keep an ending process alive.

    Loading happens in the same thread because OpenMP's limits belong to the thread that set them. Runtimes set them in
    the event loop's thread, too. While a quick batch runs there, this thread watches whether it returns.
    """

    def __init__(
        self,
        load: Callable[[], Predict],
        now_us: Callable[[], int],
        load_s: float = LOAD_S,
        sentinel: Sentinel | None = None,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        """Nothing runs before `start`.

        Args:
            load: called in the thread; returns what predicts.
            now_us: the clock that batches are timed by.
            load_s: how long loading may take.
            sentinel: acts on a quick batch that hangs; None = ends the process.
            cpu_ns: CPU time of the thread that calls it (ns).
        """
        self._load = load
        self._now_us = now_us
        self._load_s = load_s
        self._cpu_ns = cpu_ns
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._predict: Predict | None = None
        self._sentinel = sentinel or Sentinel()
        self._quickness: Quickness | None = Quickness()
        self._row_size = 0
        self._doing: asyncio.Future[object] | None = None  # what the thread was asked for last

    @property
    def ready(self) -> bool:
        """Whether the model is loaded."""
        return self._predict is not None

    def keep_in_thread(self) -> None:
        """Never use the event loop's thread, however quick the model is: it waits for a device most of its time."""
        self._quickness = None

    def weigh(self, row_size: int) -> None:
        """Count a batch as so many rows as it has of this size, if that is more than it has: characters or bytes."""
        self._row_size = row_size

    def leaves_lock(self) -> None:
        """Use the event loop's thread only if the model is quick: it computes without Python's lock."""
        self._quickness = Quickness(keeps_lock=False)

    async def start(self) -> None:
        """Start the thread and load the model in it."""
        if self._predict is not None:
            return
        threading.Thread(target=self._serve, name="predict", daemon=True).start()
        try:
            async with asyncio.timeout(self._load_s):
                self._predict = await self._do(self._load)
        except TimeoutError:
            raise HungError(
                f"the model was not loaded within {self._load_s:g} s and a thread cannot be killed: this worker ends so"
                " that it is started again; set `worker.load_s` higher if it needs longer"
            ) from None

    def is_quick(self, rows: int, *, more: bool) -> bool:
        """Whether the caller's thread is to predict so many rows."""
        return self._quickness is not None and self._quickness.expects(rows, more=more)

    def instant(self, rows: int) -> int:
        """Return how many of so many rows are known to take the caller's thread less than a millisecond; 0 = none.

        It is 0 while a batch is in the model's own thread: a model is asked by one thread at a time.
        """
        is_busy = self._doing is not None and not self._doing.done()
        return 0 if self._quickness is None or is_busy else self._quickness.instant(rows)

    def run_quick(self, inputs: Sequence[Input], patience_s: float) -> Timed | None:
        """Predict a batch that is known to be quick in the caller's thread.

        An error of the model is ignored here, and `run` asks the model again. The thread may be its only cause, as for
        a function that runs an event loop of its own.
        """
        assert self._predict is not None and self._quickness is not None, "start() and is_quick() come first"  # noqa: PT018 - one truth
        weight = self._weight(inputs)
        if weight > len(inputs) and not self.is_quick(weight, more=False):
            return None
        is_first = self._sentinel.look_s is None
        self._sentinel.begin(len(inputs), patience_s)
        if is_first:
            self._work.put(_nothing)  # the thread waits without end so far
        try:
            timed = self._timed(self._predict, inputs)
        finally:
            self._sentinel.over()
        if timed.predicted.fault is not None:
            self._quickness.doubt()
            return None
        self._quickness.observe_expected(weight, timed.predict_us, timed.cpu_us)
        return timed

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict in the thread."""
        assert self._predict is not None, "start() comes first"
        try:
            async with asyncio.timeout(patience_s):
                timed = await self._do(partial(self._timed, self._predict, inputs))
        except TimeoutError:
            raise HungError(hung(len(inputs), patience_s)) from None
        if self._quickness is not None:
            self._quickness.observe(self._weight(inputs), timed.predict_us, timed.cpu_us)
        return timed

    async def stop(self) -> None:
        """Let the thread end when it is idle."""
        self._work.put(None)

    def _weight(self, inputs: Sequence[Input]) -> int:
        """Return as how many rows a batch counts."""
        if not self._row_size:
            return len(inputs)
        size = sum(len(row) if isinstance(row, str | bytes) else len(row.data) for row in inputs)
        return max(len(inputs), size // self._row_size)

    def _timed(self, predict: Predict, inputs: Sequence[Input]) -> Timed:
        started_us, started_cpu_ns = self._now_us(), self._cpu_ns()
        predicted = predict(inputs)
        cpu_us = (self._cpu_ns() - started_cpu_ns) // 1000
        return Timed(predicted, self._now_us() - started_us, cpu_us)

    async def _do(self, call: Callable[[], R]) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._doing = cast("asyncio.Future[object]", future)
        self._work.put(lambda: _settle(loop, future, call))
        return await future

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=self._sentinel.look_s)
            except queue.Empty:
                self._sentinel.look()
                continue
            if work is None:
                return
            work()


def _nothing() -> None:
    """Do nothing."""


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[R], call: Callable[[], R]) -> None:
    """Run the call and pass its result or error to the loop, where the waiting may already have ended.

    Only a refusal is passed as it is. Any other error might end the loop or the task that waits for it, or be taken for
    the end of its patience, as a `TimeoutError`. A future does not even take a `StopIteration`.
    """
    try:
        value = call()
    except PackageError as error:
        _tell(loop, future, partial(future.set_exception, error))
    except BaseException as error:  # noqa: BLE001 - whatever foreign code raises
        _tell(loop, future, partial(future.set_exception, WorkerError(told(error))))
    else:
        _tell(loop, future, partial(future.set_result, value))


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[R], tell: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has been closed: the worker is gone
        loop.call_soon_threadsafe(lambda: None if future.done() else tell())
