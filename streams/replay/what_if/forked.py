"""Work in a copy of this process, beside it: the copy has all that is in memory here, and sends its result back."""

from __future__ import annotations

from multiprocessing import get_all_start_methods, get_context
from signal import SIGKILL
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

T = TypeVar("T")


class CopyEndedError(RuntimeError):
    """The copy ended without a result: killed, most likely for want of memory."""


class Copied(Generic[T]):
    """A function's result, worked out in a copy; where a process cannot copy itself, here and when it is asked for.

    Args:
        work: the function.
        is_copied: false = work here, too: threads that run beside the one that calls are not in a copy, but the locks
            that they hold are.
    """

    def __init__(self, work: Callable[[], T], *, is_copied: bool = True) -> None:
        self._work = work
        self._source: Connection | None = None
        if not is_copied or "fork" not in get_all_start_methods():
            return
        context = get_context("fork")
        self._source, sink = context.Pipe(duplex=False)
        self._process = context.Process(target=_send, args=(work, sink), daemon=True)
        self._process.start()
        sink.close()

    def result(self) -> T:
        """Wait for the copy; return its result, or raise what it has raised.

        Raises:
            CopyEndedError: it was killed.
        """
        if self._source is None:
            return self._work()
        try:
            value, fault = self._source.recv()
        except EOFError:
            self._process.join()
            raise CopyEndedError(_ending(self._process.exitcode)) from None
        self._process.join()
        if fault is not None:
            raise fault
        return value  # type: ignore[no-any-return] # what `_send` has sent


def _ending(code: int | None) -> str:
    """Say how a copy ended before it had a result, and what to do."""
    if code == -SIGKILL:
        return (
            "a copy of this process was killed, most likely for want of memory: free memory, or replay a shorter trace"
        )
    return f"a copy of this process ended with status {code} before it had a result; its own error is above"


def _send(work: Callable[[], T], sink: Connection) -> None:
    try:
        found: tuple[T | None, Exception | None] = work(), None
    except Exception as fault:  # noqa: BLE001 - of the copy; it is raised in the process that waits
        found = None, fault
    sink.send(found)
