"""Ids of queries that Skysail draws itself: UUIDv7 (RFC 9562) in hex, so that an id says when it was drawn.

    0            48   52         64  66                              128
    ├─ Unix ms ──┼─ 7 ┼─ 12 drawn ┼ 10 ┼─────────── 62 drawn ──────────┤

A client may give ids of its own, of any form. Whoever looks for a query then has to be told when it was asked.
"""

from __future__ import annotations

from typing import Final

DRAWN_BITS: Final = 74
_DIGITS: Final = 32
_LOW_BITS: Final = 62
_MOST_MS: Final = (1 << 48) - 1
_HEX: Final = frozenset("0123456789abcdef")


def query_id(now_us: int, drawn: int) -> str:
    """Return an id.

    Args:
        now_us: when, microseconds since the epoch; it is cut to milliseconds.
        drawn: `DRAWN_BITS` random bits; what is above them does not count.
    """
    drawn &= (1 << DRAWN_BITS) - 1
    high, low = drawn >> _LOW_BITS, drawn & (1 << _LOW_BITS) - 1
    time_ms = min(max(now_us // 1000, 0), _MOST_MS)
    return f"{time_ms << 80 | 7 << 76 | high << 64 | 2 << 62 | low:032x}"


def drawn_us(name: str) -> int | None:
    """Return when an id was drawn, microseconds since the epoch, to the millisecond; None = it is no UUIDv7 in hex.

    An id with dashes, as other makers of UUIDs write them, counts too.
    """
    digits = name.replace("-", "").lower() if len(name) == _DIGITS + 4 else name
    if len(digits) != _DIGITS or digits[12] != "7" or digits[16] not in "89ab" or not _HEX.issuperset(digits):
        return None
    return int(digits[:12], 16) * 1000
