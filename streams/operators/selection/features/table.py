"""Features by source and key, as far as they are known here, and the running mean of each source.

The table holds what the topic `features` says and what a store has answered; the last one counts. Its bytes are
bounded: the source that takes most loses the keys that it used longest ago. Keys under which there is nothing stand on
a shelf of their own, so that queries about whatever comes to mind do not drive out what is known.

A mean is of the latest queries whose features were known. It is written to the topic now and then, so that a process
that starts has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas.errors import DecodeError
from schemas.inputs import MAX_FEATURES
from schemas.records import Features
from streams.operators.fair_cache import FairCache

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Source

# Memory of an entry beside its key, and of each number (CPython 3.11).
ENTRY_BYTES, NUMBER_BYTES = 320, 32
# A mean forgets older queries, because features drift; from then on it is written once for as many.
MEAN_OF = 1_000
_WRITTEN_AT = frozenset({1, 10, 100})
# Means that are taken from the topic, where anybody may write under any name: of further names none is taken.
MOST_MEANS = 1_024
# Larger numbers count as this in a mean, whose differences would leave the numbers of a double.
LARGEST = 1e100


class Known(NamedTuple):
    """What is known of a key; `values` None = there is nothing under it."""

    values: tuple[float, ...] | None
    read_us: int


class _RunningMean:
    """The running mean of a source, over so many queries."""

    __slots__ = ("since", "values", "weight")

    def __init__(self, values: tuple[float, ...], weight: int) -> None:
        self.values = tuple(map(_bounded, values))
        self.weight = min(max(weight, 0), MEAN_OF)
        self.since = 0  # queries that it was moved by after it was written

    def add(self, values: tuple[float, ...]) -> None:
        self.weight = min(self.weight + 1, MEAN_OF)
        pairs = zip(self.values, map(_bounded, values), strict=True)
        self.values = tuple([mean + (new - mean) / self.weight for mean, new in pairs])
        self.since += 1


class FeatureTable:
    """See the module.

    Args:
        capacity_bytes: that the entries may take, estimated.
    """

    __slots__ = ("_means", "_shelves")

    def __init__(self, capacity_bytes: int) -> None:
        self._shelves: FairCache[tuple[str, bool], str, Known] = FairCache(_size, capacity_bytes=capacity_bytes)
        self._means: dict[str, _RunningMean] = {}

    def __len__(self) -> int:
        return len(self._shelves)

    @property
    def size(self) -> int:
        """The bytes that the entries take, estimated."""
        return self._shelves.size

    def put(self, key: str, features: Features | None, now_us: int) -> None:
        """Take what is stored under a key of the topic; None = nothing is.

        Raises:
            DecodeError: they are no features.
        """
        values = None if features is None else features.values
        if values is not None and not 0 < len(values) <= MAX_FEATURES:
            raise DecodeError("invalid", f"Features: {key} has {len(values)} numbers, not 1 to {MAX_FEATURES}")
        source, is_of_key, _ = key.partition("/")
        if not is_of_key:
            if features is not None:
                self._adopt(source, features)
            return
        shelf, entry = self._shelves.find((source, True)), Known(values, now_us)
        owner = source, values is not None or (shelf is not None and key in shelf.entries)
        shelf = self._shelves.find(owner)
        before = None if shelf is None else shelf.entries.get(key)
        self._shelves.put(owner, key, entry, _size(key, entry) - (0 if before is None else _size(key, before)))
        self._shelves.trim()

    def find(self, source: str, keys: Iterable[str]) -> list[Known | None]:
        """Return what is known of keys of the topic; None = it has not been read."""
        shelves = [self._shelves.find((source, has_values)) for has_values in (True, False)]
        entries = [shelf.entries for shelf in shelves if shelf is not None]
        found: list[Known | None] = []
        for key in keys:
            known = None
            for each in entries:
                if (known := each.get(key)) is not None:
                    each.move_to_end(key)
                    break
            found.append(known)
        return found

    def mean(self, source: Source) -> tuple[float, ...]:
        """Return what stands in for the features of a source: zeros, while none have been seen."""
        mean = self._means.get(source.name)
        return mean.values if mean is not None and len(mean.values) == source.width else (0.0,) * source.width

    def learn(self, source: str, values: tuple[float, ...]) -> Features | None:
        """Move a mean by the features of a query; return it if it should be written."""
        mean = self._means.get(source)
        if mean is None or len(mean.values) != len(values):
            mean = self._means[source] = _RunningMean((0.0,) * len(values), 0)
        mean.add(values)
        if mean.since < MEAN_OF and not (mean.since == mean.weight and mean.weight in _WRITTEN_AT):
            return None
        if mean.since >= MEAN_OF:
            mean.since = 0
        return Features(mean.values, mean.weight)

    def _adopt(self, source: str, features: Features) -> None:
        """Take a mean that was written, if it is of more queries than the one here."""
        mean = self._means.get(source)
        is_known = mean is not None or len(self._means) < MOST_MEANS
        if is_known and (mean is None or mean.weight < features.weight):
            self._means[source] = _RunningMean(features.values, features.weight)


def _bounded(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def _size(key: str, entry: Known) -> int:
    return ENTRY_BYTES + 4 * len(key) + NUMBER_BYTES * len(entry.values or ())
