"""Runs commands of `skysail` for the live page: a process each, bounded in number, in time and in what it says.

So the page needs none of the clients that commands have, and does what they do, not something like it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from deploy.config import configuration
from deploy.local.logs import homes, tail
from deploy.local.process import tethered
from streams.control.web.application import CommandResult
from streams.gateway.protocol.values import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deploy.config.settings import Settings

_TOGETHER: Final = 2  # a command takes 80 MB and a second of a core
_WAITING: Final = 8
_WITHIN_S: Final = 120.0
_MOST_BYTES: Final = 4 << 20  # of what one says
_LOG_LINES: Final = 400
_FAULT_LINES: Final = 5


class PageCommands:
    """Runs commands with this deployment's settings.

    Args:
        settings: of the deployment; written to a file that only its owner can read.
        folder: where that file is.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._config = configuration.write(settings, folder / "settings.yaml")
        self._logs = settings.control.logs
        self._turns = asyncio.Semaphore(_TOGETHER)
        self._there = 0

    async def run(self, words: Sequence[str]) -> CommandResult:
        """Run `skysail` with these words, when it is their turn.

        Raises:
            RequestRefusedError: too many wait.
        """
        if self._there >= _WAITING:
            raise RequestRefusedError(503, "too many commands are under way; try again", 5)
        self._there += 1
        try:
            async with self._turns:
                return await self._ended(words)
        finally:
            self._there -= 1

    def log(self, instance: str) -> str | None:
        """Return the last lines of a process's log; None = there is none here."""
        if self._logs is None or not instance or "/" in instance or instance.startswith("."):
            return None
        name = self._process_of(instance.removesuffix("@1"))  # the first of a role has no number
        file = self._logs / f"{name}.log"
        return tail(file, _LOG_LINES) if file.is_file() else None

    def _process_of(self, instance: str) -> str:
        """Return the process that an instance runs in, as `skysail run` has written it; by itself it has one."""
        assert self._logs is not None, "it was looked at before"
        try:
            known: dict[str, str] = json.loads(homes(self._logs).read_bytes())
        except (OSError, ValueError):
            return instance
        return known.get(instance, instance)

    async def _ended(self, words: Sequence[str]) -> CommandResult:
        argv = tethered([sys.executable, "-P", "-m", "deploy.cli", *words])
        own = {name: value for name, value in os.environ.items() if not name.startswith("SKYSAIL_")}
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=own | {"SKYSAIL_CONFIG": str(self._config)},
            limit=_MOST_BYTES,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(_WITHIN_S):
                said, told, code = await asyncio.gather(
                    _bounded(process.stdout), _bounded(process.stderr), process.wait()
                )
        except TimeoutError:
            return CommandResult(1, b"", f"it took longer than {_WITHIN_S:.0f} s; type it to let it run on")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if len(said) > _MOST_BYTES:
            return CommandResult(1, b"", "it says too much for the page; type it")
        fault = "\n".join(told.decode(errors="replace").splitlines()[-_FAULT_LINES:])
        return CommandResult(code, said, fault)


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    """Read all; keep little more than the bound."""
    found = b""
    while chunk := await stream.read(1 << 16):
        if len(found) <= _MOST_BYTES:
            found += chunk
    return found
