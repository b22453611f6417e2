"""Performs `FetchFeatures`: reads in several lanes, so that a slow answer holds up no other, and never tries twice.

A key that the store does not answer is dropped. Its kernel does without it, and asks again with a later query. Sources
take turns, and the one that has most keys waiting loses its oldest: however many are asked for, the others are read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from schemas import topics
from streams.operators.contract import LOOKED_UP, Record
from streams.runtime.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streams.runtime.stores.base import FeatureStore

_log = logging.getLogger(__name__)

# Reads under way at a time, and keys of each: a read takes a round trip (0.2 ms, measured) and 2 us a key.
LANES, READ_KEYS = 8, 64
# Keys that wait, 200 to 500 B each (`topics.MAX_KEY_BYTES`): those of a second at 20,000 a second.
WAITING_KEYS = 20_000
BACKOFF_S, BACKOFF_MAX_S = 0.05, 1.0


class FeatureReader:
    """One queue of keys in front of one store; `run()` works it off.

    Args:
        store: has the features.
        deliver: is given what was found, as records of the topic `features`.
    """

    def __init__(self, store: FeatureStore, deliver: Callable[[list[Record]], object]) -> None:
        self._store = store
        self._deliver = deliver
        self._keys: dict[str, dict[str, None]] = {}  # by source
        self._waiting = 0
        self._wake = asyncio.Event()
        self._failures = 0  # in a row
        self._counters: Counter[str] = Counter()

    def ask(self, keys: Iterable[str]) -> None:
        """Queue keys."""
        for key in keys:
            waiting = self._keys.setdefault(key.partition("/")[0], {})
            self._waiting += key not in waiting
            waiting[key] = None
        while self._waiting > WAITING_KEYS:
            self._take(max(self._keys, key=lambda source: len(self._keys[source])), 1)
            self._counters["features_forgotten_total"] += 1
        self._wake.set()

    def _take(self, source: str, count: int) -> list[str]:
        """Remove and return the first keys of a source, whose turn is the last then."""
        waiting = self._keys.pop(source)
        keys = [*islice(waiting, count)]
        for key in keys:
            del waiting[key]
        if waiting:
            self._keys[source] = waiting
        self._waiting -= len(keys)
        return keys

    def statistics(self) -> Mapping[str, float]:
        """Return counters."""
        return self._counters

    async def run(self) -> None:
        """Work off the queue until cancelled."""
        async with asyncio.TaskGroup() as lanes:
            for _ in range(LANES):
                lanes.create_task(self._read())

    async def _read(self) -> None:
        while True:
            if not self._keys:
                self._wake.clear()
                await self._wake.wait()
                continue
            keys: list[str] = []
            while self._keys and len(keys) < READ_KEYS:
                keys += self._take(next(iter(self._keys)), READ_KEYS - len(keys))
            await self._read_now(keys)

    async def _read_now(self, keys: list[str]) -> None:
        """Read keys and hand out what is found; after a failure this lane pauses."""
        try:
            values = await self._store.features(keys)
        except StoreUnavailableError as fault:
            self._counters["feature_failures_total"] += 1
            if self._failures % (60 * LANES) == 0:  # about once a minute
                _log.warning("what is looked up: %s; it is done without, or asked for again", fault)
            self._failures += 1
            await asyncio.sleep(min(BACKOFF_S * 2.0 ** min(self._failures // LANES, 10), BACKOFF_MAX_S))
            return
        self._failures = 0
        self._counters["feature_reads_total"] += 1
        self._deliver(
            [
                Record(topics.FEATURES, LOOKED_UP, LOOKED_UP, 0, key.encode(), value)
                for key, value in zip(keys, values, strict=True)
            ]
        )
