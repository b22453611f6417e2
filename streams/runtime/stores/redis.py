"""Policy states in Redis.

    {<prefix>:<p>}:states   hash: state name → when it was last taught, PolicyState (bytes)
                                  /offset    → next offset of `observations`-<p> to apply, ":", the last write's token

One hash, so that states and offset are read, evicted and lost together, never the ones without the other.
    {<prefix>:<p>}:aside    the states that were ahead of their log, whole, where that has happened; those of the
                            times before it are `:aside:2` and `:aside:3`
    <prefix>:features:<source>/<key>   Features (bytes), where an application has a source in Redis (`RedisFeatures`)

The braces put a partition's keys into one hash slot, so that scripts run on a Redis Cluster too.

Older deployments have the offset in a key of its own, `{<prefix>:<p>}:offset`: it is moved into the hash when a learner
starts. A learner of an older version that is started afterwards stops at what it finds there.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from schemas.errors import DecodeError
from schemas.records import PolicyState
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.stores.base import ASIDE, StatesRead, WriteResult, stamped, unstamped
from streams.runtime.stores.connecting import QUIETLY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from streams.operators.contract import StateKey, WriteStates
    from streams.runtime.stores.base import StateCodec

# A field that no state can have: names begin with an application's, which has no slash.
OFFSET_FIELD = "/offset"
# The field's content: a number of Kafka's, which has at most 19 digits, and a token.
_OFFSET_PATTERN = re.compile(rb"(\d{1,19}):")
DAMAGED = -1
# A call may take `timeout_s`, and a second more for so many bytes: 32 Mbit/s.
BYTES_A_SECOND = 4_000_000
# Bytes encoded or decoded at once: about 2 ms of the event loop.
CHUNK_BYTES = 262_144

# KEYS: states. ARGV: expected offset ('' = nothing stored), offset, token, then name and value of each state.
# Field by field: Lua's unpack() ends at some 8,000 arguments.
_COMPARE_AND_SET = """
local stored = redis.call('HGET', KEYS[1], '/offset') or ''
local mine = ARGV[2] .. ':' .. ARGV[3]
if stored == mine then return {1, stored} end
if stored ~= '' and not string.match(stored, '^%d+:') then return {0, stored} end
if string.match(stored, '^%d*') ~= ARGV[1] then return {0, stored} end
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[1], '/offset', mine)
return {1, mine}
"""

# KEYS: states, the offset of older versions. Returns what is in the field, after moving it there if it is not.
# An offset whose states are gone (evicted) stands for nothing.
_OFFSET = """
local stored = redis.call('HGET', KEYS[1], '/offset')
if stored then return stored end
local old = redis.call('GET', KEYS[2])
if not old or not string.match(old, '^%d+$') or redis.call('EXISTS', KEYS[1]) == 0 then return '' end
redis.call('HSET', KEYS[1], '/offset', old .. ':')
redis.call('SET', KEYS[2], 'now field /offset of ' .. KEYS[1] .. '; start a newer version of Skysail')
return old .. ':'
"""

# KEYS: states, where they are set aside, the latest first. ARGV: expected offset.
_SET_ASIDE = """
local stored = redis.call('HGET', KEYS[1], '/offset') or ''
if stored == '' or string.match(stored, '^%d*') ~= ARGV[1] then return 0 end
for i = #KEYS - 1, 1, -1 do
  if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('RENAME', KEYS[i], KEYS[i + 1]) end
end
return 1
"""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where Redis is.

    Attributes:
        url: `redis://` or `rediss://` with credentials.
        prefix: of the keys; the deployment's.
        timeout_s: of connecting, and of a call, which has more for what it carries; a hundred states are written in 1.3
            ms (measured).
    """

    url: str = field(repr=False)  # a password may be in it
    prefix: str = "skysail"
    timeout_s: float = 0.5


