"""Policy states in Redis.

    {<prefix>:<p>}:states   hash: state name → PolicyState (bytes)
    {<prefix>:<p>}:offset   string: next offset of `observations`-<p> to apply

The braces put both keys of a partition into one hash slot, so that one script may write them on a Redis Cluster too.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from schemas.errors import DecodeError
from schemas.records import PolicyState
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.store import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streams.operators.contract import StateKey, WriteStates

# KEYS: states, offset. ARGV: expected ('' = nothing stored), offset, then name and value of each state.
# Field by field: Lua's unpack() ends at some 8,000 arguments.
_COMPARE_AND_SET = """
local stored = redis.call('GET', KEYS[2]) or ''
if stored ~= ARGV[1] then return {0, stored} end
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('SET', KEYS[2], ARGV[2])
return {1, ARGV[2]}
"""


class StateCodec(Protocol):
    """Turns a policy state into bytes and back, bit for bit."""

    def encode(self, record: PolicyState) -> bytes:
        """Return the state's bytes."""
        ...

    def decode(self, kind: type[PolicyState], value: bytes) -> PolicyState:
        """Return the state; raises the codec's one error on any other bytes."""
        ...


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where Redis is.

    Attributes:
        url: `redis://` or `rediss://` with credentials.
        prefix: of the keys; the deployment's.
        timeout_s: of one command and of connecting; a hundred states are written in 1.3 ms (measured).
    """

    url: str = field(repr=False)  # a password may be in it
    prefix: str = "skysail"
    timeout_s: float = 0.5


class RedisStore:
    """A store on a Redis server; implements `store.StateStore`.

    redis-py's own retries are off: it repeats commands that are not idempotent (one INCR ran three times, measured) and
    takes 3.6 s to notice a server that is down. The loop retries, and the compare-and-set makes that safe.
    """

    def __init__(self, settings: RedisSettings, codec: StateCodec) -> None:
        self._prefix = settings.prefix
        self._codec = codec
        self._client: redis.Redis = redis.Redis.from_url(
            settings.url,
            socket_timeout=settings.timeout_s,
            socket_connect_timeout=settings.timeout_s,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
        )
        self._script = self._client.register_script(_COMPARE_AND_SET)

    async def read(self, keys: Iterable[StateKey]) -> dict[StateKey, PolicyState | None]:
        """Read the states, one HMGET a partition in one round trip; see `store.StateStore`."""
        by_partition = [
            (partition, list(group))
            for partition, group in groupby(sorted(keys), key=attrgetter("partition"))
        ]  # fmt: skip
        pipeline = self._client.pipeline(transaction=False)
        for partition, group in by_partition:
            pipeline.hmget(self._key(partition, "states"), [key.name for key in group])
        with _unavailable():
            answers = await pipeline.execute()
        found = zip(by_partition, answers, strict=True)
        return {
            key: self._decoded(value) for (_, group), values in found for key, value in zip(group, values, strict=True)
        }

    async def offset(self, partition: int) -> int | None:
        """Return the next offset to apply; see `store.StateStore`."""
        with _unavailable():
            stored = await self._client.get(self._key(partition, "offset"))
        return None if stored is None else int(stored)

    async def write(self, write: WriteStates) -> Verdict:
        """Compare and set in one script; see `store.StateStore`."""
        keys = [self._key(write.partition, "states"), self._key(write.partition, "offset")]
        arguments: list[Any] = ["" if write.expected is None else write.expected, write.offset]
        for name, state in write.states.items():
            arguments += [name, self._codec.encode(state)]
        with _unavailable():
            accepted, stored = await self._script(keys=keys, args=arguments)
        offset = int(stored) if stored else None
        return Verdict(bool(accepted) or offset == write.offset, offset)

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    def _key(self, partition: int, what: str) -> str:
        return f"{{{self._prefix}:{partition}}}:{what}"

    def _decoded(self, value: bytes | None) -> PolicyState | None:
        try:
            return None if value is None else self._codec.decode(PolicyState, value)
        except DecodeError as fault:
            raise StoreUnavailableError(
                f"a stored policy state cannot be read ({fault}); another version wrote it, or it is damaged: delete "
                f"the keys {{{self._prefix}:*}} and it is folded again from the observations"
            ) from fault


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as fault:
        raise StoreUnavailableError(f"Redis did not answer: {fault!r}") from fault
