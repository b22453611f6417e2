"""Users of Redis by role: each does what its role does, and is refused the rest, by a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from deploy.state.acls import redis_users
from schemas.codec import Codec
from schemas.records import PolicyState
from streams.operators.contract import StateKey, WriteStates
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.stores.pruning import prune
from streams.runtime.stores.redis import RedisFeatures, RedisSettings, RedisStore, feature_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.local.redis import RedisServer

STATE = PolicyState("exp3(eta=0.05)", ("a", "b"), 7, (0.5, 0.5))
KEY = StateKey(0, "digits")
OTHER = "other"  # another tenant's prefix


@pytest.fixture
def users(own_redis: RedisServer, prefix: str) -> Iterator[dict[str, str]]:
    """Make the users; yields the address of the server for each."""
    client, place = Redis.from_url(own_redis.url), urlsplit(own_redis.url)
    found = {}
    for who, rules in redis_users(prefix).items():
        client.execute_command("ACL", "SETUSER", f"{prefix}.{who}", *rules, f">{who}-password")
        found[who] = f"redis://{prefix}.{who}:{who}-password@{place.hostname}:{place.port}/0"
    client.set(feature_name(prefix, "source/7"), b"features")
    client.hset(f"{{{OTHER}:0}}:states", "digits", b"theirs")
    yield found
    client.close()


def store(address: str, prefix: str) -> RedisStore:
    """Connect as a user."""
    return RedisStore(RedisSettings(address, prefix, timeout_s=10.0), Codec())


def learnt(expected: int | None, offset: int) -> WriteStates:
    """Return what a learner writes."""
    return WriteStates(0, expected, offset, {KEY.name: STATE}, ())


async def test_the_learner_writes_and_selection_reads(users: dict[str, str], prefix: str) -> None:
    """Selection writes nothing, not even by a script; the learner reads no features."""
    learner, selection = store(users["learner"], prefix), store(users["selection"], prefix)
    assert await learner.offset(0) is None
    assert (await learner.write(learnt(None, 5), "me")).accepted
    assert await learner.offset(0) == 5
    assert (await learner.read([KEY])).states == {KEY: STATE}
    assert (await selection.read([KEY])).states == {KEY: STATE}
    with pytest.raises(StoreUnavailableError, match=r"NoPermission|NOPERM|no permissions"):
        await selection.write(learnt(5, 6), "me")
    features = RedisFeatures(RedisSettings(users["selection"], prefix, timeout_s=10.0))
    assert await features.features(["source/7"]) == [b"features"]
    refused = RedisFeatures(RedisSettings(users["learner"], prefix, timeout_s=10.0))
    with pytest.raises(StoreUnavailableError):
        await refused.features(["source/7"])
    for each in (learner, selection, features, refused):
        await each.close()


@pytest.mark.parametrize("who", ["selection", "learner", "operator"])
async def test_nobody_reaches_another_tenant(users: dict[str, str], who: str) -> None:
    """Neither by its keys, nor by what is dangerous to all."""
    theirs = store(users[who], OTHER)
    with pytest.raises(StoreUnavailableError):
        await theirs.read([KEY])
    await theirs.close()
    client = Redis.from_url(users[who])
    for command in (
        ["FLUSHALL"],
        ["KEYS", "*"],
        ["ACL", "LIST"],
    ):
        with pytest.raises(NoPermissionError):
            client.execute_command(*command)
    client.close()


@pytest.mark.parametrize("who", ["selection", "learner", "operator"])
def test_every_command_is_refused_on_another_tenant_s_keys(
    own_redis: RedisServer, users: dict[str, str], who: str
) -> None:
    """Whatever roles and operators send, on states, offsets and features; what lies there stays."""
    client, intruder = Redis.from_url(own_redis.url), Redis.from_url(users[who])
    for key in (f"{{{OTHER}:0}}:offset", f"{OTHER}:features:source/7", f"{{{OTHER}:0}}:notes"):
        client.set(key, b"theirs")
        for command in (
            ["GET", key], ["MGET", key], ["DEL", key], ["HGET", key, "f"], ["HMGET", key, "f"], ["HDEL", key, "f"],
            ["HSET", key, "f", "v"], ["EVAL", "return redis.call('DEL', KEYS[1])", "1", key], ["SET", key, "v"],
        ):  # fmt: skip
            with pytest.raises(NoPermissionError):
                intruder.execute_command(*command)
        assert client.get(key) == b"theirs"
    intruder.close()
    client.close()


async def test_an_operator_prunes_and_looks_how_redis_is_set(users: dict[str, str], prefix: str) -> None:
    """What `skysail state prune` and `skysail doctor` do."""
    learner = store(users["learner"], prefix)
    assert (await learner.write(learnt(None, 5), "me")).accepted
    await learner.close()
    client = Redis.from_url(users["operator"])
    prune(client, prefix, range(1), 0.0, dry_run=True)
    assert "redis_version" in client.info("server")
    assert "maxmemory_policy" in client.info("memory")
    client.close()
