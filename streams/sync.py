"""The client without `async`, for scripts: a thread of its own runs the event loop.

with SyncClient("127.0.0.1:9092") as client:
    prediction = client.predict("digits", row)
    client.feedback(prediction, label=3)
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from streams.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Self


_T = TypeVar("_T")
_P = ParamSpec("_P")


def _waiting(
    ask: Callable[Concatenate[Client, _P], Coroutine[object, None, _T]],
) -> Callable[Concatenate[SyncClient, _P], _T]:
    """Return a method of the client that waits, with the arguments, errors and words of one that is awaited."""

    @functools.wraps(ask)
    def wait(self: SyncClient, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return self._do(ask(self._client, *arguments, **named))

    return wait


class SyncClient:
    """A client of one deployment whose calls return when they are done; any number of threads may call it.

    Args:
        arguments: of `Client`, as all others.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._client = Client(*arguments, **named)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None  # one for each `with`
        self._process = os.getpid()

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            RuntimeError: it is connected already.
        """
        if self._thread is not None:
            raise RuntimeError("this client is connected already; use it inside its `with`, from any thread")
        is_serving, self._process = threading.Event(), os.getpid()
        self._thread = threading.Thread(target=self._serve, args=(is_serving,), name="skysail.client", daemon=True)
        self._thread.start()
        is_serving.wait()
        try:
            self._do(self._client.connect())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is pending and disconnect."""
        try:
            self._do(self._client.close())
        finally:
            self._end()

    predict = _waiting(Client.predict)
    feedback = _waiting(Client.feedback)
    set_features = _waiting(Client.set_features)

    def _do(self, job: Coroutine[object, None, _T]) -> _T:
        if self._thread is not None and self._process != os.getpid():
            job.close()
            raise RuntimeError("this client was connected in another process: connect after the fork")
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            job.close()
            raise RuntimeError("this client is not connected; use it inside `with SyncClient(...)`")
        return asyncio.run_coroutine_threadsafe(job, self._loop).result()

    def _serve(self, is_serving: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(is_serving.set)
            self._loop.run_forever()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if self._loop is None or thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()
