"""The client without `async`, for scripts: a thread of its own runs the event loop.

with SyncClient("127.0.0.1:9092") as client:
    prediction = client.predict("digits", row)
    client.feedback(prediction, label=3)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from streams.client import Client
from streams.runtime.loop_thread import LoopThread

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
        return self._thread.do(ask(self._client, *arguments, **named))

    return wait


class SyncClient:
    """A client of one deployment whose calls return when they are done; any number of threads may call it.

    Args:
        arguments: of `Client`, as all others.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._client = Client(*arguments, **named)
        self._thread = LoopThread("client", "with SyncClient(...)")

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            RuntimeError: it is connected already.
        """
        self._thread.start()
        try:
            self._thread.do(self._client.connect())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is pending and disconnect."""
        try:
            self._thread.do(self._client.close())
        finally:
            self._thread.stop()

    predict = _waiting(Client.predict)
    predict_many = _waiting(Client.predict_many)
    feedback = _waiting(Client.feedback)
    feedback_on_episode = _waiting(Client.feedback_on_episode)
    measure = _waiting(Client.measure)
    set_features = _waiting(Client.set_features)
