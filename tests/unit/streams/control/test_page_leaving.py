"""A command of the page runs while somebody waits for what it says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from streams.control.web.application import CommandResult
from tests.pages import empty_state, now_us, page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence


class EndlessCommand:
    """A command that says nothing until it is ended; it notes both."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, words: Sequence[str]) -> CommandResult:
        """Wait."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return CommandResult(0, b"{}", "")


async def ask(run: Callable[[Sequence[str]], Awaitable[CommandResult]], left: asyncio.Event) -> list[Mapping[str, Any]]:
    """Ask for a story, and hang up once `left` is set; return what was sent."""
    sent: list[Mapping[str, Any]] = []
    messages = iter([{"type": "http.request", "body": b""}])

    async def receive() -> Mapping[str, Any]:
        if (message := next(messages, None)) is not None:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/story",
        "query_string": b"id=7",
        "headers": [(b"host", b"127.0.0.1")],
    }
    await page(empty_state(now_us()), run=run)(scope, receive, send)
    return sent


async def test_a_command_ends_when_its_asker_leaves() -> None:
    """Else a page that is opened and closed often would keep both of its processes busy for minutes."""
    command, left = EndlessCommand(), asyncio.Event()
    asked = asyncio.create_task(ask(command, left))
    await command.begun.wait()
    assert not command.ended.is_set()
    left.set()
    assert await asked == []
    assert command.ended.is_set()


async def test_who_stays_is_answered() -> None:
    """The first message of a request without a body is no farewell."""

    async def run(_: Sequence[str]) -> CommandResult:
        return CommandResult(0, b'{"id":7}', "")

    sent = await ask(run, asyncio.Event())
    assert sent[0]["status"] == 200
    assert b'{"id":7}' in sent[1]["body"]
