"""uvicorn, bounded: so many connections, a head within its time, and no signal handlers of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streams.gateway.application import GatewayApplication

_BACKLOG: Final = 1_024
_KEEP_ALIVE_S: Final = 75  # longer than the 60 s after which proxies give a connection up: else they meet its end
_DRAIN_S: Final = 5
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b'content-length: 80\r\n\r\n{"error": "too many connections (`gateway.connections`); keep and reuse yours."}'
)


class Listening(NamedTuple):
    """Where a gateway listens, and its bounds."""

    host: str
    port: int
    connections: int = 1_000
    within_s: float = 10.0  # for a request's head
    certificate: Path | None = None
    key: Path | None = None


class GatewayServer:
    """Serves an application; the port is taken at once.

    Args:
        application: that is served.
        listening: where.

    Raises:
        OSError: the port is taken, or the certificate cannot be read.
    """

    def __init__(self, application: GatewayApplication, listening: Listening) -> None:
        family = socket.getaddrinfo(listening.host, listening.port, type=socket.SOCK_STREAM)[0][0]
        self._socket = socket.socket(family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((listening.host, listening.port))
        except OSError:
            self._socket.close()
            raise
        self._server = _Server(_configured(application, listening))

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._socket.getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._server.server_state.connections)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; what is under way is answered, for some seconds."""
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self._server.should_exit = True
            await serving

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()


class _Server(uvicorn.Server):
    """Signals are the process's own business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _configured(application: GatewayApplication, listening: Listening) -> uvicorn.Config:
    class Protocol(_BoundedProtocol):
        most = listening.connections
        within_s = listening.within_s

    return uvicorn.Config(
        application,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
    )


class _BoundedProtocol(HttpToolsProtocol):
    """Connections beyond the bound are turned away; so is one that takes too long for a request's head."""

    most: int
    within_s: float
    _head: asyncio.TimerHandle | None = None
    _is_full = False

    def connection_made(self, transport: Any) -> None:
        """Take a connection, if there is room."""
        super().connection_made(transport)
        self._is_full = len(self.connections) > self.most
        if self._is_full:
            transport.write(_FULL)
            transport.close()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._had_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless it was turned away."""
        if not self._is_full:
            super().data_received(data)

    def on_message_begin(self) -> None:
        """Begin a request: its head is waited for."""
        super().on_message_begin()
        if self._head is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """Begin to serve a request."""
        self._had_head()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.within_s, self._too_slow)

    def _had_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            self.transport.abort()
