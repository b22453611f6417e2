"""Who may ask and teach which application: bearer tokens, one a line of a file, each with its applications."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.gateway.protocol.values import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL: Final = "*"
_LEAST: Final = 16  # characters of a token: shorter ones are guessed
_SHOWN: Final = 8  # hexadecimal digits of a hash, which tell tokens apart and say nothing of them
_NAMED: Final = " as "
_HEADERS: Final = (b"authorization", b"ocp-apim-subscription-key", b"api-key")


class TokenGrant(NamedTuple):
    """What a request may do.

    Attributes:
        applications: that it may ask and teach; `*` = all.
        teacher: who teaches by it: the token's name, or the beginning of its hash; "" = there are no tokens.
    """

    applications: frozenset[str]
    teacher: str = ""


_ANYBODY: Final = TokenGrant(frozenset({ALL}))


class BearerTokens:
    """Grants by token; without any tokens everybody may ask and teach everything.

    Args:
        text: a line for each token: `TOKEN APPLICATION[,APPLICATION...]`, or `TOKEN *`; then `as NAME` for who has it.
            `#` begins a comment.

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
        return self.grant(headers).applications

    def grant(self, headers: Mapping[bytes, bytes]) -> TokenGrant:
        """Return what a request may do.

        Raises:
            RequestRefusedError: it has no token that is known.
        """
        if not self._known:
            return _ANYBODY
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


def _line(at: int, line: str) -> tuple[bytes, TokenGrant]:
    token, _, rest = _said(line).partition(" ")
    names, _, teacher = rest.partition(_NAMED)
    found = frozenset(filter(None, (name.strip() for name in names.split(","))))
    if not found:
        raise ValueError(f"line {at} of the tokens is not `TOKEN APPLICATION[,APPLICATION...] [as NAME]`")
    if len(token) < _LEAST:
        raise ValueError(f"line {at} of the tokens: a token has {_LEAST} characters or more")
    digest = hashlib.sha256(token.encode())
    return digest.digest(), TokenGrant(found, teacher.strip() or f"token-{digest.hexdigest()[:_SHOWN]}")
