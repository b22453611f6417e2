"""The ASGI application of the page: a request in, a reply out; what is shown, others know."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from streams.control.web.files import PAGE, files
from streams.control.web.host_guard import GUARDING, refused
from streams.gateway.asgi import sent
from streams.gateway.protocol.values import HttpReply, RequestRefusedError, dumped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streams.gateway.asgi import Receive, Scope, Send

_log = logging.getLogger(__name__)
_STATIC = "/static/"


class PageParts(NamedTuple):
    """What the page shows.

    Attributes:
        known: names of this host.
        status: all figures of now.
        is_blind: whether Kafka does not answer.
    """

    known: frozenset[str]
    status: Callable[[], Mapping[str, object]]
    is_blind: Callable[[], bool]


class PageApplication:
    """Serves the page by ASGI."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._files = files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")  # as ASGI asks
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        try:
            reply = refused(headers, self._parts.known) or self._reply(method, path)
        except RequestRefusedError as fault:
            reply = _written(fault)
        except Exception:  # noqa: BLE001 - the boundary: one request must not end the others
            _log.exception("an error of the page itself, at %s %.200s", method, path)
            reply = _written(RequestRefusedError(500, "an error of the page itself; the log of control tells more"))
        reply = reply._replace(headers=(*reply.headers, *GUARDING))
        await sent(send, reply, keeps=method in {"GET", "HEAD"}, has_body=method != "HEAD")

    def _reply(self, method: str, path: str) -> HttpReply:
        if method not in {"GET", "HEAD"}:
            raise RequestRefusedError(405, f"{method} is not for this path: GET is", allow="GET, HEAD")
        if path == "/api/status":
            return HttpReply(dumped(self._parts.status()))
        if path == "/health":  # a restart of this process would mend nothing where Kafka does not answer
            return HttpReply(dumped({"status": "ok", "kafka": "does not answer" if self._parts.is_blind() else "ok"}))
        name = PAGE if path == "/" else path.removeprefix(_STATIC) if path.startswith(_STATIC) else ""
        found = self._files.get(name)
        if found is None:
            raise RequestRefusedError(404, "no such page: / is the live page, /api/status what it shows")
        return found


def _written(fault: RequestRefusedError) -> HttpReply:
    headers = ((b"allow", fault.allow.encode()),) if fault.allow else ()
    return HttpReply(dumped({"error": str(fault)}), fault.status, headers=headers)
