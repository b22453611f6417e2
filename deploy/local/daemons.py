"""Servers that outlive the command that started them: what `skysail kafka start` leaves running.

A small file remembers the process by pid and start time, so that a reused pid is never stopped.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import psutil

from deploy.config.folder import private
from deploy.errors import StartError, UsageError
from deploy.local.logs import tail
from streams.trace import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

POLL_S = 0.1
GRACE_S = 15.0
LOG_LINES = 15
_STATE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that was started earlier."""

    pid: int
    started: float  # as the system tells it; pids are given again
    address: str


def find(state: Path) -> RunningServer | None:
    """Return the server that the file remembers, if it still runs."""
    try:
        running = RunningServer(**json.loads(plain.content(state, _STATE_BYTES)))
        alive = psutil.Process(running.pid).create_time() == running.started
    except (OSError, ValueError, TypeError, OverflowError, RecursionError, psutil.Error):
        return None
    return running if alive else None


def start(
    argv: Sequence[str],
    state: Path,
    address: str,
    taken: Callable[[], bool],
    ready: Callable[[], bool],
    timeout_s: float = 120.0,
) -> RunningServer:
    """Start a server in a session of its own and wait until it answers.

    Args:
        argv: its command line.
        state: the file that remembers it; its output goes beside it.
        address: where it will listen.
        taken: whether somebody listens there.
        ready: whether it answers.
        timeout_s: how long that may take.

    Raises:
        UsageError: one is running already, started from here or not.
        StartError: it ended, or did not answer in time; its last lines are in the message.
    """
    if (running := find(state)) is not None:
        message = f"one is running already at {running.address} (process {running.pid}); stop it first"
        raise UsageError(message)
    if taken():  # else that would be taken for the one that is started here, and this one's end not be seen
        message = f"something answers at {address} already, which was not started from this folder; use another --port"
        raise UsageError(message)
    private(state.parent)
    log = state.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, umask=0o077
        )
    with ExitStack() as undo:
        undo.callback(process.wait)
        undo.callback(process.terminate)
        _await_ready(process, ready, log, timeout_s)
        undo.pop_all()
    running = RunningServer(process.pid, psutil.Process(process.pid).create_time(), address)
    state.write_text(json.dumps(asdict(running)), encoding="utf-8")
    return running


def _await_ready(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            what = "ended while starting" if process.poll() is not None else f"did not answer within {timeout_s:g} s"
            raise StartError(f"it {what}; its last lines, from {log}:\n{tail(log, LOG_LINES)}")
        time.sleep(POLL_S)


def stop(state: Path) -> RunningServer | None:
    """Stop what the file remembers; returns it, or None if nothing runs."""
    running = find(state)
    if running is not None:
        process = psutil.Process(running.pid)
        process.terminate()
        try:
            process.wait(GRACE_S)
        except psutil.TimeoutExpired:
            process.kill()
    state.unlink(missing_ok=True)
    return running
