"""One process's connection to a store in memory: slow, lossy or away."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from streams.runtime.errors import StoreUnavailableError
from streams.runtime.stores.base import MemoryStore
from streams.testing.virtual import later

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

_T = TypeVar("_T")
# After this the client gives an answer up, as `RedisSettings.timeout_s`.
TIMEOUT_S = 0.5


@dataclass(slots=True)
class StoreWeather:
    """What fails now.

    Attributes:
        away: it answers nobody.
        lossy: the share of answers that are lost; what was asked has happened.
        leg_s: how long a message takes, at least and at most; each takes its own way, so that they overtake each other.
    """

    away: int = 0
    lossy: float = 0.0
    leg_s: tuple[float, float] = (0.0003, 0.002)


@dataclass
class SharedStore:
    """A store that several processes use."""

    inner: MemoryStore = field(default_factory=MemoryStore)
    weather: StoreWeather = field(default_factory=StoreWeather)


class SimulatedStore:
    """Implements `StateStore` for one process; any call takes a leg, happens, and is answered after another."""

    def __init__(self, shared: SharedStore, random: Random, is_dead: Callable[[], bool]) -> None:
        self._shared = shared
        self._random = random
        self._is_dead = is_dead

    def __getattr__(self, name: str) -> Any:
        """Return a call of the store."""

        async def call(*arguments: Any) -> Any:
            return await self._ask(lambda: _result(getattr(self._shared.inner, name)(*arguments)))

        return call

    async def close(self) -> None:
        """Do nothing: the others still use it."""

    async def _ask(self, happen: Callable[[], _T]) -> _T:
        if self._is_dead():
            raise StoreUnavailableError("the process was killed")
        weather, random = self._shared.weather, self._random
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        def arrived() -> None:
            if weather.away:
                return
            result = happen()
            if random.random() >= weather.lossy:
                later(random.uniform(*weather.leg_s), lambda: None if answer.done() else answer.set_result(result))

        later(random.uniform(*weather.leg_s), arrived)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise StoreUnavailableError("the store did not answer") from None


def _result(call: Coroutine[object, None, _T]) -> _T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("a store in memory waits for nothing")
