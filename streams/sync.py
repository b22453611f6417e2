"""The client without `async`, for scripts: a thread of its own runs the event loop.

with SyncClient("127.0.0.1:9092") as client:
    prediction = client.predict("digits", row)
    client.feedback(prediction, label=3)
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from streams.client import Client

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType
    from typing import Self

    from schemas.inputs import Row
    from schemas.records import Prediction

_T = TypeVar("_T")


class SyncClient:
    """A client of one deployment whose calls return when they are done; any number of threads may call it.

    Args:
        arguments: of `Client`, as all others.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._client = Client(*arguments, **named)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None  # one for each `with`

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            RuntimeError: it is connected already.
        """
        if self._thread is not None:
            raise RuntimeError("this client is connected already; use it inside its `with`, from any thread")
        is_serving = threading.Event()
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

    def predict(self, application: str, x: Row, **options: Any) -> Prediction:
        """Ask one query and wait for its prediction; options and errors as of `Client.predict`."""
        return self._do(self._client.predict(application, x, **options))

    def feedback(self, prediction: Prediction | str, **truth: Any) -> None:
        """Report the truth; arguments and errors as of `Client.feedback`."""
        self._do(self._client.feedback(prediction, **truth))

    def _do(self, job: Coroutine[object, None, _T]) -> _T:
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
