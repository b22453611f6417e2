"""What a request may do: figures are for all; records and actions need a token, and actions come from the page itself.

A token's names are rights: `read` for stories, dead letters and logs, `act` for those and actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from streams.gateway.protocol.values import RequestRefusedError
from streams.gateway.tokens import ALL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.gateway.tokens import BearerTokens

READ: Final = "read"
ACT: Final = "act"


class PageRights(NamedTuple):
    """Who may do what.

    Attributes:
        tokens: with the rights of each; none = nobody may act.
        shows_records: without any tokens, whether everybody may read records.
    """

    tokens: BearerTokens
    shows_records: bool

    def check_read(self, headers: Mapping[bytes, bytes]) -> None:
        """Return if a request may read records.

        Raises:
            RequestRefusedError: it may not; the message says what it takes.
        """
        if self.tokens:
            if not self._rights(headers) & {READ, ACT, ALL}:
                raise RequestRefusedError(403, "this token is not for reading: its line in control.tokens says `read`")
        elif not self.shows_records:
            raise RequestRefusedError(
                401, "stories, dead letters and logs show records: set control.tokens_file, and give the page a token"
            )

    def check_act(self, headers: Mapping[bytes, bytes]) -> None:
        """Return if a request may change something.

        Raises:
            RequestRefusedError: it has no token for that, or comes from elsewhere than the page.
        """
        if not self.tokens:
            raise RequestRefusedError(
                401, "the page only shows: set control.tokens_file to act on it, or type commands"
            )
        if not self._rights(headers) & {ACT, ALL}:
            raise RequestRefusedError(403, "this token is not for actions: its line in control.tokens says `act`")
        check_origin(headers)

    def _rights(self, headers: Mapping[bytes, bytes]) -> frozenset[str]:
        try:
            return self.tokens.applications(headers)
        except RequestRefusedError:
            raise RequestRefusedError(401, "this needs a token, one of control.tokens_file") from None


def check_origin(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what another web page sends; programs send no `Origin`, nor who typed an address.

    Raises:
        RequestRefusedError: it comes from elsewhere.
    """
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    if site not in {None, b"same-origin", b"none"}:
        raise RequestRefusedError(403, "commands are taken from the page itself, not from other web pages")
    if origin is not None and urlsplit(origin.decode("latin-1")).netloc.encode("latin-1") != headers.get(b"host"):
        raise RequestRefusedError(403, "commands are taken from the page itself; a proxy must pass `Host` on")
