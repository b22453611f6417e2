"""Work done in a copy of this process, which ends with it: whatever it loads and keeps is gone then.

The first questions to a broker load librdkafka and its threads, 9 MB that a role would hold for ever and never use.
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
    """Return what `work` returns, or raise what it raises; both must be something that can be pickled.

    To be called before threads are started: a copy has none of them, and would wait for what they hold. The copy ends
    when this process does.

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
        raise DeployError(f"the process that looks at the broker was stopped (exit code {code})")
    result, fault = pickle.loads(answer)  # noqa: S301 - our own copy wrote it
    if fault is not None:
        raise fault
    return result  # type: ignore[no-any-return]  # what `work` returned


def _ended(pid: int) -> int:
    """Wait for the copy; returns its exit code, 0 where whoever started this process wants no word of children."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0


def _copied(work: Callable[[], object], there: socket.socket) -> NoReturn:
    """Send what comes of the work; nothing that this process has set up for its own end is run."""
    try:
        threading.Thread(target=_end_with, args=(there,), daemon=True).start()
        there.sendall(_outcome(work))
    finally:
        os._exit(1)


def _end_with(there: socket.socket) -> None:
    """End when nobody waits any more; nothing is ever sent here."""
    there.recv(1)
    os._exit(1)


def _outcome(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((work(), None))
    except BaseException as error:  # noqa: BLE001 - whoever waits for the work decides
        return pickle.dumps((None, _sendable(error)))


def _sendable(error: BaseException) -> BaseException:
    """Return the error, or one that says the same if it does not survive being sent."""
    story = f"In the process that was copied for it:\n{traceback.format_exc()}"
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its class may raise anything
        error = DeployError(f"{type(error).__name__}: {error}")
    error.add_note(story)
    return error
