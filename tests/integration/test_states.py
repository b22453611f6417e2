"""`skysail states prune`: what is forgotten, what stays, and that it harms nobody who learns meanwhile."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import redis
from click.testing import CliRunner

from deploy.cli.states import states
from schemas.codec import Codec
from schemas.records import PolicyState
from streams.operators.contract import StateKey, WriteStates
from streams.runtime.stores.redis import RedisSettings, RedisStore

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer

DAY_S = 86_400.0
STATE = PolicyState("exp3(eta=0.05)", ("a", "b"), 1, (0.1, 0.2))


async def taught(url: str, prefix: str, days_ago: float, expected: int | None, offset: int, *names: str) -> None:
    """Write states of these names to partition 1."""
    store = RedisStore(RedisSettings(url, prefix), Codec(), lambda: time.time() - days_ago * DAY_S)
    assert (await store.write(WriteStates(1, expected, offset, dict.fromkeys(names, STATE), ()), str(offset))).accepted
    await store.close()


def prune(folder: Path, server: RedisServer, prefix: str, *options: str) -> dict[str, int]:
    """Run the command."""
    settings = folder / "skysail.yaml"
    settings.write_text(f"prefix: {prefix}\nredis: {{url: '{server.url}'}}\n")
    ran = CliRunner().invoke(states, ["prune", "--config", str(settings), "--json", *options])
    assert ran.exit_code == 0, ran.output
    found: dict[str, int] = json.loads(ran.output)
    return found


async def test_contexts_that_were_not_taught_for_long_are_forgotten(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """The application's own state, those taught lately, those of unknown age and the offset stay."""
    names = [f"digits{'/:'[n % 2]}{n}" for n in range(2_000)]  # together, and spread over partitions
    await taught(redis_server.url, prefix, 40, None, 1, "digits", "digits/old", *names)
    await taught(redis_server.url, prefix, 0, 1, 2, "digits/new")
    client = redis.Redis.from_url(redis_server.url)
    place = f"{{{prefix}:1}}:states"
    client.hset(place, "digits/undated", Codec().encode(STATE))
    seen = prune(tmp_path, redis_server, prefix, "--older-than", "30d", "--dry-run")
    assert (seen["contexts"], seen["old"], seen["undated"], seen["deleted"]) == (2_003, 2_001, 1, 0)
    assert client.hlen(place) == 2_005
    assert prune(tmp_path, redis_server, prefix, "--older-than", "30d")["deleted"] == 2_001
    assert set(client.hkeys(place)) == {b"/offset", b"digits", b"digits/new", b"digits/undated"}
    again = prune(tmp_path, redis_server, prefix, "--older-than", "30d")
    assert (again["contexts"], again["undated"], again["deleted"]) == (2, 0, 0)
    store = RedisStore(RedisSettings(redis_server.url, prefix), Codec())
    found = await store.read([StateKey(1, "digits/undated"), StateKey(1, "digits/old")])
    assert found.states == {StateKey(1, "digits/undated"): STATE, StateKey(1, "digits/old"): None}
    assert found.offsets == {1: 2}
    await store.close()
