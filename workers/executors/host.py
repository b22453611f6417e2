"""Runs the models of one host in one child process: `streams.runtime.ports.Executors`.

    Load, Predict, Unload ─▶ a frame each ─▶ the child ─▶ answers by number ─▶ loaded, predicted

The child (`models_process`) is started with the host. If a model hangs, the child is killed. If it ends, everything
that was with it fails, and the kernel is told that all is lost; the next `Load` starts another child.

A version that was never loaded on this machine is loaded in another child first, which crashes or hangs in its place.
That one ends when it has had nothing to do for a while.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from policies.foreign import discreet
from streams.operators.contract import Loaded, Predicted, Ran
from workers.errors import OutputError, PackageError
from workers.executors import frames
from workers.executors.models_process import CHILD, Lost, ModelsProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from schemas.records import Model, Tensor
    from streams.operators.contract import Load, Predict, Unload
    from streams.runtime.ports import ExecutorEvents
    from workers.executors.frames import Package
    from workers.executors.models_process import CopyName
    from workers.packages.load_notes import LoadNotes

_log = logging.getLogger(__name__)

_ENDED = "the models' process ended while it was at work ({}): the host's log has its output"
# How long the child that tries versions is kept: importing a library may take it seconds.
IDLE_S = 10.0


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
        self._late = f"it was not loaded within {load_s:.1f} s"
        bounds = [f"--memory={memory_bytes}"] * bool(memory_bytes) + [f"--models={models_bytes}"] * bool(models_bytes)
        self._arguments = (*CHILD, str(lanes), *bounds)
        # Models are loaded in another thread than they are asked in, and OpenMP's limits belong to a thread.
        self._environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self._child: ModelsProcess | None = None
        self._notes = notes
        self._trying: ModelsProcess | None = None
        self._to_try = 0
        self._trial = asyncio.Lock()
        self._proved: set[CopyName] = set()
        self._wanted: dict[CopyName, Load] = {}
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
        found = await child.within(self._load_s, copy, future, self._late)
        if isinstance(found, Lost):
            self._note_death(digest, found.fault)
            self._events.loaded(Loaded.of(load, found.fault or None, is_lost=True))
            return
        try:
            choice, size_bytes, took_us = frames.unpack_loaded(found)
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
            if isinstance(found, Lost):
                self._note_death(model.digest, found.fault)
                return found.fault or "the process that tried it ended"
            frames.unpack_loaded(found)
        except PackageError as error:
            return str(error)
        return ""

    async def _try(self, load: Load) -> bytes | Lost:
        """Load a copy in the child that is there for that, one at a time, and let go of it."""
        copy = load.model.name, load.copy
        self._to_try += 1
        try:
            async with self._trial:
                child = self._trying
                if child is None or child.is_over:
                    child = self._trying = await self._spawned()
                future = child.load(copy, self._package(load.model))
                found = await child.within(self._load_s, copy, future, self._late)
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
        futures = [] if child is None else child.predict([*asked])
        for place, part in enumerate(parts):
            found: bytes | Lost = Lost("")
            if child is not None:
                patience_s = part.patience_us / 1e6
                late = f"the model did not answer {len(part.rows)} rows within {patience_s:.1f} s"
                found = await child.within(patience_s, copies[place], futures[place], late)
            self._tell(part, found, self._now_us() - started_us)

    def _tell(self, predict: Predict, found: bytes | Lost, took_us: int) -> None:
        rows = len(predict.rows)
        if isinstance(found, Lost):
            failed = Predicted.failed(rows, found.fault or "the models' process ended")
            results = failed if found.fault else _innocent(failed)
            self._events.predicted(predict, Ran(results, took_us, is_lost=True))
            return
        try:
            results = frames.unpack(found, rows)
        except OutputError as error:
            results = Predicted.failed(rows, str(error))
        if results.fault is not None:
            _log.warning("model %s failed on a batch of %d rows: %s", predict.model, rows, discreet(results.fault))
        self._events.predicted(predict, Ran(results, took_us))

    async def _begin(self) -> None:
        """Start the child before it is needed: that takes a second, which is no query's."""
        try:
            await self._started()
        except OSError as error:
            _log.warning("%s; the next model that is loaded starts it", _not_started(error))

    async def _started(self) -> ModelsProcess:
        async with self._starting:
            if self._child is None or self._child.is_over:
                self._child = await self._spawned()
                self._starts += 1
            return self._child

    async def _spawned(self) -> ModelsProcess:
        child = await ModelsProcess.started(self._arguments, _ENDED, self._environment, self._proved)
        self._do(self._read(child))
        return child

    async def _read(self, child: ModelsProcess) -> None:
        """Hand out answers until the child ends; if it was idle then, one of its models says that all are lost."""
        if await child.read() and child.holds:
            load = next(iter(child.holds.values()))
            self._events.loaded(Loaded.of(load, is_lost=True))


def _not_started(error: OSError) -> str:
    return f"the models' process cannot be started: {error}"


def _innocent(failed: Predicted) -> Predicted:
    """Return failed rows for which nobody here is to blame."""
    return Predicted(failed.outcomes, failed.answers)
