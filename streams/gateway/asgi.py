"""ASGI's types, and a reply as its messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from streams.gateway.protocol.values import HttpReply

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

TYPE: Final = b"content-type"
_TOTAL, _CLOSE = b"content-length", (b"connection", b"close")


async def sent(send: Send, reply: HttpReply, *, keeps: bool, has_body: bool) -> None:
    """Send a reply.

    Args:
        send: of ASGI.
        reply: what is sent.
        keeps: whether the connection may serve another request; not if a body was not read to its end.
        has_body: whether the body goes with it; not to HEAD.
    """
    about = [] if reply.status == 204 else [(TYPE, reply.kind), (_TOTAL, b"%d" % len(reply.body))]
    headers = [*about, *reply.headers]
    if not keeps:
        headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body if has_body else b""})
