"""Predicts in a child process. If the model hangs or crashes, the child is replaced, and only its batch fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import signal
import sys
from dataclasses import astuple
from typing import TYPE_CHECKING

from streams.operators.contract import Predicted
from workers.errors import DeadlyError, OutputError
from workers.executors import frames
from workers.executors.thread import LOAD_S, OffLoopExecutor, Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from schemas.records import Input
    from workers.inputs.references import References
    from workers.packages.autotune import Choice

_log = logging.getLogger(__name__)


class ProcessExecutor(OffLoopExecutor):
    """Runs the model in `python -m workers.executors.child`; kills and replaces it when it hangs or dies."""

    def __init__(
        self,
        folder: Path | str,
        now_us: Callable[[], int],
        *,
        digest: str = "",
        threads: int = 1,
        allow_pickle: bool = False,
        code: tuple[str, ...] = (),
        root: str = "",
        load_s: float = LOAD_S,
        batch_sizes: tuple[int, ...] = (),
        measured_sizes: tuple[int, ...] = (),
        memory_bytes: int = 0,
        references: References | None = None,
        chose: Callable[[Choice], None] = lambda _: None,
    ) -> None:
        """Nothing runs before `start`.

        Args:
            folder: of the package; `digest`, `threads` and `allow_pickle` are as in `load_package`, too.
            now_us: the clock that batches are timed by.
            digest: that the package must have.
            threads: for the arithmetic of one batch.
            allow_pickle: whether pickles are loaded.
            code: modules and packages that the package may name; none = any.
            root: the folder that packages lie in; empty = any.
            load_s: how long one attempt to load may take.
            batch_sizes: rows of the batches that the model may be given; none = any.
            measured_sizes: rows of the batches by which the package's forms are timed; none = the usual ones.
            memory_bytes: that the child may take; 0 = as much as there is.
            references: what the child may read; None = nothing.
            chose: called with what was chosen of the package's forms, where it has several.
        """
        self._folder = folder
        self._chose = chose
        self._now_us = now_us
        self._load_s = load_s
        flags = ["--allow-pickle"] if allow_pickle else []
        if root:
            flags.append(f"--root={root}")
        if code:
            flags.append("--code=" + ",".join(code))
        if batch_sizes:
            flags.append("--sizes=" + ",".join(map(str, batch_sizes)))
        if measured_sizes:
            flags.append("--measured=" + ",".join(map(str, measured_sizes)))
        if memory_bytes:
            flags.append(f"--memory={memory_bytes}")
        if references is not None:
            flags.append("--references=" + json.dumps(astuple(references)))
        # -P: the child looks for modules in the current folder last, so no file there can shadow a module of ours.
        self._arguments = ("-P", "-m", "workers.executors.child", str(folder), digest, str(threads), *flags)
        self._child: asyncio.subprocess.Process | None = None

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
            async with asyncio.timeout(self._load_s):
                await self._load()
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise DeadlyError(
                    f"the model was not loaded within {self._load_s:g} s: its process was killed; set `worker.load_s`"
                    " higher if it needs longer"
                ) from None
            raise

    async def _load(self) -> None:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, *self._arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        told = await self._read()
        if told is None:
            status = await self._child.wait()
            raise DeadlyError(
                f"the model's process ended while it was loading ({how_ended(status)}): the worker's log has its"
                " output, with the reason"
            )
        choice = frames.unpack_loaded(told)
        if choice is not None:
            _log.info("%s runs under %s", self._folder, choice)
            self._chose(choice)

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Predict in the child; a batch that kills or hangs it fails, and the next `start` makes a new child."""
        started_us = self._now_us()
        predicted = await self._ask(inputs, patience_s)
        return Timed(predicted, self._now_us() - started_us)

    async def _ask(self, inputs: Sequence[Input], patience_s: float) -> Predicted:
        assert self._child is not None and self._child.stdin is not None, "start() comes first"  # noqa: PT018 - one truth
        body = pickle.dumps(inputs, protocol=5)
        fault = f"the model did not answer {len(inputs)} rows within {patience_s:.1f} s"
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(patience_s):
                self._child.stdin.write(frames.HEADER.pack(len(body)) + body)
                await self._child.stdin.drain()
                frame = await self._read()
            try:
                return frames.unpack(frame, len(inputs))
            except OutputError as error:
                fault = str(error)
        await self.stop()
        return Predicted.failed(len(inputs), fault)

    async def stop(self) -> None:
        """Kill the child."""
        child, self._child = self._child, None
        if child is None:
            return
        kill(child)
        await child.wait()

    async def _read(self) -> bytes | None:
        """Read one frame; None when the child has closed its output."""
        assert self._child is not None and self._child.stdout is not None  # noqa: PT018 - one truth
        try:
            (length,) = frames.HEADER.unpack(await self._child.stdout.readexactly(frames.HEADER.size))
            return await self._child.stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            return None


def kill(child: asyncio.subprocess.Process) -> None:
    """Kill a child, if it has not ended by itself: then it keeps the status that it has ended with.

    Its own `kill` looks for that status first, and so takes it from asyncio, which waits for it in another thread and
    then says 255 (a third of 300 children that had just ended).
    """
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)


def how_ended(status: int) -> str:
    """Say how a process has ended."""
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return f"signal {-status}, {signal.Signals(-status).name}"
    return f"signal {-status}"
