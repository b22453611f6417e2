"""Lines of a log that several roles write."""

from __future__ import annotations

import asyncio
import logging

from deploy.process.log_roles import Named, WithRole


class Talking:
    """A role that logs, and so does a task of it."""

    def __init__(self, lines: list[logging.LogRecord]) -> None:
        self._lines = lines

    async def run(self, stop: asyncio.Event) -> None:
        """Log twice."""
        self.say()
        await asyncio.create_task(self.later())

    async def later(self) -> None:
        """Log once more."""
        self.say()

    def say(self) -> None:
        """Make a line as the handler of a log does."""
        line = logging.LogRecord("name", logging.INFO, "", 1, "text", None, None)
        WithRole().filter(line)
        self._lines.append(line)


async def test_each_line_names_the_role_whose_task_wrote_it() -> None:
    """Whatever runs beside it; a line of no role names none."""
    lines: dict[str, list[logging.LogRecord]] = {"joiner": [], "learner": [], "": []}
    Talking(lines[""]).say()
    async with asyncio.TaskGroup() as tasks:
        for name in ("joiner", "learner"):
            tasks.create_task(Named(name, Talking(lines[name])).run(asyncio.Event()))
    told = {name: [line.role for line in of] for name, of in lines.items()}  # type: ignore[attr-defined]
    assert told == {"joiner": ["[joiner] "] * 2, "learner": ["[learner] "] * 2, "": [""]}
