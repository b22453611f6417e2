"""Reads rows from web servers: the address that is asked for is the one that was compared with the place.

No redirect is followed, nothing is inflated, and no more is read than a row may be. The server is the place's, as its
host and port come from the settings. Its name is looked up for each row, so whoever rules the name rules the place.
"""

from __future__ import annotations

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMES: Final = ("http", "https")
_AT_ONCE: Final = 8
_SILENCE_S: Final = 10.0  # of a server, between two of its bytes
_MOST_S: Final = 60.0  # for one row
_PIECE_BYTES: Final = 1 << 16
# What stands in a path as it is; all else is written as `%` and its bytes. No path that comes here has a `%`.
_PLAIN: Final = "/:@!$&'()*+,=~"


class WebError(Exception):
    """A server does not give what was asked for; the message says why."""


def check_place(place: str) -> None:
    """Check a place of a web server.

    Raises:
        PackageError: it names no server, or a user too.
    """
    parts = urlsplit(place)
    try:
        is_whole = bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:  # the port is no number
        is_whole = False
    if not is_whole:
        raise PackageError(f"{place!r} is no place: write http://host:port/folder/, without a user")


def read(addresses: Sequence[str], most_bytes: int) -> list[bytes | WebError]:
    """Read addresses, several at a time.

    Args:
        addresses: below a place, in which no server reads anything but what stands there.
        most_bytes: of each; beyond them nothing is read.
    """
    with ThreadPoolExecutor(min(_AT_ONCE, len(addresses)), "web") as readers:
        return [*readers.map(lambda address: _read(address, most_bytes), addresses)]


def _read(address: str, most_bytes: int) -> bytes | WebError:
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=_SILENCE_S)
        try:
            connection.request("GET", quote(parts.path, safe=_PLAIN), headers={"Accept-Encoding": "identity"})
            with connection.getresponse() as response:
                return _body(response, most_bytes)
        finally:
            connection.close()
    except WebError as error:
        return error
    except (OSError, http.client.HTTPException, ValueError) as error:
        return WebError(f"{type(error).__name__}: {error}"[:200])


def _body(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    """Read what a server sends, in pieces."""
    if response.status == http.HTTPStatus.NOT_FOUND:
        raise WebError("there is nothing")
    if response.status != http.HTTPStatus.OK:
        raise WebError(f"the server answers {response.status}; redirects are not followed")
    if response.getheader("Content-Encoding", "identity").lower() != "identity":
        raise WebError("the server has compressed it, though that was not asked for")
    if (response.length or 0) > most_bytes:
        raise WebError(f"it is larger than {most_bytes} bytes")
    content, until_s = bytearray(), time.monotonic() + _MOST_S
    while piece := response.read1(min(_PIECE_BYTES, most_bytes + 1 - len(content))):
        content += piece
        if len(content) > most_bytes:
            raise WebError(f"it is larger than {most_bytes} bytes")
        if time.monotonic() > until_s:
            raise WebError(f"it has not come within {_MOST_S:g} s")
    if response.length:
        raise WebError("it is cut off")
    return bytes(content)
