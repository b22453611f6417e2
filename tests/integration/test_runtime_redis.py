"""Tests of the policy-state store on a real Redis."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import redis.asyncio

from schemas.codec import Codec
from schemas.records import PolicyState
from streams.operators.contract import FetchStates, StateKey, WriteStates
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.role.state_queue import StateQueue, StateQueueEvents
from streams.runtime.stores.redis import DAMAGED, OFFSET_FIELD, RedisSettings, RedisStore

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
        assert await store.write(write(None, 7, **{"digits/ü": state(7)}), "a") == (True, 7, "a")
        key = StateKey(2, "digits/ü")
        found = await store.read([key, StateKey(2, "none"), StateKey(0, "digits/ü")])
        assert found.states == {key: state(7), StateKey(2, "none"): None, StateKey(0, "digits/ü"): None}
        assert found.offsets == {2: 7, 0: None}
        read = found.states[key]
        assert read is not None
        assert [value.hex() for value in read.values] == [value.hex() for value in VALUES]


async def test_a_zombie_is_refused_and_changes_nothing(redis_server: RedisServer, prefix: str) -> None:
    """Who does not know the present offset learns it, and neither states nor offset change."""
    async with connected(redis_server.url, prefix) as owner, connected(redis_server.url, prefix) as zombie:
        await owner.write(write(None, 5, digits=state(5)), "a")
        await owner.write(write(5, 9, digits=state(9)), "b")
        assert await zombie.write(write(5, 6, digits=state(6), new=state(1)), "z") == (False, 9, "b")
        assert await zombie.write(write(None, 1, digits=state(1)), "z") == (False, 9, "b")
        assert await zombie.write(write(5, 9, digits=state(1)), "z") == (False, 9, "b"), "equal, and not the same"
        assert await owner.offset(2) == 9
        found = await owner.read([StateKey(2, "digits"), StateKey(2, "new")])
        assert found.states == {StateKey(2, "digits"): state(9), StateKey(2, "new"): None}


async def test_a_write_that_expects_something_is_refused_by_an_empty_store(
    redis_server: RedisServer, prefix: str
) -> None:
    """A store that lost everything says so."""
    async with connected(redis_server.url, prefix) as store:
        assert await store.offset(2) is None
        assert await store.write(write(4, 5, digits=state(5)), "a") == (False, None, "")


async def test_a_repeated_write_is_recognised(redis_server: RedisServer, prefix: str) -> None:
    """An answer that got lost does not look like someone else's write."""
    async with connected(redis_server.url, prefix) as store:
        await store.write(write(None, 5, digits=state(5)), "a")
        assert await store.write(write(None, 5, digits=state(5)), "a") == (True, 5, "a")


async def test_thousands_of_states_fit_into_one_write(redis_server: RedisServer, prefix: str) -> None:
    """More than Lua's unpack could take."""
    async with connected(redis_server.url, prefix) as store:
        names = [f"digits/{n}" for n in range(10_000)]
        assert await store.write(write(None, 1, **dict.fromkeys(names, state(1))), "a") == (True, 1, "a")
        found = (await store.read(StateKey(2, name) for name in names)).states
        assert len(found) == 10_000
        assert all(value == state(1) for value in found.values())


async def test_states_and_offset_of_a_partition_are_one_key(redis_server: RedisServer, prefix: str) -> None:
    """Neither can be evicted without the other, and a cluster runs the script, too."""
    async with connected(redis_server.url, prefix) as store:
        await store.write(write(None, 1, digits=state(1)), "a")
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        keys = [key async for key in client.scan_iter(f"*{prefix}*")]
        assert keys == [f"{{{prefix}:2}}:states".encode()]


async def test_a_store_of_an_older_version_is_taken_over(redis_server: RedisServer, prefix: str) -> None:
    """Its states and its offset are read, then kept in one key; the older version stops at what it finds there."""
    place = f"{{{prefix}:2}}"
    async with (
        connected(redis_server.url, prefix) as store,
        redis.asyncio.Redis.from_url(redis_server.url) as client,
    ):
        await client.hset(f"{place}:states", "digits", Codec().encode(state(5)))
        await client.set(f"{place}:offset", 5)
        assert await store.offset(2) == 5
        found = await store.read([StateKey(2, "digits")])
        assert (found.states, found.offsets) == ({StateKey(2, "digits"): state(5)}, {2: 5})
        assert await store.write(write(5, 6, digits=state(6)), "a") == (True, 6, "a")
        assert await store.offset(2) == 6
        with pytest.raises(ValueError, match="start a newer version"):
            int(await client.get(f"{place}:offset"))


async def test_an_older_offset_whose_states_were_evicted_stands_for_nothing(
    redis_server: RedisServer, prefix: str
) -> None:
    """All is folded again from the log."""
    async with (
        connected(redis_server.url, prefix) as store,
        redis.asyncio.Redis.from_url(redis_server.url) as client,
    ):
        await client.set(f"{{{prefix}:2}}:offset", 5)
        assert await store.offset(2) is None


