"""Who may read the page over HTTP: browsers that name this host, and not in a frame of another page.

Whose names count: `streams.runtime.process.host_names`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

from aiohttp import web

from streams.runtime.process.host_names import is_ours

if TYPE_CHECKING:
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
