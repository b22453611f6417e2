"""Runs work in a copy of this process. When the copy ends, everything that it loaded is gone.

The first questions to a broker load librdkafka and its threads: 9 MB that a role would keep and never use.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import traceback
from typing import TYPE_CHECKING, NoReturn, TypeVar

from deploy.errors import DeployError

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")

_CHUNK_BYTES = 1 << 16


def aside(work: Callable[[], R]) -> R:
    """Return the result of `work`, or raise its error; both must be picklable.

    Call it before threads start: a copy has no threads, and would wait for their locks. The copy ends when this process
    does.

    Raises:
        DeployError: the copy was killed.
    """
    here, there = socket.socketpair()
    pid = os.fork()
    if not pid:
        here.close()
        _copied(work, there)
    there.close()
    try:
        with here:
            answer = b"".join(iter(lambda: here.recv(_CHUNK_BYTES), b""))
    finally:
        code = _ended(pid)
    if not answer:
        raise DeployError(f"the process that checks the broker was stopped (exit code {code})")
    result, fault = pickle.loads(answer)  # noqa: S301 - our own copy wrote it
    if fault is not None:
        raise fault
    return result  # type: ignore[no-any-return]  # what `work` returned


def _ended(pid: int) -> int:
    """Wait for the copy and return its exit code; 0 if our parent ignores children."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0


def _copied(work: Callable[[], object], there: socket.socket) -> NoReturn:
    """Send the outcome of the work; exit handlers of this process do not run."""
    try:
        threading.Thread(target=_end_with, args=(there,), daemon=True).start()
        there.sendall(_outcome(work))
    finally:
        os._exit(1)


def _end_with(there: socket.socket) -> None:
    """End when the other side closes; nothing is ever sent here."""
    there.recv(1)
    os._exit(1)


def _outcome(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((work(), None))
    except BaseException as error:  # noqa: BLE001 - the caller decides
        return pickle.dumps((None, _sendable(error)))


def _sendable(error: BaseException) -> BaseException:
    """Return the error, or an equal message if it cannot be pickled."""
    story = f"In the process that was copied for it:\n{traceback.format_exc()}"
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its class may raise anything
        error = DeployError(f"{type(error).__name__}: {error}")
    error.add_note(story)
    return error
