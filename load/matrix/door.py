"""Queries over HTTP beside the others, one after the other: what was replied to, and what may have been asked."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from load.harness.http import post

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PAUSE_S: Final = 0.5
_REPLY_S: Final = 20.0
_OK: Final = 200


class Door:
    """Asks one application through the gateway.

    Attributes:
        replied: ids of queries whose answer came.
        perhaps: ids of those that may be there.
        replied_s: when the last answer came.
    """

    def __init__(self, port: int, application: str) -> None:
        self.replied: set[str] = set()
        self.perhaps: set[str] = set()
        self.replied_s = 0.0
        self._port, self._application = port, application
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Ask for the time of a block."""
        self._task = asyncio.create_task(self._ask())
        try:
            yield
        finally:
            await self.enough()

    async def enough(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _ask(self) -> None:
        number = 0
        while True:
            name, number = f"http{number}", number + 1
            self.perhaps.add(name)
            status = 0
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_REPLY_S):
                    status = await self._told(name)
            if status == _OK:
                self.replied.add(name)
                self.replied_s = time.monotonic()
            await asyncio.sleep(_PAUSE_S)

    async def _told(self, name: str) -> int:
        """Return the status of a reply, over a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            tensor = {"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
            body = json.dumps({"id": name, "inputs": [tensor]}).encode()
            writer.write(post(f"/v2/models/{self._application}/infer", body))
            await writer.drain()
            return int((await reader.readline())[9:12] or b"0")
        finally:
            writer.close()
