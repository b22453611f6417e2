"""Runs the models of one host in one child process: `streams.runtime.ports.Executors`.

    Load, Predict, Unload ─▶ a frame each ─▶ the child ─▶ answers by number ─▶ loaded, predicted

The child is started with the host. If a model hangs, the child is killed. If it ends, everything that
was with it fails, and the kernel is told that all is lost; the next `Load` starts another child. A model is to blame if
it hung, or if it was at work when the child ended. Of a batch of several models it is the first one without an answer.
One that has answered before is not to blame where another one was at work that has not.

A version that was never loaded on this machine is loaded in another child first, which crashes or hangs in its place.
That one ends when it has had nothing to do for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import sys
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from streams.operators.contract import Loaded, Predicted, Ran
from workers.errors import OutputError, PackageError
from workers.executors import frames
from workers.executors.host_child import BESIDE, LOAD, NUMBER, PREDICT, UNLOAD
from workers.executors.process import how_ended, kill

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from schemas.records import Model, Tensor
    from streams.operators.contract import Load, Predict, Unload
    from streams.runtime.ports import ExecutorEvents
    from workers.executors.host_child import Package
    from workers.packages.load_notes import LoadNotes

_log = logging.getLogger(__name__)

# Frames of results are bounded by what a batch can be; the reader takes them whole.
_ENDED = "the models' process ended while it was at work ({}): the host's log has its output"
# How long the child that tries versions is kept: importing a library may take it seconds.
IDLE_S = 10.0


class _Lost(NamedTuple):
    """Why there is no answer: the fault of the model that was asked; "" = another one's."""

    fault: str


class _ChildCall(NamedTuple):
    """What a copy was asked: the number of the first part of its batch, the answer to come, and what for."""

    copy: tuple[str, int]
    batch: int
    future: asyncio.Future[bytes | _Lost]
    what: str


class _HostChild:
    """A process, and what it has been asked."""

    def __init__(self, process: Process, proved: set[tuple[str, int]]) -> None:
        """Nothing is asked yet; `proved` are the copies that have answered, also in another process."""
        self.process = process
        self.proved = proved
        self.asked: dict[int, _ChildCall] = {}
        self.holds: dict[tuple[str, int], Load] = {}
        self.is_over = False
        self._numbers = count()

    def ask(self, what: str, parts: Sequence[tuple[tuple[str, int], object]]) -> list[asyncio.Future[bytes | _Lost]]:
        """Ask for something of each copy, all in one; returns the answers to come."""
        numbers = [next(self._numbers) for _ in parts]
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[bytes | _Lost]] = [loop.create_future() for _ in parts]
        if self.is_over:
            for future in futures:
                future.set_result(_Lost(""))
            return futures
        for number, (copy, _), future in zip(numbers, parts, futures, strict=True):
            self.asked[number] = _ChildCall(copy, numbers[0], future, what)
            future.add_done_callback(partial(self._forget, number))
        self._write(what, [(number, copy, argument) for number, (copy, argument) in zip(numbers, parts, strict=True)])
        return futures

    def load(self, copy: tuple[str, int], package: Package) -> asyncio.Future[bytes | _Lost]:
        """Load a copy, beside those that are still being loaded; returns the answer to come."""
        is_alone = all(asked.what == PREDICT for asked in self.asked.values())
        (future,) = self.ask(LOAD if is_alone else BESIDE, [(copy, package)])
        return future

    def let_go(self, copy: tuple[str, int]) -> None:
        """Unload a copy, which is not answered."""
        self._write(UNLOAD, [(0, copy, None)])

    def end(self, guilty: tuple[str, int] | None, fault: str) -> None:
        """Let everything that was asked fail; a guilty copy is to blame, else whoever is suspected."""
        self.is_over = True
        kill(self.process)
        at_work = [asked for asked in self.asked.values() if not asked.future.done()]
        suspects = self._suspects(at_work)
        for asked in at_work:
            is_to_blame = asked.copy == guilty if guilty is not None else asked in suspects
            asked.future.set_result(_Lost(fault if is_to_blame else ""))

    def _suspects(self, at_work: Sequence[_ChildCall]) -> list[_ChildCall]:
        """Return the first of each batch at work: those that have never answered, if there are any."""
        first: dict[int, _ChildCall] = {}
        for asked in at_work:
            first.setdefault(asked.batch, asked)
        return [asked for asked in first.values() if asked.copy not in self.proved] or [*first.values()]

    def _write(self, what: str, parts: Sequence[tuple[int, tuple[str, int], object]]) -> None:
        """Write a frame; a child that cannot read it has ended, which the reader of its answers notices."""
        assert self.process.stdin is not None, "it is a pipe"
        body = pickle.dumps((what, parts), protocol=5)
        with contextlib.suppress(ConnectionError, RuntimeError):
            self.process.stdin.write(frames.HEADER.pack(len(body)) + body)

    def _forget(self, number: int, _future: asyncio.Future[bytes | _Lost]) -> None:
        self.asked.pop(number, None)


