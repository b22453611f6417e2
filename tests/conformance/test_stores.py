"""Every store of policy states: in memory, in a file, on Redis. The rules of one table decide what each must answer."""

from __future__ import annotations

import asyncio
import math
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.codec import Codec
from schemas.records import PolicyState
from streams.operators.contract import StateKey, WriteStates
from streams.runtime.stores.base import ASIDE, MemoryStore, StateTable, unstamped
from streams.runtime.stores.redis import RedisSettings, RedisStore
from streams.runtime.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from streams.runtime.stores.base import StateStore

    Connect = Callable[[str], StateStore]

# Numbers that a careless encoding changes: the smallest, the largest, one third, minus zero.
VALUES = (5e-324, 1.7976931348623157e308, 1 / 3, -0.0, math.pi)
EXAMPLES = count()
NAMES = ("digits", "digits/ü", "digits/a:b", "shop")


class Written(NamedTuple):
    """One write that somebody tries."""

    partition: int
    expected: int | None
    offset: int
    names: frozenset[str]
    token: str

    def write(self, version: int) -> WriteStates:
        """Return it, with states of a version."""
        states = {name: state(version) for name in self.names}
        return WriteStates(self.partition, self.expected, self.offset, states, ())


writes = st.builds(
    Written,
    st.integers(0, 1),
    st.none() | st.integers(0, 3),
    st.integers(0, 3),
    st.frozensets(st.sampled_from(NAMES)),
    st.sampled_from("abc"),
)


def state(version: int) -> PolicyState:
    """Return a state."""
    return PolicyState("exp3(eta=0.05)", ("a", "b"), version, VALUES)


@pytest.fixture(params=["memory", "file", "redis"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Return how to connect to a store by the prefix of a deployment."""
    if request.param == "memory":
        kept: dict[str, MemoryStore] = {}
        return lambda prefix: kept.setdefault(prefix, MemoryStore())
    if request.param == "file":
        return lambda prefix: SqliteStore(tmp_path / "states.db", prefix, Codec())
    server: RedisServer = request.getfixturevalue("redis_server")
    return lambda prefix: RedisStore(RedisSettings(server.url, prefix, timeout_s=10.0), Codec())


def test_states_survive_bit_for_bit(connect: Connect, prefix: str) -> None:
    """What is read by another connection is what was written, also for numbers at the edges of a double."""

    async def main() -> None:
        writer, reader = connect(prefix), connect(prefix)
        assert await writer.write(Written(1, None, 7, frozenset({"digits/ü"}), "t").write(3), "t") == (True, 7, "t")
        key = StateKey(1, "digits/ü")
        found = await reader.read([key, StateKey(1, "none"), StateKey(0, "digits/ü")])
        assert found.states == {key: state(3), StateKey(1, "none"): None, StateKey(0, "digits/ü"): None}
        assert (found.offsets, found.unreadable) == ({1: 7, 0: None}, {})
        read = found.states[key]
        assert read is not None
        assert [value.hex() for value in read.values] == [value.hex() for value in VALUES]
        assert await reader.offset(1) == 7
        await writer.close()
        await reader.close()

    asyncio.run(main())


@given(tried=st.lists(writes, max_size=12))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_write_is_taken_or_refused_as_the_table_says(connect: Connect, prefix: str, tried: list[Written]) -> None:
    """Whatever is expected, repeated and overtaken; two connections write in turns, and a third reads all."""
    table = StateTable()

    async def main() -> None:
        name = f"{prefix}-{next(EXAMPLES)}"  # another deployment for each
        stores = connect(name), connect(name), connect(name)
        for number, each in enumerate(tried):
            write = each.write(number)
            assert await stores[number % 2].write(write, each.token) == table.compare_and_set(write, each.token)
        keys = [StateKey(number, name) for number in (0, 1) for name in NAMES]
        read = await stores[2].read(keys)
        expected = table.find(keys)
        assert (read.states, read.offsets) == (expected.states, expected.offsets)
        for store in {*stores}:
            await store.close()

    asyncio.run(main())


def test_what_is_set_aside_is_read_no_more_and_only_at_the_offset_that_was_seen(connect: Connect, prefix: str) -> None:
    """A former owner's write is refused afterwards, a new one begins with nothing, and it may happen again."""

    async def main() -> None:
        store, key = connect(prefix), StateKey(0, "digits")
        assert not await store.set_aside(0, 5)
        for turn in range(2):
            for number in (0, 1):
                await store.write(Written(number, None, 5, frozenset({"digits"}), f"{turn}").write(1), f"{turn}")
            assert not await store.set_aside(0, 4)
            assert await store.set_aside(0, 5)
            found = await store.read([key, StateKey(1, "digits")])
            assert (found.states[key], found.offsets) == (None, {0: None, 1: 5})
            assert not (await store.write(Written(0, 5, 6, frozenset(), "late").write(1), "late")).accepted
        await store.close()

    asyncio.run(main())


def test_what_was_set_aside_before_is_kept_and_of_four_the_oldest_is_gone(
    connect: Connect, prefix: str, request: pytest.FixtureRequest
) -> None:
    """The latest comes first; another partition's is its own."""

    async def main() -> None:
        store = connect(prefix)
        for turn in range(1, 5):
            await store.write(Written(0, None, 5, frozenset({"digits"}), f"{turn}").write(turn), f"{turn}")
            assert await store.set_aside(0, 5)
        await store.write(Written(1, None, 5, frozenset({"digits"}), "t").write(9), "t")
        assert await store.set_aside(1, 5)
        assert await lying_aside(store, 0) == [state(4), state(3), state(2)]
        assert await lying_aside(store, 1) == [state(9)]
        await store.close()

    async def lying_aside(store: StateStore, partition: int) -> list[PolicyState]:
        """Read it where the documentation says that it lies."""
        key = StateKey(partition, "digits")
        if isinstance(store, MemoryStore):
            return [each[key] for each in store.aside[partition]]
        if isinstance(store, SqliteStore):
            places = [connect(f"{prefix}/{name}") for name in ASIDE]
            found = [(await place.read([key])).states[key] for place in places]
            for place in places:
                await place.close()
            return [each for each in found if each is not None]
        with redis.Redis.from_url(request.getfixturevalue("redis_server").url) as client:
            values = [client.hget(f"{{{prefix}:{partition}}}:{name}", "digits") for name in ASIDE]
        return [Codec().decode(PolicyState, unstamped(value)) for value in values if isinstance(value, bytes)]

    asyncio.run(main())


def test_two_deployments_share_a_store_and_see_nothing_of_each_other(connect: Connect, prefix: str) -> None:
    """By their prefix."""

    async def main() -> None:
        one, other = connect(prefix), connect(f"{prefix}x")
        await one.write(Written(0, None, 5, frozenset({"digits"}), "t").write(1), "t")
        assert (await other.read([StateKey(0, "digits")])).states == {StateKey(0, "digits"): None}
        assert await other.offset(0) is None
        await one.close()
        await other.close()

    asyncio.run(main())
