"""Bodies of requests: bounded in bytes, each and all together, and in time; unpacked within the same bounds."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streams.gateway.protocol.values import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from typing import Self

    from streams.gateway.asgi import Receive

R = TypeVar("R")

_WINDOWS: Final = {b"gzip": 31, b"deflate": 47}  # of zlib: 47 finds out which header there is
RETRY_S: Final = 1


class GoneError(Exception):
    """Who asked has hung up."""


class HeldRoom:
    """Room that one request holds; use it as a context manager.

    Args:
        bodies: whose it is.
        size: bytes.
    """

    __slots__ = ("_bodies", "_size")

    def __init__(self, bodies: Bodies, size: int) -> None:
        self._bodies = bodies
        self._size = size

    def __enter__(self) -> Self:
        """Hold it."""
        self._bodies.free -= self._size
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._bodies.free += self._size

    def become(self, size: int) -> None:
        """Hold another size: a request is now known to take that.

        Raises:
            RequestRefusedError: there is never so much room, or others have it.
        """
        if size > self._bodies.together:
            raise RequestRefusedError(413, f"the request takes {size:,} bytes while it waits (`gateway.bodies_mib`)")
        if size - self._size > self._bodies.free:
            raise RequestRefusedError(503, "too many requests are under way; try again", RETRY_S)
        self._bodies.free += self._size - size
        self._size = size


class Bodies:
    """The room for bodies, and for what is made of them.

    Args:
        each: bytes of one, unpacked.
        together: bytes of all that are in hand.
        within_s: a body has come by then.
    """

    def __init__(self, each: int, together: int, within_s: float) -> None:
        self._each = each
        self.together = self.free = together
        self._within_s = within_s

    def room(self, headers: Mapping[bytes, bytes]) -> HeldRoom:
        """Return the room that a request says it needs; one of unknown length may need the most.

        Raises:
            RequestRefusedError: it is too large, or others have the room.
        """
        said = headers.get(b"content-length", b"")
        size = int(said) if said.isdigit() and b"content-encoding" not in headers else self._each
        if size > self._each or (said.isdigit() and int(said) > self._each):
            raise RequestRefusedError(413, f"a body has at most {self._each:,} bytes (`gateway.body_kib`)")
        if size > self.free:
            raise RequestRefusedError(503, "too many bodies are being read; try again", RETRY_S)
        return HeldRoom(self, size)

    async def read(self, receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
        """Return a whole body.

        Raises:
            RequestRefusedError: it is too large, too slow or cannot be unpacked.
            GoneError: who asked has hung up.
        """
        message = await self._next(receive) if headers.get(b"content-length") != b"0" else await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            body = await self._rest(receive, body)
        encoding = headers.get(b"content-encoding")
        return body if encoding in {None, b"identity"} else self._unpacked(body, encoding or b"")

    async def _rest(self, receive: Receive, first: bytes) -> bytes:
        parts, size = [first], len(first)
        try:
            async with asyncio.timeout(self._within_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise GoneError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._each:
                        raise RequestRefusedError(413, f"a body has at most {self._each:,} bytes (`gateway.body_kib`)")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise RequestRefusedError(408, f"the body did not come within {self._within_s:g} s") from None

    async def _next(self, receive: Receive) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(self._within_s):
                return await receive()
        except TimeoutError:
            raise RequestRefusedError(408, f"the body did not come within {self._within_s:g} s") from None

    def _unpacked(self, body: bytes, encoding: bytes) -> bytes:
        if encoding not in _WINDOWS:
            raise RequestRefusedError(
                415, f"content-encoding {encoding.decode('latin-1')!r:.40}: gzip and deflate are read"
            )
        unpacking = zlib.decompressobj(_WINDOWS[encoding])
        try:
            found = unpacking.decompress(body, self._each + 1)
        except zlib.error as error:
            raise RequestRefusedError(400, f"the body cannot be unpacked: {error}") from error
        if len(found) > self._each:
            raise RequestRefusedError(413, f"a body has at most {self._each:,} bytes, unpacked (`gateway.body_kib`)")
        if not unpacking.eof:
            raise RequestRefusedError(400, "the body ends within its compressed data")
        return found


async def while_asked(work: Coroutine[Any, Any, R], receive: Receive) -> R:
    """Return what becomes of work that is worth doing only while somebody waits for it; the body has been read.

    Raises:
        GoneError: who asked has hung up; the work was cancelled, and has ended.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise GoneError
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait([working, leaving])


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
