"""Replies by the id of their request, so that a repeated request gets the same one: bounded in bytes, the oldest go."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.gateway.protocol.values import HttpReply, RequestRefusedError

if TYPE_CHECKING:
    import asyncio

_ENTRY: Final = 600  # bytes of an entry beside its id and reply, at most: key, digest, headers


class _Kept(NamedTuple):
    digest: bytes
    reply: HttpReply | asyncio.Future[HttpReply]  # the latter while the request is under way


class ReplyMemory:
    """Replies, and requests that are under way.

    Args:
        most_bytes: of all replies; 0 = none is kept once it is sent.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self.bytes = 0

    def find(self, key: tuple[str, str], digest: bytes) -> HttpReply | asyncio.Future[HttpReply] | None:
        """Return the reply of a request that has come before; None = it is new.

        Raises:
            RequestRefusedError: another request had its id.
        """
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.digest != digest:
            raise RequestRefusedError(409, f"id {key[1]!r:.80} belongs to another request; ids must differ")
        return kept.reply

    def begin(self, key: tuple[str, str], digest: bytes, reply: asyncio.Future[HttpReply]) -> None:
        """Remember a request that is under way."""
        self._kept[key] = _Kept(digest, reply)

    def end(self, key: tuple[str, str], reply: asyncio.Future[HttpReply]) -> None:
        """Keep the reply of a request, or forget the request if it has none: then it may be tried again."""
        kept = self._kept.pop(key)
        if not self._most_bytes or reply.cancelled() or reply.exception() is not None:
            return
        told = reply.result()
        # A copy: orjson leaves a body of 300 bytes in a buffer of 4 KiB. The task it came from has 800 more.
        kept = self._kept[key] = kept._replace(reply=told._replace(body=bytes(memoryview(told.body))))
        self.bytes += _size(key, kept.reply)
        while self.bytes > self._most_bytes and (oldest := self._oldest()):
            self.bytes -= _size(oldest, self._kept.pop(oldest).reply)

    def _oldest(self) -> tuple[str, str] | None:
        """Return the oldest request that is not under way."""
        return next((key for key, kept in self._kept.items() if isinstance(kept.reply, HttpReply)), None)


def _size(key: tuple[str, str], reply: object) -> int:
    assert isinstance(reply, HttpReply), "it is kept"
    return _ENTRY + len(key[1]) + len(reply.body)
