"""A server before another one that lets each answer wait for a drawn time: a store whose latency has a long tail."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BYTES = 65_536


class SlowServer:
    """Passes bytes on, in a thread of its own; answers of one connection come in order, those of others overtake them.

    Args:
        url: of the server behind.
        draw_s: how long the next answer waits.

    Attributes:
        url: under which this one is asked.
        delays_s: that were drawn.
    """

    def __init__(self, url: str, draw_s: Callable[[], float]) -> None:
        self._behind = urlsplit(url)
        self._draw_s = draw_s
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.delays_s: list[float] = []

    def start(self) -> None:
        """Listen on a free port."""
        is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(is_open,), name="slow server", daemon=True)
        self._thread.start()
        is_open.wait()

    def stop(self) -> None:
        """Close all connections and accept no more; it may be called again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self, is_open: threading.Event) -> None:
        loop = self._loop
        server = self._server = loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        port = server.sockets[0].getsockname()[1]
        login = self._behind.netloc.rpartition("@")[0]
        place = f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}"
        self.url = urlunsplit(self._behind._replace(netloc=place))
        is_open.set()
        loop.run_forever()
        loop.run_until_complete(self._close(server))
        loop.close()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._open:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._open), return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = self._behind
        answers, questions = await asyncio.open_connection(behind.hostname, behind.port or 6379)
        self._open |= {writer, questions}
        for job in (self._pass(reader, questions), self._answer(answers, writer)):
            task = asyncio.get_running_loop().create_task(job)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await reader.read(_BYTES):
                writer.write(content)
                await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await reader.read(_BYTES):
                delay_s = self._draw_s()
                self.delays_s.append(delay_s)
                await asyncio.sleep(delay_s)
                writer.write(content)
                await writer.drain()
        writer.close()


@contextmanager
def slowed(url: str, draw_s: Callable[[], float]) -> Iterator[SlowServer]:
    """Run one for the time of a block."""
    server = SlowServer(url, draw_s)
    server.start()
    try:
        yield server
    finally:
        server.stop()
