"""A thread that runs an event loop, for whoever calls what is asynchronous from a script."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines for any number of other threads; it may be started again once it has stopped.

    Args:
        what: whose it is, for errors, e.g. `client`.
        use: how it is connected, for errors.
    """

    def __init__(self, what: str, use: str) -> None:
        self._what, self._use = what, use
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None  # one for each `with`
        self._process = os.getpid()

    def start(self) -> None:
        """Begin to run.

        Raises:
            RuntimeError: it runs already.
        """
        if self._thread is not None:
            raise RuntimeError(f"this {self._what} is connected already; use it inside its `with`, from any thread")
        is_serving, self._process = threading.Event(), os.getpid()
        name = f"skysail.{self._what}"
        self._thread = threading.Thread(target=self._serve, args=(is_serving,), name=name, daemon=True)
        self._thread.start()
        is_serving.wait()

    def do(self, job: Coroutine[object, None, _T]) -> _T:
        """Run a coroutine and wait for what it returns or raises.

        Raises:
            RuntimeError: it does not run, or runs in another process.
        """
        if self._thread is not None and self._process != os.getpid():
            job.close()
            raise RuntimeError(f"this {self._what} was connected in another process: connect after the fork")
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            job.close()
            raise RuntimeError(f"this {self._what} is not connected; use it inside `{self._use}`")
        return asyncio.run_coroutine_threadsafe(job, self._loop).result()

    def stop(self) -> None:
        """End the loop and wait for its thread."""
        thread, self._thread = self._thread, None
        if self._loop is None or thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()

    def _serve(self, is_serving: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(is_serving.set)
            self._loop.run_forever()
