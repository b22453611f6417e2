"""The ASGI application: a request in, a reply out; nothing here knows Kafka or a server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas.ids import DRAWN_BITS, query_id
from schemas.records import Status
from streams.gateway.asgi import TYPE, sent
from streams.gateway.bodies import GoneError
from streams.gateway.protocol import described, mlflow, open_inference, openapi, personalizer, teaching, tensorflow
from streams.gateway.protocol.faults import written
from streams.gateway.protocol.values import HttpReply, HttpRequest, RequestRefusedError, dumped, weight
from streams.gateway.routes import OPEN, Route, Router, door_of
from streams.gateway.tokens import ALL, may
from streams.runtime.process.readiness import WAITS_FOR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.records import Model, Prediction
    from streams.gateway.asgi import Receive, Scope, Send
    from streams.gateway.asking import Asking
    from streams.gateway.bodies import Bodies, HeldRoom
    from streams.gateway.catalog import Catalog
    from streams.gateway.figures import GatewayFigures
    from streams.gateway.memory import ReplyMemory
    from streams.gateway.protocol.values import ParsedRequest
    from streams.gateway.tokens import BearerTokens

_log = logging.getLogger(__name__)

_DIGEST_BYTES: Final = 16
_TRACE: Final = b"traceparent"  # W3C's
_LONGEST_TRACE: Final = 256
_LATEST: Final = "latest"  # so Flink 2.3 names the version where its table names none
# Of a body that was not read to its end: what follows on the connection is not the next request.
_UNREAD: Final = frozenset({401, 403, 404, 405, 408, 413, 503})


class GatewayParts(NamedTuple):
    """What an application is made of.

    Attributes:
        name: an application that paths without one mean; "" = the only one there is.
        origins: of web pages that may ask; browsers name them.
        version: of Skysail.
        is_ready: whether it has read what applications there are.
    """

    asking: Asking
    catalog: Catalog
    bodies: Bodies
    memory: ReplyMemory
    tokens: BearerTokens
    figures: GatewayFigures
    now_us: Callable[[], int]
    is_ready: Callable[[], bool]
    version: str = ""
    name: str = ""
    origins: frozenset[str] = frozenset()

    @property
    def hindrance(self) -> str:
        """What it waits for before it can ask, as the gauge `waits_for` names it; "" = nothing."""
        if not self.asking.is_connected:
            return "kafka"
        return "" if self.is_ready() else "applications"


class GatewayApplication:
    """Serves requests of HTTP by ASGI."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._router = Router()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")  # as ASGI asks
        begun, method, path = time.perf_counter(), scope["method"], scope["path"]
        door, reply, is_read = "open_inference", HttpReply(b""), False
        try:
            route = self._router.find(method, path)
            door = route.door
            headers = dict(scope["headers"])
            reply, is_read = await self._served(route, headers, receive)
        except RequestRefusedError as fault:
            door = door if door != "open_inference" else door_of(path)
            reply = written(door, fault)
        except GoneError:
            return
        except Exception:  # noqa: BLE001 - the boundary: one request must not end the others
            _log.exception("an error of the gateway itself, at %s %.200s", method, path)
            reply = written(door, RequestRefusedError(500, "an error of the gateway itself; its log tells more"))
        await sent(
            send, reply, keeps=is_read or method != "POST" or reply.status not in _UNREAD, has_body=method != "HEAD"
        )
        self._parts.figures.took(door, reply.status, time.perf_counter() - begun)

    async def _served(self, route: Route, headers: Mapping[bytes, bytes], receive: Receive) -> tuple[HttpReply, bool]:
        """Return the reply, and whether the body was read."""
        if route.what in OPEN:
            return self._open(route), False
        parts = self._parts
        grant = parts.tokens.grant(headers)
        if route.what == "applications":
            return self._list(grant.applications), False
        name = route.application or self._only(grant.applications)
        may(grant.applications, name)
        if route.version == _LATEST:
            route = self._latest(route, name)
        if route.what in _ABOUT:
            return self._about(route, name), False
        self._check_origin(headers)
        with parts.bodies.room(headers) as room:
            body = await parts.bodies.read(receive, headers)
            try:
                if route.what in _TEACHING:
                    return await self._taught(route, name, grant.teacher, body), True
                return await self._taken(route, name, headers, body, room), True
            except RequestRefusedError as fault:
                return written(route.door, fault), True

    async def _taken(
        self, route: Route, name: str, headers: Mapping[bytes, bytes], body: bytes, room: HeldRoom
    ) -> HttpReply:
        parts = self._parts
        given = headers.get(b"idempotency-key", b"").decode("latin-1")
        kind = headers.get(TYPE, b"").partition(b";")[0].strip().lower().decode("latin-1")
        cut = _length(headers.get(open_inference.LENGTH))
        request = HttpRequest(name, body, route.version, kind, cut, given, parts.catalog.takes(name))
        asked = _traced(self._parsed(route, request), headers)
        room.become(len(body) + weight(asked.ask))
        if not asked.ask.id:
            return await self._answered(asked, self._drawn_id())
        return await self._once(asked, route, body)

    def _parsed(self, route: Route, request: HttpRequest) -> ParsedRequest:
        if route.what == "rank":
            loop = self._parts.catalog.loop(request.application)
            return personalizer.parse(request, loop, self._drawn_id())
        return _PARSERS[route.what](request)

    def _drawn_id(self) -> str:
        return query_id(self._parts.now_us(), secrets.randbits(DRAWN_BITS))

    async def _once(self, asked: ParsedRequest, route: Route, body: bytes) -> HttpReply:
        """Answer a request with an id; the same one again gets the same reply, also while it is under way."""
        memory, key = self._parts.memory, (asked.ask.application, asked.ask.id)
        said = b"\0".join([route.what.encode(), (route.version or "").encode(), body])
        digest = hashlib.blake2b(said, digest_size=_DIGEST_BYTES).digest()
        reply = memory.find(key, digest)
        if reply is None:
            # In a task of its own: who asked first may leave (gRPC cancels its calls), and others wait for the reply.
            reply = asyncio.ensure_future(self._answered(asked, asked.ask.id))
            memory.begin(key, digest, reply)
            reply.add_done_callback(partial(memory.end, key))
        else:
            self._parts.figures.repeated += 1
        return reply if isinstance(reply, HttpReply) else await asyncio.shield(reply)

    async def _answered(self, asked: ParsedRequest, name: str) -> HttpReply:
        predictions = await self._parts.asking.ask(asked.ask, name)
        self._parts.figures.answered(asked.ask.application, len(predictions), _defaults(predictions))
        return asked.render(predictions)

    async def _taught(self, route: Route, name: str, teacher: str, body: bytes) -> HttpReply:
        """Send feedback. Ids are a client's: it teaches this application alone, whosever query it names."""
        catalog, now_us = self._parts.catalog, self._parts.now_us()
        if route.what == "reward":
            told = personalizer.reward(route.event, body, now_us, is_label=catalog.loop(name).is_regression)
        else:
            told = teaching.parse(body, now_us)
        catalog.application(name)
        items = [(feedback._replace(application=name, teacher=teacher), context) for feedback, context in told.items]
        await self._parts.asking.tell(items)
        return told.reply

    def _open(self, route: Route) -> HttpReply:
        """Return what everybody may know."""
        parts = self._parts
        if route.what == "metrics":
            return HttpReply(parts.figures.exposition(), 200, b"text/plain; version=0.0.4; charset=utf-8")
        if route.what == "openapi":
            return HttpReply(dumped(openapi.document(parts.version)))
        if route.what == "version":
            return HttpReply(parts.version.encode(), 200, b"text/plain")
        if route.what == "server":
            extensions = list(described.EXTENSIONS)
            return HttpReply(dumped({"name": "skysail", "version": parts.version, "extensions": extensions}))
        return HttpReply(dumped({"live": True})) if route.what == "live" else self._readiness()

    def _readiness(self) -> HttpReply:
        why = self._parts.hindrance
        told = {"ready": True} if not why else {"ready": False, "reason": f"the gateway {WAITS_FOR[why]}"}
        return HttpReply(dumped(told), 503 if why else 200)

    def _list(self, allowed: frozenset[str]) -> HttpReply:
        """Return the applications that a token is for, each with whether a model of it is deployed."""
        catalog = self._parts.catalog
        known = {name: one for name, one in sorted(catalog.applications.items()) if {ALL, name} & allowed}
        told = [{"name": name, "ready": bool(catalog.models(one))} for name, one in known.items()]
        return HttpReply(dumped({"models": told}))

    def _about(self, route: Route, name: str) -> HttpReply:
        catalog = self._parts.catalog
        application = catalog.application(name)
        models = catalog.models(application)
        if route.version and route.version not in {*described.versions(models), *_labels(models)}:
            raise RequestRefusedError(404, f"application {name} has no version {route.version!r:.80}")
        if route.what == "activate":  # of Personalizer's: it changes nothing
            return HttpReply(b"", 204)
        if route.what == "model_ready":
            return HttpReply(dumped({"name": name, "ready": bool(models)}), 200 if models else 503)
        if route.what == "stats":
            rows, requests = self._parts.figures.of(name)
            return HttpReply(dumped(described.inference_counts(application, models, rows, requests)))
        if route.what == "tensorflow_status":
            return HttpReply(dumped(described.status(models)))
        how = described.tensorflow if route.what == "tensorflow_metadata" else described.open_inference
        return HttpReply(dumped(how(application, models)))

    def _latest(self, route: Route, name: str) -> Route:
        """Return the route without a version, unless there is one of that name."""
        models = self._parts.catalog.models(self._parts.catalog.application(name))
        return route if _LATEST in {*described.versions(models), *_labels(models)} else route._replace(version=None)

    def _only(self, allowed: frozenset[str]) -> str:
        """Return the application that a path without a name means.

        Raises:
            RequestRefusedError: it may mean several.
        """
        if self._parts.name and ({ALL, self._parts.name} & allowed):
            return self._parts.name
        names = set(self._parts.catalog.applications)
        names = names if ALL in allowed else names & allowed
        if len(names) == 1:
            return names.pop()
        raise RequestRefusedError(
            404, "which application? Set `gateway.application`, use a token of one alone, or a path that names it"
        )

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what a web page sends that nobody named: any page in a browser beside it could ask and teach."""
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1") not in self._parts.origins:
            raise RequestRefusedError(403, "web pages may not ask: name the page's origin in `gateway.origins`")


_ABOUT: Final = frozenset({"activate", "model_ready", "metadata", "stats", "tensorflow_metadata", "tensorflow_status"})
_TEACHING: Final = frozenset({"reward", "feedback"})
_PARSERS: Final[Mapping[str, Callable[[HttpRequest], ParsedRequest]]] = {
    "infer": open_inference.parse, "predict": tensorflow.parse, "invocations": mlflow.parse,
}  # fmt: skip


def _labels(models: Sequence[Model]) -> set[str]:
    return {"stable", "canary", *[label for model in models for label in model.labels]}


def _defaults(predictions: Sequence[Prediction]) -> int:
    return sum(prediction.status is Status.DEFAULT for prediction in predictions)


def _traced(asked: ParsedRequest, headers: Mapping[bytes, bytes]) -> ParsedRequest:
    """Return the request with the header of a trace that it belongs to, which its queries carry on."""
    trace = headers.get(_TRACE)
    if trace is None or len(trace) > _LONGEST_TRACE:
        return asked
    return asked._replace(ask=asked.ask._replace(headers=((_TRACE.decode(), trace),)))


def _length(given: bytes | None) -> int | None:
    if given is None:
        return None
    if not given.isdigit() or len(given) > 10:
        raise RequestRefusedError(400, f"{open_inference.LENGTH.decode()} is a number of bytes")
    return int(given)
