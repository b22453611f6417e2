"""Names the role in each line of a log that several roles write.

2026-01-01 12:00:00,000 WARNING [joiner] streams.runtime.role.loop: ...
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from streams.runtime.process.run import Runnable

_ROLE = ContextVar("role", default="")


class WithRole(logging.Filter):
    """Gives each line the attribute `role`: the name in brackets, or nothing outside of a named role."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Take every line."""
        role = _ROLE.get()
        record.role = f"[{role}] " if role else ""
        return True


class Named:
    """A role whose lines carry its name; so do those of all tasks that it starts."""

    def __init__(self, name: str, role: Runnable) -> None:
        self._name = name
        self._role = role

    async def run(self, stop: asyncio.Event) -> None:
        """Run the role in its own task until `stop` is set."""
        _ROLE.set(self._name)
        await self._role.run(stop)
