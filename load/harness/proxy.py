"""A TCP proxy that makes a network bad: cut, half-open, slow, narrow. It runs in a thread with a loop of its own.

    with Proxy([9092]) as proxy:
        proxy.doors[9092]             the port that clients are to connect to
        proxy.weather = Weather(delay_s=0.05)
        proxy.cut()                   no connection, old or new, until `mend`
        proxy.half_open()             those that there are fall silent for good; new ones work
        proxy.lead(9092, 9093)        new connections go elsewhere, old ones are closed

Weather counts for both directions, and a change of it at once.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from types import TracebackType

HOST: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 64 << 10
_CHUNKS: Final = 64  # under way in one direction: beyond that the sender waits, as in a full socket
_ANSWER_S: Final = 10.0
_CONNECT_S: Final = 2.0  # a process that stands still accepts nothing
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Weather:
    """How a network is.

    Attributes:
        delay_s: of each byte, one way.
        bytes_per_s: of each connection and direction; 0 = as many as come.
    """

    delay_s: float = 0.0
    bytes_per_s: float = 0.0


FAIR: Final = Weather()


@dataclass(eq=False, slots=True)
class _Line:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    answers: asyncio.StreamReader
    is_silent: bool = False  # what comes is lost, and nobody is told

    def close(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


@dataclass(eq=False)
class Proxy:
    """Doors to ports of this machine.

    Attributes:
        targets: the ports.
        doors: by target, where clients connect.
        weather: of all that passes.
    """

    targets: Sequence[int]
    doors: dict[int, int] = field(default_factory=dict)
    weather: Weather = FAIR

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._lines: set[_Line] = set()
        self._leads: dict[int, int] = {}
        self._is_cut = False
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()  # of them: those that have a line

    def __enter__(self) -> Self:
        self._thread.start()
        self._done(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Close all connections, and take no new ones, until `mend`."""
        self._is_cut = True
        self._call(self._drop)

    def mend(self) -> None:
        """Take connections again, in fair weather."""
        self._is_cut, self.weather = False, FAIR

    def half_open(self) -> None:
        """Let all present connections fall silent: neither side hears of the other any more, nor of its end."""

        def silence() -> None:
            for line in self._lines:
                line.is_silent = True

        self._call(silence)

    def lead(self, target: int, elsewhere: int) -> None:
        """Connect the door of a target to another port, and close what is connected."""
        self._leads[target] = elsewhere
        self._call(self._drop)

    @property
    def lines(self) -> int:
        """How many connections there are that are not silent."""
        return sum(not line.is_silent for line in [*self._lines])

    # ------------------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        for target in self.targets:
            door = socket.create_server((HOST, 0))
            door.setblocking(False)
            self.doors[target] = door.getsockname()[1]
            self._begin(self._listen(door, target))

    async def _close(self) -> None:
        """End all; nothing is cancelled that may hold a connection which was just made: nobody would close it."""
        self._is_cut = self._is_over = True
        for port in self.doors.values():
            with suppress(OSError):  # another one has come
                _, writer = await asyncio.open_connection(HOST, port)  # whoever listens awakes
                writer.transport.abort()
        for task in self._serving:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _listen(self, door: socket.socket, target: int) -> None:
        with door:
            while not self._is_over:
                line, _ = await self._loop.sock_accept(door)
                self._begin(self._taken(target, line))

    def _begin(self, what: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _drop(self) -> None:
        for line in [*self._lines]:
            line.close()

    async def _taken(self, target: int, accepted: socket.socket) -> None:
        """Serve one connection until either side ends it."""
        reader, writer = await asyncio.open_connection(sock=accepted)
        line = None if self._is_cut else await self._connected(target, writer)
        if line is None:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._lines.add(line)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(line, reader, line.server))
                both.create_task(self._pump(line, line.answers, writer))
        except* OSError:
            pass
        finally:
            self._serving.discard(task)
            self._lines.discard(line)
            line.close()

    async def _connected(self, target: int, client: asyncio.StreamWriter) -> _Line | None:
        """Connect to a target; None = it refuses, or all has been cut meanwhile."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                answers, server = await asyncio.open_connection(HOST, self._leads.get(target, target))
        except OSError:
            return None
        if self._is_cut:
            server.transport.abort()
            return None
        return _Line(client, server, answers)

    async def _pump(self, line: _Line, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Carry bytes one way; the end of either side ends both."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._take(line, source, under_way))
            both.create_task(self._give(line, under_way, sink))

    async def _take(
        self, line: _Line, source: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        while chunk := await source.read(_CHUNK_BYTES):
            if not line.is_silent:
                await under_way.put((self._loop.time() + self.weather.delay_s, chunk))
        if line.is_silent:
            await asyncio.Event().wait()  # whoever is away does not hear of the end either, until all is closed
        raise ConnectionResetError("one side has ended the connection")

    async def _give(
        self, line: _Line, under_way: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
    ) -> None:
        while True:
            due_s, chunk = await under_way.get()
            if (wait_s := due_s - self._loop.time()) > 0:
                await asyncio.sleep(wait_s)
            if rate := self.weather.bytes_per_s:
                await asyncio.sleep(len(chunk) / rate)
            if not line.is_silent:
                sink.write(chunk)
                await sink.drain()

    def _call(self, what: Callable[[], None]) -> None:
        async def called() -> None:
            what()

        self._done(called())

    def _done(self, what: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(_ANSWER_S)
