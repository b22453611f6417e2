"""Forgets the states of contexts that were not taught for a long time, where nobody else would.

A context that comes back starts as a new one does. What is being taught meanwhile is not harmed: each step looks and
deletes in one script, the offset stays, and a learner that has the state in memory writes it again when it is taught.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from streams.runtime.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redis import Redis
    from redis.commands.core import Script

# Fields that one script looks at: at 180 KB each it holds Redis for some 10 ms, at usual sizes for less than one.
SCANNED = 100

# KEYS: states. ARGV: cursor, fields, hour before which states go, this hour in bytes, 1 = delete.
# Returns the next cursor, then how many contexts, how many of them go, their bytes, and how many do not say when they
# were taught (an older version wrote them): those are dated now.
_PRUNE = """
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local contexts, old, bytes, undated = 0, 0, 0, 0
for i = 1, #found[2], 2 do
  local name, value = found[2][i], found[2][i + 1]
  if string.find(name, '[/:]', 2) then
    contexts = contexts + 1
    if string.sub(value, 1, 1) ~= 'T' then
      undated = undated + 1
      if ARGV[5] == '1' then redis.call('HSET', KEYS[1], name, 'T' .. ARGV[4] .. value) end
    elseif struct.unpack('>I4', string.sub(value, 2, 5)) < tonumber(ARGV[3]) then
      old, bytes = old + 1, bytes + #name + #value
      if ARGV[5] == '1' then redis.call('HDEL', KEYS[1], name) end
    end
  end
end
return {found[1], contexts, old, bytes, undated}
"""


class Pruned(NamedTuple):
    """What was found: contexts with a state, those not taught for so long, their bytes, those of unknown age."""

    contexts: int = 0
    old: int = 0
    size_bytes: int = 0
    undated: int = 0


def prune(client: Redis, prefix: str, partitions: Iterable[int], older_than_s: float, *, dry_run: bool) -> Pruned:
    """Delete the states of contexts that were taught last before so many seconds; of applications none.

    Args:
        client: of the Redis that holds the states.
        prefix: of the deployment's keys.
        partitions: of `observations`.
        older_than_s: how long ago a state must have been taught last, to the hour.
        dry_run: only count.

    Raises:
        StoreUnavailableError: Redis does not answer.
    """
    from redis.exceptions import RedisError  # the store without a server shares `Pruned`, and needs no Redis

    script = client.register_script(_PRUNE)
    hour = int(time.time() // 3600)
    limit = int((time.time() - older_than_s) // 3600)
    total = Pruned()
    try:
        for number in partitions:
            for found in _steps(script, f"{{{prefix}:{number}}}:states", limit, hour, is_dry=dry_run):
                total = Pruned(*map(sum, zip(total, found, strict=True)))
    except (RedisError, OSError) as fault:
        raise StoreUnavailableError(f"Redis did not answer: {fault!r}; what was pruned so far: {total}") from fault
    return total


def _steps(script: Script, key: str, limit: int, hour: int, *, is_dry: bool) -> Iterator[list[int]]:
    """Look through one partition's states; yields what each step has found."""
    cursor = b"0"
    while True:
        arguments: list[bytes | int] = [cursor, SCANNED, limit, hour.to_bytes(4, "big"), int(not is_dry)]
        cursor, *found = script(keys=[key], args=arguments)
        yield found
        if int(cursor) == 0:
            return
