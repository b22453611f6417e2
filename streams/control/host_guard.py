"""Who may read the page over HTTP: browsers that name this host, and not in a frame of another page.

The page has no log-in. Another web page could point its own name at this address and read the answers (DNS rebinding).
Its name is in the header `Host`, so it is refused.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
import socket
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp.typedefs import Handler, Middleware

# Longer than a page waits between two requests; an unfinished request is dropped then.
IDLE_S = 15.0
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def headers(page: str) -> dict[str, str]:
    """Return the headers of every answer: the page runs its own script and style, and asks its own host alone."""
    inline = {"script": "", "style": ""}
    for tag, text in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        inline[tag] += f" 'sha256-{digest}'"
    own = "".join(f" {tag}-src{digests};" for tag, digests in inline.items() if digests)
    policy = f"default-src 'none';{own} connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return {
        "Content-Security-Policy": policy,
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def names(configured: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the names that this host is asked by; addresses always count, since nobody else can own one's name."""
    own = ("localhost", configured, socket.gethostname(), socket.getfqdn(), *more)
    return frozenset(name.lower() for name in own if name)


def is_ours(host: str | None, known: frozenset[str]) -> bool:
    """Tell whether a `Host` header names this host: by an address, or by one of its names."""
    if not host:
        return False
    name = re.sub(r":\d{1,5}$", "", host).lower().removesuffix(".")
    if name in known:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def guard(known: frozenset[str], added: dict[str, str]) -> Middleware:
    """Return a middleware that refuses other hosts' names and adds headers to every answer."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_ours(request.headers.get("Host"), known):
            text = "This page is not served under that name: use its address, or add the name to control.names.\n"
            return web.Response(status=421, text=text, headers=added)
        try:
            answer = await handler(request)
        except web.HTTPException as error:  # no such page
            error.headers.update(added)
            raise
        answer.headers.update(added)
        return answer

    return guarded


def runner(application: web.Application) -> web.AppRunner:
    """Return a server of an application that drops unfinished requests."""
    return web.AppRunner(application, access_log=None, keepalive_timeout=IDLE_S)
