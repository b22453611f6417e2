"""Two replacement rules of caches in their plainest form: LRU and CLOCK."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def lru(keys: Sequence[int], room: int) -> int:
    """Return how many keys are hits where the one used longest ago goes first."""
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in keys:
        if key in kept:
            hits += 1
            kept.move_to_end(key)
            continue
        kept[key] = None
        if len(kept) > room:
            kept.popitem(last=False)
    return hits


def clock(keys: Sequence[int], room: int) -> int:
    """Return how many keys are hits where a hand goes around and takes the first that was not used since it came by.

    References:
        Corbató, A Paging Experiment with the Multics System, 1968.
    """
    places: dict[int, int] = {}
    ring: list[int] = []
    used = bytearray(room)
    hand = hits = 0
    for key in keys:
        place = places.get(key)
        if place is not None:
            hits += 1
            used[place] = 1
            continue
        if len(ring) < room:
            places[key] = len(ring)
            ring.append(key)
            continue
        while used[hand]:
            used[hand] = 0
            hand = (hand + 1) % room
        del places[ring[hand]]
        ring[hand] = key
        places[key] = hand
        hand = (hand + 1) % room
    return hits
