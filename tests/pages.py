"""The live page for tests: served from a state, with commands that are only noted."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from streams.control.minutes import Minutes
from streams.control.page.visibility import DeploymentSettings, Visibility
from streams.control.state import ControlState
from streams.control.web.application import CommandResult, PageApplication, PageParts
from streams.control.web.rights import PageRights
from streams.gateway.bodies import Bodies
from streams.gateway.server import GatewayServer, Listening
from streams.gateway.tokens import BearerTokens
from streams.runtime.process.host_names import names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

TOKENS = "reader-0123456789 read\nactor-0123456789 act\n"


def now_us() -> int:
    """Return the time."""
    return time.time_ns() // 1000


def empty_state(begun_us: int) -> ControlState:
    """Return a state that has read nothing."""
    place = DeploymentSettings("skysail", "control@1", "127.0.0.1:9092", "127.0.0.1:6379")
    return ControlState({}, Visibility(place, begun_us), None, None, Minutes({}))


class NotedCommands:
    """Notes what it is to run, and says what it was given for it."""

    def __init__(self, said: Mapping[str, bytes] | None = None) -> None:
        self.ran: list[tuple[str, ...]] = []
        self._said = dict(said or {})

    async def __call__(self, words: Sequence[str]) -> CommandResult:
        """Note the words; the answer goes by the first two of them."""
        self.ran.append(tuple(words))
        said = next((said for name, said in self._said.items() if " ".join(words).startswith(name)), b"{}")
        return CommandResult(0, said, "")


def page(
    state: ControlState,
    *,
    run: NotedCommands | None = None,
    tokens: str = "",
    shows_records: bool = True,
    clock: Callable[[], int] = now_us,
) -> PageApplication:
    """Return the page of a state."""
    return PageApplication(
        PageParts(
            known=names("127.0.0.1", ["Page.example"]),
            status=lambda: state.shown(clock()),
            charts=lambda minutes, application: state.charts(minutes, application, clock()),
            is_blind=lambda: state.is_blind(clock()),
            rights=PageRights(BearerTokens(tokens), shows_records),
            bodies=Bodies(1_024, 4_096, 1.0),
            run=run or NotedCommands(),
            log={"worker.forest@1": "line one\nline two"}.get,
        )
    )


@asynccontextmanager
async def served(application: PageApplication, within_s: float = 10.0) -> AsyncIterator[GatewayServer]:
    """Serve a page on a free port."""
    server, stop = GatewayServer(application, Listening("127.0.0.1", 0, within_s=within_s)), asyncio.Event()
    serving = asyncio.create_task(server.run(stop))
    try:
        yield server
    finally:
        stop.set()
        await serving
        server.close()
