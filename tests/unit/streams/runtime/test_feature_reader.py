"""Features are read in lanes: a slow or failing read holds up no other, and what waits is bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from streams.operators.contract import LOOKED_UP, Record
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.role.feature_reader import LANES, READ_KEYS, WAITING_KEYS, FeatureReader

if TYPE_CHECKING:
    from collections.abc import Sequence


class Store:
    """A store that answers some keys at once, others when it is told to, and fails on others."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.going_on = asyncio.Event()

    async def features(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Answer."""
        self.asked += keys
        if "bad" in keys:
            raise StoreUnavailableError("away")
        if any(key.startswith("slow") for key in keys):
            await self.going_on.wait()
        return [key.encode() for key in keys]

    async def close(self) -> None:
        """Do nothing."""


class Reading:
    """A reader at work, and what it has delivered."""

    def __init__(self) -> None:
        self.store = Store()
        self.delivered: list[Record] = []
        self.reader = FeatureReader(self.store, self.delivered.extend)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.reader.run())
        await self.turns()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def turns(self) -> None:
        """Let the event loop do all that is ready."""
        for _ in range(3 * LANES):
            await asyncio.sleep(0)

    async def ask(self, *keys: str) -> list[str]:
        """Ask for keys; return all that have been delivered so far."""
        self.reader.ask(keys)
        await self.turns()
        return [(record.key or b"").decode() for record in self.delivered]


async def test_what_is_found_comes_as_records_of_the_topic() -> None:
    """Of a partition that the topic does not have."""
    async with Reading() as reading:
        await reading.ask("users/ann")
    assert reading.delivered == [Record("features", LOOKED_UP, LOOKED_UP, 0, b"users/ann", b"users/ann")]


async def test_a_slow_read_holds_up_no_other() -> None:
    """As long as a lane is left; then keys wait together."""
    async with Reading() as reading:
        for number in range(LANES - 1):
            await reading.ask(f"slow-{number}")
        assert await reading.ask("fast") == ["fast"]
        assert await reading.ask("slow") == ["fast"]
        assert await reading.ask("late") == ["fast"]
        reading.store.going_on.set()
        assert sorted(await reading.ask()) == sorted(["fast", "late", "slow", *(f"slow-{n}" for n in range(LANES - 1))])


async def test_a_read_that_fails_is_not_tried_again() -> None:
    """Its kernel goes on without, and others are read meanwhile."""
    async with Reading() as reading:
        assert await reading.ask("bad") == []
        assert await reading.ask("good") == ["good"]
        assert reading.store.asked == ["bad", "good"]
        assert reading.reader.statistics()["feature_failures_total"] == 1


async def test_keys_that_wait_are_bounded_and_the_oldest_go() -> None:
    """They are counted; a read takes so many at most."""
    reading = Reading()
    reading.reader.ask(f"slow/{number}" for number in range(WAITING_KEYS + 10))
    assert reading.reader.statistics()["features_forgotten_total"] == 10
    async with reading:
        assert len(reading.store.asked) == LANES * READ_KEYS
        assert reading.store.asked[0] == "slow/10"


async def test_sources_take_turns_and_the_one_that_wants_most_is_cut_first() -> None:
    """A flood of one source's keys neither drives out another's nor goes before them."""
    async with Reading() as reading:
        for number in range(LANES):
            await reading.ask(f"slow-{number}")  # no lane is left
        reading.reader.ask(f"flood/{number}" for number in range(WAITING_KEYS))
        reading.reader.ask(["users/ann"])
        reading.reader.ask(f"flood/{WAITING_KEYS + number}" for number in range(WAITING_KEYS))
        assert reading.reader.statistics()["features_forgotten_total"] == WAITING_KEYS + 1
        reading.store.going_on.set()
        await reading.turns()
    assert reading.store.asked.index("users/ann") < LANES + 2 * READ_KEYS
