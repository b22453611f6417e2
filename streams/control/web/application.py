"""The ASGI application of the page: a request in, a reply out; what is shown, others know, and commands do the rest."""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl

from streams.control.web import commands
from streams.control.web.files import PAGE, files
from streams.control.web.host_guard import GUARDING, refused
from streams.control.web.rights import check_origin
from streams.gateway.asgi import sent
from streams.gateway.bodies import GoneError, while_asked
from streams.gateway.protocol.values import HttpReply, RequestRefusedError, document, dumped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from streams.control.web.rights import PageRights
    from streams.gateway.asgi import Receive, Scope, Send
    from streams.gateway.bodies import Bodies

_log = logging.getLogger(__name__)
_STATIC: Final = "/static/"
_SHOWN: Final = ("/story/", "/letter/")
_MOST_FIELDS: Final = 16  # of a query string
_MOST_MINUTES: Final = 1_440


class CommandResult(NamedTuple):
    """What a command has said.

    Attributes:
        code: it ended with; 0 = well.
        said: a document of JSON, or nothing.
        fault: what it said of what went wrong.
    """

    code: int
    said: bytes
    fault: str


class PageParts(NamedTuple):
    """What the page shows and does.

    Attributes:
        known: names of this host.
        status: all figures of now.
        charts: figures of so many last minutes: of an application, or (None) of the processes.
        is_blind: whether Kafka does not answer.
        rights: who may do what.
        bodies: the room for what is sent.
        run: runs a command of `skysail`.
        log: the last lines of a process's log; None = it has none here.
    """

    known: frozenset[str]
    status: Callable[[], Mapping[str, object]]
    charts: Callable[[int, str | None], Mapping[str, object]]
    is_blind: Callable[[], bool]
    rights: PageRights
    bodies: Bodies
    run: Callable[[Sequence[str]], Awaitable[CommandResult]]
    log: Callable[[str], str | None]


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
            reply = refused(headers, self._parts.known)
            if reply is None and path == "/api/action":
                reply = await self._acted(method, headers, receive)
            elif reply is None:
                reply = await self._read(method, path, _fields(scope["query_string"]), headers, receive)
        except RequestRefusedError as fault:
            reply = _written(fault)
        except GoneError:
            return
        except Exception:  # noqa: BLE001 - the boundary: one request must not end the others
            _log.exception("an error of the page itself, at %s %.200s", method, path)
            reply = _written(RequestRefusedError(500, "an error of the page itself; the log of control tells more"))
        reply = reply._replace(headers=(*reply.headers, *GUARDING))
        keeps = method in {"GET", "HEAD"} or reply.status == 200  # else a body may lie unread on the connection
        await sent(send, reply, keeps=keeps, has_body=method != "HEAD")

    async def _read(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], receive: Receive
    ) -> HttpReply:
        if method not in {"GET", "HEAD"}:
            raise RequestRefusedError(405, f"{method} is not for this path: GET is", allow="GET, HEAD")
        if path.startswith("/api/"):
            return await self._told(path, query, headers, receive)
        if path == "/health":  # a restart of this process would mend nothing where Kafka does not answer
            return HttpReply(dumped({"status": "ok", "kafka": "does not answer" if self._parts.is_blind() else "ok"}))
        is_page = path == "/" or path.startswith(_SHOWN)  # of one query, of one dead letter
        name = PAGE if is_page else path.removeprefix(_STATIC) if path.startswith(_STATIC) else ""
        found = self._files.get(name)
        if found is None:
            raise _no_such_page()
        return found

    async def _told(
        self, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], receive: Receive
    ) -> HttpReply:
        parts = self._parts
        if path == "/api/status":
            return HttpReply(dumped(parts.status()))
        if path == "/api/charts":
            return HttpReply(dumped(parts.charts(_minutes(query.get("minutes", "60")), query.get("application"))))
        if path == "/api/rights":
            return HttpReply(dumped({"tokens": bool(parts.rights.tokens), "records": parts.rights.shows_records}))
        words = commands.reading(path, query)
        if words is None and path != "/api/log":
            raise _no_such_page()
        parts.rights.check_read(headers)
        check_origin(headers)  # a command costs a core: no other web page starts one
        if words is not None:
            return await while_asked(self._ran(words), receive)
        said = parts.log(query.get("process", ""))
        if said is None:
            raise RequestRefusedError(404, "no log of that process is on this machine; see where its role was started")
        return HttpReply(dumped({"process": query.get("process", ""), "text": said}))

    async def _acted(self, method: str, headers: Mapping[bytes, bytes], receive: Receive) -> HttpReply:
        if method != "POST":
            raise RequestRefusedError(405, f"{method} is not for this path: POST is", allow="POST")
        self._parts.rights.check_act(headers)
        if headers.get(b"content-type", b"").partition(b";")[0].strip() != b"application/json":
            raise RequestRefusedError(415, "an action is a JSON object, sent as application/json")
        with self._parts.bodies.room(headers):
            body = await self._parts.bodies.read(receive, headers)
        words = commands.acting(document(body))
        _log.warning("the page was asked for: skysail %s", shlex.join(words))
        return await self._ran(words)

    async def _ran(self, words: Sequence[str]) -> HttpReply:
        found = await self._parts.run(words)
        told = {"command": shlex.join(("skysail", *(word for word in words if word != "--json")))}
        if found.code:
            return HttpReply(dumped({"error": found.fault or f"it ended with {found.code}", **told}), 422)
        return HttpReply(b'{"command":%s,"said":%s}' % (dumped(told["command"]), found.said or b"null"))


def _fields(query: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise RequestRefusedError(400, f"at most {_MOST_FIELDS} fields") from None


def _minutes(said: str) -> int:
    if not said.isdecimal() or not 0 < int(said[:6]) <= _MOST_MINUTES:
        raise RequestRefusedError(400, f"`minutes` is a number from 1 to {_MOST_MINUTES}")
    return int(said)


def _no_such_page() -> RequestRefusedError:
    return RequestRefusedError(404, "no such page: / is the live page, /api/status what it shows")


def _written(fault: RequestRefusedError) -> HttpReply:
    headers = ((b"allow", fault.allow.encode()),) if fault.allow else ()
    retry = ((b"retry-after", b"%d" % fault.retry_s),) if fault.retry_s else ()
    return HttpReply(dumped({"error": str(fault)}), fault.status, headers=(*headers, *retry))
