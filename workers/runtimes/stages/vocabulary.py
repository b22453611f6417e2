"""A vocabulary as arrays that are searched where they lie: its terms behind one another, and a table of their hashes.

slots   upper half of a term's hash, then its number + 1; 0 = free. A term stands in the first free slot from
        (hash XOR hash >> 32) modulo the slots on. At most half of the slots are taken.
ends    where the bytes of each term end
text    the terms, UTF-8
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_START, _PRIME = np.uint64(14_695_981_039_346_656_037), np.uint64(1_099_511_628_211)  # FNV-1a, 64 bits


def arrays_of(terms: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of terms, at least one; their places are their numbers."""
    encoded = [term.encode("utf-8", "surrogatepass") for term in terms]
    return {
        "slots": _slots(_hashes(encoded)),
        "ends": np.fromiter(accumulate(map(len, encoded)), np.uint32, len(encoded)),
        "text": np.frombuffer(b"".join(encoded) or b"\0", np.uint8),
    }


def terms_of(ends: NDArray[np.uint32], text: NDArray[np.uint8]) -> list[str]:
    """Return the terms again."""
    whole, starts = text.tobytes(), [0, *ends.tolist()]
    spans = zip(starts, ends.tolist(), strict=False)
    return [whole[start:end].decode("utf-8", "surrogatepass") for start, end in spans]


def _hashes(encoded: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return the hash of each term, byte by byte of all at once."""
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    longest = max(1, int(lengths.max()))
    letters = np.frombuffer(b"".join(term.ljust(longest, b"\0") for term in encoded), np.uint8)
    columns = letters.reshape(-1, longest)
    found = np.full(len(encoded), _START)
    for place in range(longest):
        found = np.where(place < lengths, (found ^ columns[:, place]) * _PRIME, found)
    return found


def _slots(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    size = 1 << (2 * len(hashes)).bit_length()
    slots = [0] * size
    places = ((hashes ^ (hashes >> np.uint64(32))) & np.uint64(size - 1)).tolist()
    for number, (place, hashed) in enumerate(zip(places, hashes.tolist(), strict=True)):
        while slots[place]:
            place = (place + 1) % size  # noqa: PLW2901 - the next slot
        slots[place] = (hashed >> 32 << 32) | (number + 1)
    return np.array(slots, np.uint64)
