"""A row of the matrix as data: who is broken and how; and the place where it happens."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from load.matrix.setting import INSTANCES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    from load.harness.proxy import Proxy
    from load.harness.system import Brokers, RedisService, System
    from load.matrix.door import Door
    from load.matrix.traffic import Traffic

VANISHED, UNCLEAN = "topics", "unclean"
LOSSY = frozenset({VANISHED, UNCLEAN})  # the parts whose rows take records away
SESSION_S = 10.0  # of the roles' consumers
STILL_S = 1.5 * SESSION_S
_LOOK_S = 0.1
_BACK_S = 60.0
# Says what does not work since a time (s); empty = it works.
Check: TypeAlias = "Callable[[Place, float], str]"
# Breaks something, and returns when it is over: what was stopped goes on, what was killed was noticed.
Blow: TypeAlias = "Callable[[Place], Coroutine[None, None, Seen | None]]"


class Seen(NamedTuple):
    """What a blow has to tell: figures by their words, and what was wrong."""

    figures: Mapping[str, float]
    faults: tuple[str, ...] = ()


NOTHING = Seen({})


@dataclass(frozen=True, slots=True)
class Place:
    """What can be broken.

    Attributes:
        prefix: of the deployment.
        bootstrap: where clients connect.
        store_url: where clients of the store connect.
        system: the processes of the roles.
        brokers: the cluster.
        redis: the store.
        traffic: who asks.
        models: that are asked.
        door: who asks over HTTP.
        trace: the folder that `record` writes.
        page: the port of the live page.
        is_short: whether a storm is a minute long.
        proxy: through which clients reach the brokers and the store, where there is one.
        second_redis: that follows the store, where there is one.
    """

    prefix: str
    bootstrap: str
    store_url: str
    system: System
    brokers: Brokers
    redis: RedisService
    traffic: Traffic
    models: tuple[str, ...]
    door: Door
    trace: Path
    page: int
    is_short: bool = False
    proxy: Proxy | None = None
    second_redis: RedisService | None = None

    def process(self, role: str) -> str:
        """Return the process that a role runs in."""
        return self.system.process_of(INSTANCES[role])

    def signal(self, role: str, number: int) -> None:
        """Send a signal to a role's process."""
        os.kill(self.system.pids[self.process(role)], number)

    async def restarted(self, role: str, before: Mapping[str, int]) -> None:
        """Wait until the supervisor has started a role's process again.

        Raises:
            TimeoutError: it has not.
        """
        name = self.process(role)
        async with asyncio.timeout(_BACK_S):
            while self.system.restarts[name] == before[name] or name not in self.system.pids:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)


@dataclass(frozen=True, slots=True)
class Broken:
    """A row.

    Attributes:
        name: as it is shown: `selection SIGKILL`.
        part: that is asked for by `--only`.
        blow: breaks something.
        ends: the roles that it ends itself.
        times: how often it is repeated in the long form.
        works: says, beside answers and groups, what does not work again since then (s).
    """

    name: str
    part: str
    blow: Blow
    ends: tuple[str, ...] = ()
    times: int = 3
    works: Check | None = None


@asynccontextmanager
async def still(pid: int) -> AsyncIterator[None]:
    """Let a process stand still (SIGSTOP) for the time of a block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
