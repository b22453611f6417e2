"""Who may ask which application: bearer tokens, one a line of a file, each with its applications."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from streams.gateway.protocol.values import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL: Final = "*"
_LEAST: Final = 16  # characters of a token: shorter ones are guessed
_HEADERS: Final = (b"authorization", b"ocp-apim-subscription-key", b"api-key")


class BearerTokens:
    """Applications by token; without any tokens everybody may ask everything.

    Args:
        text: a line for each token: `TOKEN APPLICATION[,APPLICATION...]`, or `TOKEN *`; `#` begins a comment.

    Raises:
        ValueError: a line is none.

    Examples:
        >>> BearerTokens("0123456789abcdef shop,news").applications({b"authorization": b"Bearer 0123456789abcdef"})
        frozenset({'news', 'shop'})
    """

    def __init__(self, text: str) -> None:
        self._known = dict(_line(at, line) for at, line in enumerate(text.splitlines(), 1) if _said(line))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._known)

    def applications(self, headers: Mapping[bytes, bytes]) -> frozenset[str]:
        """Return what a request may ask; `*` = everything.

        Raises:
            RequestRefusedError: it has no token that is known.
        """
        if not self._known:
            return frozenset({ALL})
        given = next((headers[name] for name in _HEADERS if name in headers), b"")
        scheme, _, token = given.strip().partition(b" ")
        token = token.strip() if scheme.lower() == b"bearer" else given.strip()
        # By its hash: how long a look-up takes tells nothing of a token.
        found = self._known.get(hashlib.sha256(token).digest())
        if found is None:
            raise RequestRefusedError(
                401, "a token is needed: `Authorization: Bearer TOKEN`, one of `gateway.tokens_file`"
            )
        return found


def may(allowed: frozenset[str], application: str) -> None:
    """Return if an application is among those allowed.

    Raises:
        RequestRefusedError: it is not.
    """
    if ALL not in allowed and application not in allowed:
        raise RequestRefusedError(403, f"this token is not for application {application!r:.80}")


def _said(line: str) -> str:
    return line.partition("#")[0].strip()


def _line(at: int, line: str) -> tuple[bytes, frozenset[str]]:
    token, _, names = _said(line).partition(" ")
    found = frozenset(filter(None, (name.strip() for name in names.split(","))))
    if not found:
        raise ValueError(f"line {at} of the tokens is not `TOKEN APPLICATION[,APPLICATION...]`")
    if len(token) < _LEAST:
        raise ValueError(f"line {at} of the tokens: a token has {_LEAST} characters or more")
    return hashlib.sha256(token.encode()).digest(), found
