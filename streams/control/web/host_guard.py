"""Who may read the page over HTTP: browsers that name this host, and not in a frame of another page.

Whose names count: `streams.runtime.process.host_names`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streams.gateway.protocol.values import HttpReply
from streams.runtime.process.host_names import is_ours

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.gateway.protocol.values import Headers

# The page runs its own scripts and styles, in files, and asks its own host alone.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Of every answer.
GUARDING: Final[Headers] = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_REFUSAL: Final = b"This page is not served under that name: use its address, or add the name to control.names.\n"


def refused(headers: Mapping[bytes, bytes], known: frozenset[str]) -> HttpReply | None:
    """Return the refusal of a request that names another host; None = it names this one."""
    if is_ours(headers.get(b"host", b"").decode("latin-1"), known):
        return None
    return HttpReply(_REFUSAL, 421, b"text/plain; charset=utf-8")
