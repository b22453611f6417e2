"""Child processes that cannot be left behind.

Each child leads a session of its own, so Ctrl-C in the terminal does not reach it before we stop it. It is tied to this
process (`die_with_parent.py`) and writes to a log file. It is stopped by pid: SIGTERM, a grace period, then SIGKILL for
its group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from deploy.errors import StartError
from deploy.local.logs import tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_TETHER = str(Path(__file__).with_name("die_with_parent.py"))
_POLL_S = 0.02


class ChildProcess(subprocess.Popen[bytes]):
    """A child that leads its own session, hence its own process group."""

    def kill_group(self) -> None:
        """SIGKILL the child and whatever it started, and reap the child; harmless if it has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, only a zombie is left
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


def spawn(argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, umask: int = -1) -> ChildProcess:
    """Start a program in its own session, its output appended to `log`, tied to the life of this process.

    Args:
        argv: The program and its arguments; never through a shell.
        log: File for stdout and stderr; its folder is created.
        env: Variables on top of this process's own.
        umask: Of the child; by default this process's own.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    full = tethered(argv)

    def start() -> ChildProcess:
        with log.open("ab") as sink:
            return ChildProcess(
                full,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                umask=umask,
            )

    # A thread that ends takes the children it started with it (PR_SET_PDEATHSIG is about the thread, not the process),
    # so one thread that never ends starts them all.
    future: Future[ChildProcess] = Future()
    _spawner(os.getpid()).put((start, future))
    return future.result()


def tethered(argv: Sequence[str]) -> list[str]:
    """Return how a program is started so that it is killed when the thread that starts it ends."""
    return [sys.executable, "-I", "-S", _TETHER, str(os.getpid()), *argv]


def stop(process: ChildProcess, grace_s: float = 10.0) -> int:
    """Stop one child and whatever it started; return its exit code."""
    stop_all([process], grace_s)
    return process.wait()


def ending(code: int) -> str:
    """Say how a child ended, by its exit code; below 0 it is the signal that killed it."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def stop_all(processes: Iterable[ChildProcess], grace_s: float = 10.0) -> None:
    """Stop children together: SIGTERM to each, then, at the latest after `grace_s`, SIGKILL to each one's group.

    Without any grace they are killed at once.
    """
    processes = list(processes)
    try:
        for process in processes if grace_s > 0 else ():
            process.terminate()
        deadline = time.monotonic() + grace_s
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            process.kill_group()


def wait_ready(process: ChildProcess, ready: Callable[[], bool], *, name: str, log: Path, timeout_s: float) -> None:
    """Wait until `ready()`.

    Raises:
        StartError: The process ended, or was not ready in time; the last lines of its log are in the message.
    """
    deadline = time.monotonic() + timeout_s
    while not ready():
        if process.poll() is not None:
            raise StartError(f"{name} {ending(process.returncode)} while starting.\n{tail(log)}")
        if time.monotonic() > deadline:
            raise StartError(f"{name} was not ready after {timeout_s:g} s. Its log is {log}.\n{tail(log)}")
        time.sleep(_POLL_S)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port nobody listens on now; it may be taken before it is used, so use it soon."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether a TCP connection to the port is accepted."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Make SIGTERM unwind like Ctrl-C, so that `with` blocks stop what they started. Main thread only."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


_Request: TypeAlias = "tuple[Callable[[], ChildProcess], Future[ChildProcess]]"


@cache
def _spawner(pid: int) -> SimpleQueue[_Request]:  # keyed by pid: a forked child needs a thread of its own
    requests: SimpleQueue[_Request] = SimpleQueue()
    threading.Thread(target=_serve, args=(requests,), name=f"spawner-{pid}", daemon=True).start()
    return requests


def _serve(requests: SimpleQueue[_Request]) -> NoReturn:
    while True:
        start, future = requests.get()
        try:
            future.set_result(start())
        except OSError as error:
            future.set_exception(error)
