"""A light sender of HTTP: connections that are kept, one request at a time on each, bytes made beforehand."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Self

_LENGTH: Final = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def post(path: str, body: bytes) -> bytes:
    """Return a request as it travels."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class HttpSender:
    """Sends to one port; use it as an async context manager.

    Args:
        port: on this machine.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __aenter__(self) -> Self:
        """Begin; connections are made when they are needed."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        for _reader, writer in self._free:
            writer.close()

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; returns the status and the body of its reply."""
        connection = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = connection
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        body = await reader.readexactly(int(found[1])) if found else b""
        self._free.append(connection)
        return int(head[9:12]), body
