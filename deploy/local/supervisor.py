"""Keeps a set of child processes running, and leaves none behind.

    launch ──▶ alive ──▶ dead ── backoff ──▶ launch …            until `stop`

`step` is the whole logic and reads the given clock, so tests drive it. A thread calls it ten times a second. Children
are addressed by the pid they were started with, never by name.
"""

from __future__ import annotations

import logging
import textwrap
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from deploy.local import logs
from deploy.local.process import ChildProcess, ending, spawn, stop_all
from streams.runtime.metrics import LAST_EXIT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

_LOG = logging.getLogger(__name__)
_STEP_S = 0.1


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits `first_s`, then twice as long each time up to `longest_s`; forgets deaths after `steady_s` alive."""

    first_s: float = 0.2
    longest_s: float = 10.0
    steady_s: float = 30.0

    def deaths(self, before: int, alive_s: float) -> int:
        """Count one more death in a row, or the first if the process had lived for `steady_s`."""
        return 1 if alive_s >= self.steady_s else before + 1

    def delay_s(self, deaths: int) -> float:
        """Return the wait after the `deaths`-th death in a row (1 is the first)."""
        # The exponent is bounded: 2**64 of anything is above any cap, and 2**10000 is no float.
        return min(self.longest_s, self.first_s * 2.0 ** min(deaths - 1, 64))


@dataclass(frozen=True, slots=True)
class Child:
    """What to run: a unique name, the command line, its log file, and variables on top of this process's own."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """What has become of a child: `pid` while alive, the exit code of its last death, how often it was restarted."""

    name: str
    pid: int | None
    alive: bool
    restarts: int
    exit_code: int | None


class Launch(Protocol):
    """Starts a command; `process.spawn` outside tests."""

    def __call__(self, argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> ChildProcess:
        """Return the running process."""
        ...


@dataclass(slots=True)
class _Slot:
    """One child's place: its process if it has one, and when to start the next."""

    child: Child
    process: ChildProcess | None = None
    started_s: float = 0.0
    due_s: float = 0.0
    deaths: int = 0
    launches: int = 0
    exit_code: int | None = None
    log_bytes: int = 0  # that its log held when it was started

    def step(self, now_s: float, launch: Launch, backoff: Backoff) -> None:
        """Notice a death, or start what is due."""
        if self.process is not None and (code := self.process.poll()) is not None:
            self._died(self.process, code, now_s, backoff)
        if self.process is None and now_s >= self.due_s:
            self._start(now_s, launch, backoff)

    def status(self) -> ChildStatus:
        """Describe the child now."""
        alive = self.process is not None and self.process.poll() is None
        pid = self.process.pid if alive and self.process is not None else None
        code = self.process.returncode if self.process is not None and not alive else self.exit_code
        return ChildStatus(self.child.name, pid, alive, max(0, self.launches - 1), code)

    def _start(self, now_s: float, launch: Launch, backoff: Backoff) -> None:
        self.started_s = now_s
        self.launches += 1
        self.log_bytes = logs.size(self.child.log)
        try:
            self.process = launch(self.child.argv, log=self.child.log, env=self._env())
        except OSError as error:
            self._retry_later(f"could not be started: {error}", now_s, backoff)

    def _env(self) -> Mapping[str, str]:
        """Return the child's variables, with how it ended before: its reports tell that on."""
        told = {} if self.exit_code is None else {LAST_EXIT_VARIABLE: str(self.exit_code)}
        return {**self.child.env, **told}

    def _died(self, process: ChildProcess, code: int, now_s: float, backoff: Backoff) -> None:
        process.kill_group()  # what it had started itself must not outlive it
        self.process, self.exit_code = None, code
        self._retry_later(f"(pid {process.pid}) {ending(code)}", now_s, backoff)

    def _retry_later(self, what: str, now_s: float, backoff: Backoff) -> None:
        self.deaths = backoff.deaths(self.deaths, now_s - self.started_s)
        delay_s = backoff.delay_s(self.deaths)
        self.due_s = now_s + delay_s
        said = logs.tail(self.child.log, since=self.log_bytes) if self._is_telling() else ""
        story = f"; its last lines:\n{textwrap.indent(said, '  ')}" if said else ""
        log = self.child.log
        _LOG.warning("%s %s; starts again in %.1f s (log %s)%s", self.child.name, what, delay_s, log, story)

    def _is_telling(self) -> bool:
        """Whether its log should say why it died: it ended by itself, or was killed (out of memory?) again."""
        return (self.exit_code or 0) > 0 or self.deaths > 1


class Supervisor:
    """Starts children, restarts those that die, stops them all. Its methods may be called from any thread."""

    def __init__(
        self,
        children: Sequence[Child],
        *,
        grace_s: float = 10.0,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        launch: Launch = spawn,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            children: the processes to run; their names are unique.
            grace_s: Seconds between SIGTERM and SIGKILL when stopping.
            backoff: How long to wait before each restart.
            clock: Seconds, monotonic.
            launch: How a command becomes a process.

        Raises:
            ValueError: Two children have the same name.
        """
        self._slots = {child.name: _Slot(child) for child in children}
        if len(self._slots) != len(children):
            raise ValueError("Two children have the same name.")
        self._grace_s = grace_s
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._launch = launch
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Start every child, and from now on restart those that die."""
        self.step()
        thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        thread.start()
        self._thread = thread  # only now: `stop` in another thread joins it, which needs a thread that runs
        return self

    def step(self) -> None:
        """Look at every child once: notice deaths, start what is due."""
        with self._lock:
            for slot in self._slots.values():
                if not self._stopping.is_set():
                    slot.step(self._clock(), self._launch, self._backoff)

    def add(self, child: Child) -> None:
        """Start one more child, and restart it as the others.

        Raises:
            ValueError: There is one of its name.
        """
        with self._lock:
            if child.name in self._slots:
                raise ValueError(f"There is a child {child.name} already.")
            self._slots[child.name] = slot = _Slot(child)
            if not self._stopping.is_set():
                slot.step(self._clock(), self._launch, self._backoff)

    def remove(self, name: str, grace_s: float | None = None) -> Child:
        """Stop one child for good; returns it when it is gone, so that it can be added again.

        Args:
            name: of the child.
            grace_s: Seconds between SIGTERM and SIGKILL, 0 = SIGKILL at once; by default those of all children.

        Raises:
            KeyError: There is none of this name.
        """
        with self._lock:
            slot = self._slots.pop(name)
        if slot.process is not None:
            stop_all([slot.process], self._grace_s if grace_s is None else grace_s)
        return slot.child

    def stop(self) -> None:
        """Stop every child for good; returns when none is left."""
        self._stopping.set()
        with self._lock:
            stop_all([slot.process for slot in self._slots.values() if slot.process is not None], self._grace_s)
        if self._thread is not None:
            self._thread.join()

    def status(self) -> tuple[ChildStatus, ...]:
        """Describe every child, in the order given."""
        with self._lock:
            return tuple(slot.status() for slot in self._slots.values())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self) -> None:
        while not self._stopping.wait(_STEP_S):
            self.step()
