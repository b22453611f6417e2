"""The one random draw of a decision, as a function of the query's id.

The same query and state always give the same decision, and a log replays bit for bit.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BITS = 53  # what a double's mantissa holds: every value is exact, none rounds up to 1.0
_SURPLUS_BITS, _STEP = 64 - _BITS, 2.0**-_BITS
_whole = struct.Struct("<Q").unpack  # half of what `int.from_bytes` costs


def uniform(query_id: str, use: str = "select") -> float:
    """Return a number in [0, 1) that depends on the id and the use alone.

    Args:
        query_id: Any text; close ids give unrelated draws.
        use: At most 16 bytes; draws for different uses are independent.
    """
    hashed = _hash(use).copy()
    hashed.update(query_id.encode("utf-8", "surrogatepass"))
    whole: int = _whole(hashed.digest())[0]
    return (whole >> _SURPLUS_BITS) * _STEP


@lru_cache(maxsize=64)
def _hash(use: str) -> blake2b:
    """Return the hash before anything was put in: a copy costs half of a new one."""
    return blake2b(digest_size=8, person=use.encode())


def version(query_id: str, shares: Mapping[str, float]) -> str:
    """Return the version that answers a query, of those that have a share of all; "" = the one that has the rest."""
    u, passed = uniform(query_id, "version"), 0.0
    for name in sorted(shares):
        passed += shares[name]
        if u < passed:
            return name
    return ""


def pick(propensities: Sequence[float], u: float) -> int:
    """Return the index where the running sum of the propensities passes `u` in [0, 1): the inverse CDF.

    An index of propensity zero is never returned, even where the sum rounds to less than `u`.
    """
    passed = 0.0
    last = 0
    for index, propensity in enumerate(propensities):
        passed += propensity
        if u < passed:
            return index
        if propensity > 0.0:
            last = index
    return last