async def test_one_damaged_state_does_not_keep_the_others_from_being_read(
    redis_server: RedisServer, prefix: str
) -> None:
    """What cannot be read is named, with what to do."""
    async with (
        connected(redis_server.url, prefix) as store,
        redis.asyncio.Redis.from_url(redis_server.url) as client,
    ):
        await store.write(write(None, 1, digits=state(1), other=state(1)), "a")
        await client.hset(f"{{{prefix}:2}}:states", "other", b"damaged")
        found = await store.read([StateKey(2, "digits"), StateKey(2, "other"), StateKey(2, OFFSET_FIELD)])
        assert found.states == {StateKey(2, "digits"): state(1), StateKey(2, OFFSET_FIELD): None}
        assert f"redis-cli del '{{{prefix}:2}}:states'" in found.unreadable[StateKey(2, "other")]


@pytest.mark.parametrize("damaged", [b"damaged", b"1x:a", b"\xff:a", b"1" * 5_000 + b":a"])
async def test_a_damaged_offset_teaches_nothing_and_says_what_to_delete(
    redis_server: RedisServer, prefix: str, damaged: bytes
) -> None:
    """States are still read, for deciding; nothing is folded on them, not even by who expects nothing there."""
    place = f"{{{prefix}:2}}:states"
    async with (
        connected(redis_server.url, prefix) as store,
        redis.asyncio.Redis.from_url(redis_server.url) as client,
    ):
        await store.write(write(None, 1, digits=state(1)), "a")
        await client.hset(place, OFFSET_FIELD, damaged)
        found = await store.read([StateKey(2, "digits")])
        assert (found.states, found.offsets) == ({StateKey(2, "digits"): state(1)}, {2: DAMAGED})
        with pytest.raises(StoreUnavailableError, match=f"redis-cli del '{place}'"):
            await store.offset(2)
        for expected in (None, 1):
            with pytest.raises(StoreUnavailableError, match=f"redis-cli del '{place}'"):
                await store.write(write(expected, 2, digits=state(2)), "b")
        assert await client.hget(place, OFFSET_FIELD) == damaged
        await client.delete(place)
        assert await store.offset(2) is None


async def test_a_learner_s_largest_states_are_written_and_read(redis_server: RedisServer, prefix: str) -> None:
    """Two hundred of 180 KB each, within the time that a call has by default, and the event loop is not held long."""
    held_s = 0.0  # CPU time: what the loop waits for a core is the machine's

    async def watch() -> None:
        nonlocal held_s
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.01)
            held_s = max(held_s, time.thread_time() - before)

    async def refuse(partition: int, stored: int | None) -> None:
        raise AssertionError(f"partition {partition} has {stored}")

    answers: dict[StateKey, PolicyState | None] = {}
    large = state(1, (1 / 3,) * 22_500)
    names = [f"digits/{n}" for n in range(200)]
    async with connected(redis_server.url, prefix) as store:
        keeper = StateQueue(store, StateQueueEvents(answers.update, lambda *_: None, refuse, lambda _: None))
        tasks = [asyncio.create_task(job) for job in (keeper.run(), watch())]
        keeper.own({2: None})
        keeper.ask(write(None, 1, **dict.fromkeys(names[:100], large)))  # in one step: 18 MB
        for n in range(100, 200):
            keeper.ask(write(n - 99, n - 98, **{names[n]: large}))
        keeper.ask(FetchStates(tuple(StateKey(2, name) for name in names)))
        assert await keeper.flush(60)
        assert answers == {StateKey(2, name): large for name in names}
        assert "store_failures_total" not in keeper.statistics()
        for task in tasks:
            task.cancel()
    assert held_s < 1.0  # seconds in one piece before


async def test_a_restart_is_survived_and_forgotten_scripts_are_loaded_again(
    own_redis: RedisServer, prefix: str
) -> None:
    """While it is down every call fails at once; afterwards the states are there."""
    async with connected(own_redis.url, prefix) as store:
        await store.write(write(None, 5, digits=state(5)), "a")
        own_redis.restart()
        for _ in range(2):  # the first call may find its connection cut
            try:
                offset = await store.offset(2)
            except StoreUnavailableError:
                continue
            assert offset == 5
        assert await store.write(write(5, 6, digits=state(6)), "b") == (True, 6, "b")


async def test_a_redis_that_is_down_is_unavailable(own_redis: RedisServer, prefix: str) -> None:
    """Reads and writes say so; nothing is retried behind our back."""
    async with connected(own_redis.url, prefix) as store:
        own_redis.kill()
        for call in (store.offset(2), store.read([StateKey(2, "a")]), store.write(write(None, 1, a=state(1)), "a")):
            with pytest.raises(StoreUnavailableError, match="Redis did not answer"):
                await call
