"""Tests of the policy-state store on a real Redis."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import redis.asyncio

from schemas.codec import Codec
from schemas.records import PolicyState
from streams.operators.contract import StateKey, WriteStates
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.redis_store import RedisSettings, RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deploy.local.redis import RedisServer

# Numbers that a careless encoding changes: the smallest, the largest, one third, minus zero.
VALUES = (5e-324, 1.7976931348623157e308, 1 / 3, -0.0, math.pi)


def state(version: int, values: tuple[float, ...] = VALUES) -> PolicyState:
    """Return a state."""
    return PolicyState("exp3(eta=0.05)", ("a", "b"), version, values)


def write(expected: int | None, offset: int, **states: PolicyState) -> WriteStates:
    """Return a write to partition 2."""
    return WriteStates(2, expected, offset, states, ())


@asynccontextmanager
async def connected(url: str, prefix: str) -> AsyncIterator[RedisStore]:
    """Connect to a Redis."""
    store = RedisStore(RedisSettings(url, prefix), Codec())
    yield store
    await store.close()


async def test_states_survive_bit_for_bit(redis_server: RedisServer, prefix: str) -> None:
    """What is read is what was written, also for numbers at the edges of a double."""
    async with connected(redis_server.url, prefix) as store:
        assert await store.write(write(None, 7, **{"digits/ü": state(7)})) == (True, 7)
        key = StateKey(2, "digits/ü")
        found = await store.read([key, StateKey(2, "none"), StateKey(0, "digits/ü")])
        assert found == {key: state(7), StateKey(2, "none"): None, StateKey(0, "digits/ü"): None}
        read = found[key]
        assert read is not None
        assert [value.hex() for value in read.values] == [value.hex() for value in VALUES]


async def test_a_zombie_is_refused_and_changes_nothing(redis_server: RedisServer, prefix: str) -> None:
    """Who does not know the present offset learns it, and neither states nor offset change."""
    async with connected(redis_server.url, prefix) as owner, connected(redis_server.url, prefix) as zombie:
        await owner.write(write(None, 5, digits=state(5)))
        await owner.write(write(5, 9, digits=state(9)))
        assert await zombie.write(write(5, 6, digits=state(6), new=state(1))) == (False, 9)
        assert await zombie.write(write(None, 1, digits=state(1))) == (False, 9)
        assert await owner.offset(2) == 9
        assert await owner.read([StateKey(2, "digits"), StateKey(2, "new")]) == {
            StateKey(2, "digits"): state(9),
            StateKey(2, "new"): None,
        }


async def test_a_write_that_expects_something_is_refused_by_an_empty_store(
    redis_server: RedisServer, prefix: str
) -> None:
    """A store that lost everything says so."""
    async with connected(redis_server.url, prefix) as store:
        assert await store.offset(2) is None
        assert await store.write(write(4, 5, digits=state(5))) == (False, None)


async def test_a_repeated_write_is_recognised(redis_server: RedisServer, prefix: str) -> None:
    """An answer that got lost does not look like someone else's write."""
    async with connected(redis_server.url, prefix) as store:
        await store.write(write(None, 5, digits=state(5)))
        assert await store.write(write(None, 5, digits=state(5))) == (True, 5)


async def test_thousands_of_states_fit_into_one_write(redis_server: RedisServer, prefix: str) -> None:
    """More than Lua's unpack could take."""
    async with connected(redis_server.url, prefix) as store:
        names = [f"digits/{n}" for n in range(10_000)]
        assert await store.write(write(None, 1, **dict.fromkeys(names, state(1)))) == (True, 1)
        found = await store.read(StateKey(2, name) for name in names)
        assert len(found) == 10_000
        assert all(value == state(1) for value in found.values())


async def test_all_keys_of_a_partition_share_a_slot(redis_server: RedisServer, prefix: str) -> None:
    """A cluster runs the script, too."""
    async with connected(redis_server.url, prefix) as store:
        await store.write(write(None, 1, digits=state(1)))
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        keys = sorted([key async for key in client.scan_iter(f"*{prefix}*")])
        assert keys == [f"{{{prefix}:2}}:offset".encode(), f"{{{prefix}:2}}:states".encode()]


async def test_a_restart_is_survived_and_forgotten_scripts_are_loaded_again(
    own_redis: RedisServer, prefix: str
) -> None:
    """While it is down every call fails at once; afterwards the states are there."""
    async with connected(own_redis.url, prefix) as store:
        await store.write(write(None, 5, digits=state(5)))
        own_redis.restart()
        for _ in range(2):  # the first call may find its connection cut
            try:
                offset = await store.offset(2)
            except StoreUnavailableError:
                continue
            assert offset == 5
        assert await store.write(write(5, 6, digits=state(6))) == (True, 6)


async def test_a_redis_that_is_down_is_unavailable(own_redis: RedisServer, prefix: str) -> None:
    """Reads and writes say so; nothing is retried behind our back."""
    async with connected(own_redis.url, prefix) as store:
        own_redis.kill()
        for call in (store.offset(2), store.read([StateKey(2, "a")]), store.write(write(None, 1, a=state(1)))):
            with pytest.raises(StoreUnavailableError, match="Redis did not answer"):
                await call
