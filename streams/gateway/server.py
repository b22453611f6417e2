"""uvicorn, bounded: so many connections, a head within its time, and no signal handlers of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import uvicorn
from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from streams.gateway.protocol.values import dumped

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

    from streams.gateway.asgi import Asgi

_log = logging.getLogger(__name__)

_BACKLOG: Final = 1_024
_KEEP_ALIVE_S: Final = 75  # longer than the 60 s after which proxies give a connection up: else they meet its end
_DRAIN_S: Final = 5
_HEAD_BYTES: Final = 64 << 10  # of a request's line and headers: neither uvicorn nor its parser has a bound
_PIPELINED: Final = 16  # requests that wait behind one on its connection: a packet holds ten thousand of twenty bytes
_OTHER_FILES: Final = 512  # that a process has beside connections


def _closing(status: HTTPStatus, message: str) -> bytes:
    """Return a whole reply after which the connection ends."""
    body = dumped({"error": message})
    retry = "retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n{retry}connection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


_NO_HTTP: Final = _closing(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")


class Listening(NamedTuple):
    """Where a gateway listens, and its bounds."""

    host: str
    port: int
    connections: int = 1_000
    within_s: float = 10.0  # for a request's head, and for the other side to read on
    certificate: Path | None = None
    key: Path | None = None
    setting: str = "gateway.connections"  # that bounds them


class GatewayServer:
    """Serves an application; the port is taken at once.

    Args:
        application: that is served.
        listening: where.

    Raises:
        OSError: the port is taken, or the certificate cannot be read.
    """

    def __init__(self, application: Asgi, listening: Listening) -> None:
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # any stranger can have it warn
        _allow_files(listening.connections + _OTHER_FILES, listening.setting)
        family = socket.getaddrinfo(listening.host, listening.port, type=socket.SOCK_STREAM)[0][0]
        # By its protocol asyncio knows TCP, and sends at once: else a reply's body waits 40 ms to be acknowledged.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((listening.host, listening.port))
        except OSError:
            self._socket.close()
            raise
        self._open: set[_BoundedProtocol] = set()
        config = _configured(application, listening, self._open)
        try:
            config.load()  # reads the certificate
        except OSError:
            self._socket.close()
            raise
        self._server = _Server(config)
        self._host, self._is_secure = listening.host, listening.certificate is not None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._socket.getsockname()[1])

    @property
    def is_started(self) -> bool:
        """Whether it takes connections."""
        return self._server.started and not self._server.should_exit

    @property
    def address(self) -> str:
        """Where it is found."""
        return f"{'https' if self._is_secure else 'http'}://{self._host}:{self.port}"

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
            try:
                await serving
            finally:
                for connection in [*self._open]:  # whoever does not read the end of its replies
                    connection.transport.abort()
            await asyncio.sleep(0)  # for the loop to close them, which may be its last round

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()


class _Server(uvicorn.Server):
    """Signals are the process's own business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _allow_files(count: int, setting: str) -> None:
    """Raise how many files this process may have open; where it may not, strangers could take all that it needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < count:
        _log.warning("this process may have %d files open: lower %s, or raise `ulimit -n`", wanted, setting)


def _configured(application: Asgi, listening: Listening, connections: set[_BoundedProtocol]) -> uvicorn.Config:
    class Protocol(_BoundedProtocol):
        open = connections
        most = listening.connections
        full = _closing(
            HTTPStatus.SERVICE_UNAVAILABLE, f"too many connections (`{listening.setting}`); keep and reuse yours"
        )
        within_s = listening.within_s
        silent: MutableMapping[_BoundedProtocol, None] = {}  # noqa: RUF012 - of all connections of this server

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
    """Connections are bounded, and what each may have waiting.

    Where there are too many, the one that has been silent longest makes room; where none is silent, the new one is
    turned away. So is who takes too long to send a head, or to read a reply.
    """

    most: int
    full: bytes  # what one too many is told
    open: set[_BoundedProtocol]  # all of this server that have not ended
    within_s: float
    silent: MutableMapping[_BoundedProtocol, None]  # that wait for another request, longest first
    _head: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_full = False

    def connection_made(self, transport: Any) -> None:
        """Take a connection, if there is room."""
        super().connection_made(transport)
        self.open.add(self)
        self._is_full = len(self.connections) > self.most and not self._made_room()
        if self._is_full:
            transport.write(self.full)
            transport.close()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.open.discard(self)
        self.silent.pop(self, None)
        self._had_head()
        self._has_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless it was turned away."""
        if self._is_full:
            return
        super().data_received(data)
        if self._head is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self._give_up()

    def on_message_begin(self) -> None:
        """Begin a request: its head is waited for."""
        if len(self.pipeline) >= _PIPELINED:
            self._give_up()
            raise HttpParserError("too many requests at once")
        self.silent.pop(self, None)
        super().on_message_begin()
        if self._head is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """Begin to serve a request."""
        self._had_head()
        self._head_bytes = 0
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for another request, if none is there yet."""
        super().on_response_complete()
        if self.cycle.response_complete and self._head is None and not self.transport.is_closing():
            self.silent[self] = None

    def send_400_response(self, msg: str) -> None:
        """End a connection that sends no HTTP."""
        if not self.transport.is_closing():
            self.transport.write(_NO_HTTP)
            self.transport.close()

    def pause_writing(self) -> None:
        """Wait for the other side to read what it was sent."""
        super().pause_writing()
        self._has_read()
        self._reading = self.loop.call_later(self.within_s, self._give_up)

    def resume_writing(self) -> None:
        """Go on: it has read."""
        self._has_read()
        super().resume_writing()

    def _has_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _made_room(self) -> bool:
        """Close the connection that has been silent longest, if any is."""
        longest = next(iter(self.silent), None)
        if longest is None:
            return False
        del self.silent[longest]
        longest.transport.close()
        self.connections.discard(longest)  # it counts no more, though it ends a moment later
        return True

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.within_s, self._give_up)

    def _had_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()
