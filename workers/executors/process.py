"""Predicts in a child process. If the model hangs or crashes, the child is replaced, and only its batch fails."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from streams.operators.contract import Predicted
from workers.errors import DeadlyError, OutputError
from workers.executors import frames
from workers.executors.models_process import CHILD, Lost, ModelsProcess
from workers.executors.thread import LOAD_S, OffLoopExecutor, Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input
    from workers.executors.frames import Package
    from workers.executors.models_process import CopyName
    from workers.packages.autotune import Choice

_log = logging.getLogger(__name__)

_COPY: Final[CopyName] = ("", 0)  # the only one that the child holds
_LOADING: Final = (
    "the model's process ended while it was loading ({}): the worker's log has its output, with the reason"
)
_DIED: Final = "the model's process died"


class ProcessExecutor(OffLoopExecutor):
    """Runs the model in a process of one model; kills and replaces it when it hangs or dies."""

    def __init__(
        self,
        package: Package,
        now_us: Callable[[], int],
        *,
        load_s: float = LOAD_S,
        memory_bytes: int = 0,
        chose: Callable[[Choice], None] = lambda _: None,
    ) -> None:
        """Nothing runs before `start`.

        Args:
            package: what is loaded.
            now_us: the clock that batches are timed by.
            load_s: how long one attempt to load may take.
            memory_bytes: that the child may take; 0 = as much as there is.
            chose: called with what was chosen of the package's forms, where it has several.
        """
        self._package = package
        self._chose = chose
        self._now_us = now_us
        self._load_s = load_s
        self._arguments = (*CHILD, "--one", *[f"--memory={memory_bytes}"] * bool(memory_bytes))
        self._child: ModelsProcess | None = None
        self._reading: asyncio.Task[bool] | None = None

    @property
    def ready(self) -> bool:
        """Whether there is a child with its model loaded."""
        return self._child is not None

    async def start(self) -> None:
        """Start a child and wait until its model is loaded, unless there is one.

        Raises:
            PackageError: it cannot be loaded.
            DeadlyError: loading it ended the child, or hung, so that the child was killed.
        """
        if self._child is not None:
            return
        try:
            await self._load()
        except BaseException:
            await self.stop()
            raise

    async def _load(self) -> None:
        child = self._child = await ModelsProcess.started(self._arguments, _LOADING)
        self._reading = asyncio.create_task(child.read())
        late = (
            f"the model was not loaded within {self._load_s:g} s: its process was killed; set `worker.load_s` higher if"
            " it needs longer"
        )
        found = await child.within(self._load_s, _COPY, child.load(_COPY, self._package), late)
        if isinstance(found, Lost):
            raise DeadlyError(found.fault)
        choice = frames.unpack_loaded(found).choice
        child.ended = _DIED
        if choice is not None:
            _log.info("%s runs under %s", self._package.folder, choice)
            self._chose(choice)

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict in the child; a batch that kills or hangs it fails, and the next `start` makes a new child."""
        started_us = self._now_us()
        predicted = await self._ask(inputs, patience_s)
        return Timed(predicted, self._now_us() - started_us)

    async def _ask(self, inputs: Sequence[Input], patience_s: float) -> Predicted:
        assert self._child is not None, "start() comes first"
        rows, (answer,) = len(inputs), self._child.predict([(_COPY, inputs)])
        late = f"the model did not answer {rows} rows within {patience_s:.1f} s"
        found = await self._child.within(patience_s, _COPY, answer, late)
        fault = _DIED
        if isinstance(found, Lost):
            fault = found.fault or fault
        else:
            try:
                return frames.unpack(found, rows)
            except OutputError as error:
                fault = str(error)
        await self.stop()
        return Predicted.failed(rows, fault)

    async def stop(self) -> None:
        """Kill the child."""
        child, self._child = self._child, None
        reading, self._reading = self._reading, None
        if child is None:
            return
        child.end(None, _DIED)
        await child.process.wait()
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