class RedisStore:
    """A store on a Redis server; implements `stores.base.StateStore`.

    redis-py's own retries are off: it repeats commands that are not idempotent (one INCR ran three times, measured) and
    takes 3.6 s to notice a server that is down. The loop retries, and the compare-and-set makes that safe.
    """

    def __init__(self, settings: RedisSettings, codec: StateCodec, now_s: Callable[[], float] = time.time) -> None:
        self._prefix = settings.prefix
        self._codec = codec
        self._now_s = now_s
        self._timeout_s = settings.timeout_s
        self._client = _client(settings)
        self._write = self._client.register_script(_COMPARE_AND_SET)
        self._offset = self._client.register_script(_OFFSET)
        self._set_aside = self._client.register_script(_SET_ASIDE)

    async def read(self, keys: Iterable[StateKey]) -> StatesRead:
        """Read the states, one HMGET a partition in one round trip; see `stores.base.StateStore`."""
        by_partition = [
            (partition, list(group))
            for partition, group in groupby(sorted(keys), key=attrgetter("partition"))
        ]  # fmt: skip
        pipeline = self._client.pipeline(transaction=False)
        for partition, group in by_partition:
            pipeline.hmget(self._key(partition, "states"), [OFFSET_FIELD, *(key.name for key in group)])
        async with self._answering(0):
            answers = await pipeline.execute()
        offsets = {
            number: _offset_of(values[0]) for (number, _), values in zip(by_partition, answers, strict=True)
        }  # fmt: skip
        values = {
            key: value
            for (_, group), (_, *values) in zip(by_partition, answers, strict=True)
            for key, value in zip(group, values, strict=True)
        }
        return await self._decoded(values, offsets)

    async def offset(self, partition: int) -> int | None:
        """Return the next offset to apply; see `stores.base.StateStore`."""
        async with self._answering(0):
            stored = await self._offset(keys=[self._key(partition, "states"), self._key(partition, "offset")])
        return self._known(partition, stored)

    async def write(self, write: WriteStates, token: str) -> WriteResult:
        """Compare and set in one script; see `stores.base.StateStore`."""
        head: tuple[str | int, ...] = ("" if write.expected is None else write.expected, write.offset, token)
        states, size = await self._encoded(write.states)
        async with self._answering(size):
            accepted, stored = await self._write(keys=[self._key(write.partition, "states")], args=[*head, *states])
        offset = self._known(write.partition, stored)
        return WriteResult(bool(accepted), offset, stored.decode(errors="replace").partition(":")[2])

    async def set_aside(self, partition: int, offset: int) -> bool:
        """Rename the hash if its offset is this one; see `stores.base.StateStore`."""
        keys = [self._key(partition, name) for name in ("states", *ASIDE)]
        async with self._answering(0):
            return bool(await self._set_aside(keys=keys, args=[offset]))

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    def _key(self, partition: int, what: str) -> str:
        return f"{{{self._prefix}:{partition}}}:{what}"

    def _known(self, partition: int, stored: bytes) -> int | None:
        """Return the offset of what is in the field; nothing is learnt while that is damaged."""
        offset = _offset_of(stored)
        if offset == DAMAGED:
            place = self._key(partition, "states")
            raise StoreUnavailableError(
                f"the offset of partition {partition} is damaged ({stored[:40]!r}): restore field {OFFSET_FIELD} of "
                f"'{place}', or have the partition folded again from the observations: redis-cli del '{place}'"
            )
        return offset

    async def _encoded(self, states: Mapping[str, PolicyState]) -> tuple[list[str | bytes], int]:
        """Return alternating names and values, and their size; the event loop gets its turns between many."""
        now_s = self._now_s()
        arguments: list[str | bytes] = []
        size = at_once = 0
        for name, state in states.items():
            value = stamped(self._codec.encode(state), now_s)
            arguments += [name, value]
            size, at_once = size + len(value), at_once + len(value)
            if at_once > CHUNK_BYTES:
                at_once = 0
                await asyncio.sleep(0)
        return arguments, size

    async def _decoded(self, values: Mapping[StateKey, bytes | None], offsets: Mapping[int, int | None]) -> StatesRead:
        """Decode key by key; many do not hold the event loop."""
        states: dict[StateKey, PolicyState | None] = {}
        unreadable: dict[StateKey, str] = {}
        size = at_once = 0
        for key, value in values.items():
            try:
                states[key] = None if value is None or key.name == OFFSET_FIELD else self._state(value)
            except DecodeError as fault:
                unreadable[key] = self._advice(key, fault)
            size, at_once = size + len(value or b""), at_once + len(value or b"")
            if at_once > CHUNK_BYTES:
                at_once = 0
                await asyncio.sleep(0)
        return StatesRead(states, offsets, unreadable, size)

    def _state(self, value: bytes) -> PolicyState:
        return self._codec.decode(PolicyState, unstamped(value))

    def _advice(self, key: StateKey, fault: DecodeError) -> str:
        place = self._key(key.partition, "states")
        return (
            f"cannot be read ({fault}): another version wrote it, or it is damaged. Run that version, or have the "
            f"partition folded again from the observations: redis-cli del '{place}'"
        )

    def _answering(self, size_bytes: int) -> AbstractAsyncContextManager[None]:
        """Let a call take as long as what it sends needs."""
        return _answering(self._timeout_s + size_bytes / BYTES_A_SECOND)


class RedisFeatures:
    """Features on a Redis server; implements `stores.base.FeatureStore`, on connections of its own."""

    def __init__(self, settings: RedisSettings) -> None:
        self._prefix = settings.prefix
        self._timeout_s = settings.timeout_s
        self._client = _client(settings)

    async def features(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Read keys in one round trip; see `stores.base.FeatureStore`."""
        async with _answering(self._timeout_s):
            found = await self._client.mget([feature_name(self._prefix, key) for key in keys])
        return [value if isinstance(value, bytes) else None for value in found]

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()


def feature_name(prefix: str, key: str) -> str:
    """Return the key in Redis of a key of topic `features`."""
    return f"{prefix}:features:{key}"


def _client(settings: RedisSettings) -> redis.Redis:
    found: redis.Redis = redis.Redis.from_url(
        settings.url,
        socket_timeout=None,  # a call is timed as a whole, by what it carries
        socket_connect_timeout=settings.timeout_s,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        **QUIETLY,
    )
    return found


@asynccontextmanager
async def _answering(timeout_s: float) -> AsyncIterator[None]:
    """Let a call take so long; say that Redis is not available if it fails."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except (RedisError, OSError) as fault:
        raise StoreUnavailableError(f"Redis did not answer: {fault!r}") from fault


def _offset_of(stored: bytes | None) -> int | None:
    """Return the offset of what is in the field: `DAMAGED`, which no partition expects, if it is none."""
    if not stored:
        return None
    found = _OFFSET_PATTERN.match(stored)
    return int(found[1]) if found is not None else DAMAGED
