"""A child process that holds models, as who has started it sees it: what it was asked, and how it ends.

    load, ask, let_go ─▶ a frame each ─▶ `workers.executors.child` ─▶ answers by number
                                             └─ ends, or hangs and is killed ─▶ `Lost`, with who is to blame

A copy of a model is to blame if it hung, or if it was at work when the process ended. Of a batch of several models it
is the first one without an answer. One that has answered before is not to blame where another one was at work that has
not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from workers.executors import frames
from workers.executors.frames import BESIDE, LOAD, NUMBER, PREDICT, UNLOAD

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Mapping, Sequence

    from streams.operators.contract import Load
    from workers.executors.frames import Package

# -P: the child looks for modules in the current folder last, so no file there can shadow a module of ours.
CHILD: Final = ("-P", "-m", "workers.executors.child")
CopyName: TypeAlias = "tuple[str, int]"  # a model's, and which of its copies


class Lost(NamedTuple):
    """Why there is no answer: the fault of the model that was asked; "" = another one's."""

    fault: str


class _Call(NamedTuple):
    """What a copy was asked: the number of the first part of its batch, the answer to come, and what for."""

    copy: CopyName
    batch: int
    future: asyncio.Future[bytes | Lost]
    what: str


class ModelsProcess:
    """A process, and what it has been asked.

    Attributes:
        process: that was started.
        ended: says that it has ended at work; `{}` stands for how.
        holds: the copies that it was given, with what they were loaded by.
        is_over: whether nobody answers any more.
    """

    def __init__(self, process: Process, ended: str, proved: set[CopyName] | None = None) -> None:
        """Nothing is asked yet; `proved` are the copies that have answered, also in another process."""
        self.process = process
        self.ended = ended
        self.holds: dict[CopyName, Load] = {}
        self.is_over = False
        self._proved = set() if proved is None else proved
        self._asked: dict[int, _Call] = {}
        self._numbers = count()

    @classmethod
    async def started(
        cls,
        arguments: Sequence[str],
        ended: str,
        environment: Mapping[str, str] | None = None,
        proved: set[CopyName] | None = None,
    ) -> ModelsProcess:
        """Start one; somebody has to `read` it.

        Args:
            arguments: of Python: `CHILD`, and those of the child.
            ended: see above.
            environment: variables beside those of this process.
            proved: see `__init__`.

        Raises:
            OSError: it cannot be started.
        """
        pipe, its = asyncio.subprocess.PIPE, {**os.environ, **(environment or {})}
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe, env=its)
        return cls(process, ended, proved)

    def load(self, copy: CopyName, package: Package) -> asyncio.Future[bytes | Lost]:
        """Load a copy, beside those that are still being loaded; returns the answer to come."""
        is_alone = all(asked.what == PREDICT for asked in self._asked.values())
        (future,) = self._ask(LOAD if is_alone else BESIDE, [(copy, package)])
        return future

    def predict(self, parts: Sequence[tuple[CopyName, object]]) -> list[asyncio.Future[bytes | Lost]]:
        """Predict a batch: the rows of each copy; returns the answers to come."""
        return self._ask(PREDICT, parts)

    def let_go(self, copy: CopyName) -> None:
        """Unload a copy, which is not answered."""
        self._write(UNLOAD, [(0, copy, None)])

    async def within(
        self, patience_s: float, copy: CopyName, answer: asyncio.Future[bytes | Lost], late: str
    ) -> bytes | Lost:
        """Wait for an answer; if there is none in time the copy hangs, and the process is killed."""
        done, _ = await asyncio.wait([answer], timeout=patience_s)
        if not done:
            self.end(copy, late)
        return await answer

    async def read(self) -> bool:
        """Hand out answers until the process ends; tell whether it was idle then, and nobody has ended it."""
        stream = self.process.stdout
        assert stream is not None, "it is a pipe"
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = frames.HEADER.unpack(await stream.readexactly(frames.HEADER.size))
                body = await stream.readexactly(length)
                asked = self._asked.pop(NUMBER.unpack_from(body)[0], None)
                if asked is not None and not asked.future.done():
                    asked.future.set_result(body[NUMBER.size :])
                    if asked.what == PREDICT and asked.copy in self.holds:
                        self._proved.add(asked.copy)
        was_idle = not self._asked and not self.is_over
        kill(self.process)
        self.end(None, self.ended.format(how_ended(await self.process.wait())))
        return was_idle

    def end(self, guilty: CopyName | None, fault: str) -> None:
        """Let everything that was asked fail; a guilty copy is to blame, else whoever is suspected."""
        self.is_over = True
        kill(self.process)
        at_work = [asked for asked in self._asked.values() if not asked.future.done()]
        suspects = self._suspects(at_work)
        for asked in at_work:
            is_to_blame = asked.copy == guilty if guilty is not None else asked in suspects
            asked.future.set_result(Lost(fault if is_to_blame else ""))

    def _ask(self, what: str, parts: Sequence[tuple[CopyName, object]]) -> list[asyncio.Future[bytes | Lost]]:
        """Ask for something of each copy, all in one; returns the answers to come."""
        numbers = [next(self._numbers) for _ in parts]
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[bytes | Lost]] = [loop.create_future() for _ in parts]
        if self.is_over:
            for future in futures:
                future.set_result(Lost(""))
            return futures
        for number, (copy, _), future in zip(numbers, parts, futures, strict=True):
            self._asked[number] = _Call(copy, numbers[0], future, what)
            future.add_done_callback(partial(self._forget, number))
        self._write(what, [(number, copy, argument) for number, (copy, argument) in zip(numbers, parts, strict=True)])
        return futures

    def _suspects(self, at_work: Sequence[_Call]) -> list[_Call]:
        """Return the first of each batch at work: those that have never answered, if there are any."""
        first: dict[int, _Call] = {}
        for asked in at_work:
            first.setdefault(asked.batch, asked)
        return [asked for asked in first.values() if asked.copy not in self._proved] or [*first.values()]

    def _write(self, what: str, parts: Sequence[tuple[int, CopyName, object]]) -> None:
        """Write a frame; a child that cannot read it has ended, which the reader of its answers notices."""
        assert self.process.stdin is not None, "it is a pipe"
        body = pickle.dumps((what, parts), protocol=5)
        with contextlib.suppress(ConnectionError, RuntimeError):
            self.process.stdin.write(frames.HEADER.pack(len(body)) + body)

    def _forget(self, number: int, _future: asyncio.Future[bytes | Lost]) -> None:
        self._asked.pop(number, None)


def kill(child: Process) -> None:
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