class HostExecutors:
    """The models of one host.

    Args:
        package: returns what is to be loaded for a version.
        now_us: the clock that batches are timed by.
        lanes: batches that run at a time.
        load_s: how long one attempt to load may take.
        memory_bytes: that models and batches may take in the child, beside libraries; 0 = as much as there is.
        models_bytes: of these, that models may take; 0 = as much as there is.
        threads: for the arithmetic of one batch.
        notes: of what became of loading packages here; None = versions are loaded without care.
    """

    def __init__(
        self,
        package: Callable[[Model], Package],
        now_us: Callable[[], int],
        *,
        lanes: int = 1,
        load_s: float = 120.0,
        memory_bytes: int = 0,
        models_bytes: int = 0,
        threads: int = 1,
        notes: LoadNotes | None = None,
    ) -> None:
        self._package = package
        self._now_us = now_us
        self._load_s = load_s
        bounds = [f"--memory={memory_bytes}"] * bool(memory_bytes) + [f"--models={models_bytes}"] * bool(models_bytes)
        # -P: the child looks for modules in the current folder last, so no file there can shadow a module of ours.
        self._argv = (sys.executable, "-P", "-m", "workers.executors.host_child", str(lanes), *bounds)
        # Models are loaded in another thread than they are asked in, and OpenMP's limits belong to a thread.
        self._environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self._child: _HostChild | None = None
        self._notes = notes
        self._trying: _HostChild | None = None
        self._to_try = 0
        self._trial = asyncio.Lock()
        self._proved: set[tuple[str, int]] = set()
        self._wanted: dict[tuple[str, int], Load] = {}
        self._starting = asyncio.Lock()
        self._jobs: set[asyncio.Task[None]] = set()
        self._starts = 0

    def connect(self, events: ExecutorEvents, tasks: asyncio.TaskGroup) -> None:
        """Set who hears of events, and who owns the tasks."""
        self._events = events
        self._tasks = tasks
        self._do(self._begin())

    @property
    def pid(self) -> int | None:
        """The id of the child; None = there is none."""
        return None if self._child is None else self._child.process.pid

    def load(self, load: Load) -> None:
        """Load a copy of a version."""
        self._wanted[load.model.name, load.copy] = load
        self._do(self._load(load))

    def unload(self, unload: Unload) -> None:
        """Let go of a copy; nobody hears of one whose loading has not begun."""
        child, copy = self._child, (unload.model, unload.copy)
        self._wanted.pop(copy, None)
        self._proved.discard(copy)
        if child is not None and child.holds.pop(copy, None) is not None:
            child.let_go(copy)

    def predict(self, predict: Predict) -> None:
        """Predict a batch."""
        self._do(self._predict(predict))

    def go_on(self) -> None:
        """Do nothing: no model runs on the event loop."""

    def ask_now(self, model: str, copy: int, rows: Tensor, patience_us: int) -> None:
        """Return None: nothing is predicted on the caller's thread."""

    async def loaded(self) -> None:
        """Return at once: a host takes queries before any model is there."""

    async def stop(self) -> None:
        """Kill the child."""
        child, self._child = self._child, None
        for job in tuple(self._jobs):
            job.cancel()
        for each in filter(None, (child, self._trying)):
            each.end(None, "the host stops")
            await each.process.wait()

    def statistics(self) -> Mapping[str, float]:
        """Return how often a child was started."""
        return {"host_process_starts_total": float(self._starts)}

    def _do(self, job: Coroutine[object, object, None]) -> None:
        task = self._tasks.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _load(self, load: Load) -> None:
        copy, digest = (load.model.name, load.copy), load.model.digest
        try:
            refused = await self._refused(load)
            child = await self._started()
        except OSError as error:
            self._events.loaded(Loaded.of(load, _not_started(error)))
            return
        if refused:
            self._events.loaded(Loaded.of(load, refused))
            return
        if self._wanted.get(copy) is not load:
            return
        child.holds[copy] = load
        fault: str | None = None
        size_bytes = took_us = 0
        future = child.load(copy, self._package(load.model))
        found = await _within(self._load_s, child, copy, future, "it was not loaded")
        if isinstance(found, _Lost):
            self._note_death(digest, found.fault)
            self._events.loaded(Loaded.of(load, found.fault or None, is_lost=True))
            return
        try:
            choice, size_bytes, took_us = frames.unpack_hosted(found)
        except PackageError as error:
            fault = str(error)
            child.holds.pop(copy, None)
        else:
            if self._notes is not None and digest:
                self._notes.good(digest)
            if choice is not None:
                _log.info("%s %s runs under %s", load.model.name, load.model.version, choice)
        self._events.loaded(Loaded.of(load, fault, took_us, size_bytes))

    async def _refused(self, load: Load) -> str:
        """Return why a version is not loaded where the others are; "" = it may be: it was once, or in the other child.

        Raises:
            OSError: that child cannot be started.
        """
        model, notes = load.model, self._notes
        if notes is None or not model.digest:
            return ""
        try:
            note = notes.require(model.digest, f"{model.name} {model.version}")
            if note.is_good and not note.deaths:
                return ""
            found = await self._try(load)
            if isinstance(found, _Lost):
                self._note_death(model.digest, found.fault)
                return found.fault or "the process that tried it ended"
            frames.unpack_hosted(found)
        except PackageError as error:
            return str(error)
        return ""

    async def _try(self, load: Load) -> bytes | _Lost:
        """Load a copy in the child that is there for that, one at a time, and let go of it."""
        copy = load.model.name, load.copy
        self._to_try += 1
        try:
            async with self._trial:
                child = self._trying
                if child is None or child.is_over:
                    child = self._trying = await self._spawned()
                future = child.load(copy, self._package(load.model))
                found = await _within(self._load_s, child, copy, future, "it was not loaded")
                child.let_go(copy)
        finally:
            self._to_try -= 1
            asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)
        return found

    def _end_idle(self) -> None:
        if self._trying is not None and not self._to_try:
            self._trying.end(None, "nothing is tried")
            self._trying = None

    def _note_death(self, digest: str, fault: str) -> None:
        if self._notes is not None and digest and fault:
            self._notes.died(digest, fault)

    async def _predict(self, predict: Predict) -> None:
        """Predict a batch; its parts are answered one after the other."""
        child, parts, started_us = self._child, (predict, *predict.joined), self._now_us()
        copies = [(part.model, part.copy) for part in parts]
        asked = zip(copies, (part.rows for part in parts), strict=True)
        futures = [] if child is None else child.ask(PREDICT, [*asked])
        for place, part in enumerate(parts):
            found: bytes | _Lost = _Lost("")
            if child is not None:
                late = f"the model did not answer {len(part.rows)} rows"
                found = await _within(part.patience_us / 1e6, child, copies[place], futures[place], late)
            self._tell(part, found, self._now_us() - started_us)

    def _tell(self, predict: Predict, found: bytes | _Lost, took_us: int) -> None:
        rows = len(predict.rows)
        if isinstance(found, _Lost):
            failed = Predicted.failed(rows, found.fault or "the models' process ended")
            results = failed if found.fault else _innocent(failed)
            self._events.predicted(predict, Ran(results, took_us, is_lost=True))
            return
        try:
            results = frames.unpack(found, rows)
        except OutputError as error:
            results = Predicted.failed(rows, str(error))
        if results.fault is not None:
            _log.warning("model %s failed on a batch of %d rows: %s", predict.model, rows, results.fault)
        self._events.predicted(predict, Ran(results, took_us))

    async def _begin(self) -> None:
        """Start the child before it is needed: that takes a second, which is no query's."""
        try:
            await self._started()
        except OSError as error:
            _log.warning("%s; the next model that is loaded starts it", _not_started(error))

    async def _started(self) -> _HostChild:
        async with self._starting:
            if self._child is None or self._child.is_over:
                self._child = await self._spawned()
                self._starts += 1
            return self._child

    async def _spawned(self) -> _HostChild:
        pipe, environment = asyncio.subprocess.PIPE, {**os.environ, **self._environment}
        process = await asyncio.create_subprocess_exec(*self._argv, stdin=pipe, stdout=pipe, env=environment)
        child = _HostChild(process, self._proved)
        self._do(self._read(child))
        return child

    async def _read(self, child: _HostChild) -> None:
        """Hand out answers until the child ends; if it was idle then, one of its models says that all are lost."""
        stream = child.process.stdout
        assert stream is not None, "it is a pipe"
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = frames.HEADER.unpack(await stream.readexactly(frames.HEADER.size))
                body = await stream.readexactly(length)
                asked = child.asked.pop(NUMBER.unpack_from(body)[0], None)
                if asked is not None and not asked.future.done():
                    asked.future.set_result(body[NUMBER.size :])
                    if asked.what == PREDICT and asked.copy in self._wanted:
                        self._proved.add(asked.copy)
        is_idle = not child.asked and not child.is_over
        kill(child.process)
        child.end(None, _ENDED.format(how_ended(await child.process.wait())))
        if is_idle and child.holds:
            load = next(iter(child.holds.values()))
            self._events.loaded(Loaded.of(load, is_lost=True))


async def _within(
    patience_s: float, child: _HostChild, copy: tuple[str, int], answer: asyncio.Future[bytes | _Lost], late: str
) -> bytes | _Lost:
    """Wait for an answer; if there is none in time the copy hangs, and the child is killed."""
    done, _ = await asyncio.wait([answer], timeout=patience_s)
    if not done:
        child.end(copy, f"{late} within {patience_s:.1f} s")
    return await answer


def _not_started(error: OSError) -> str:
    return f"the models' process cannot be started: {error}"


def _innocent(failed: Predicted) -> Predicted:
    """Return failed rows for which nobody here is to blame."""
    return Predicted(failed.outcomes, failed.answers)
