"""Features that a query does not bring: looked up, waited for while its deadline allows, and else imputed.

    query ─▶ gather ─┬─ all are known ────────────────────────────────────────────▶ decided
                     └─ it waits ─┬─ they come: a record, or a store's answer ─────▶ decided
                                  └─ its wait is over ─▶ the running mean of each ─▶ decided, named in `imputed`

So it is with the features of a query's candidates that are ids: each id is looked up by itself, in sources whose key
is `candidate`, and what has not come of it is imputed.

A query never waits for another one's features. It waits for a share of its time, and holds its room meanwhile. A store
that has not answered for a second counts as down: nobody waits for it then, and it is still asked. One that was asked
nothing for ten seconds is waited for again.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from schemas import topics
from schemas.errors import DecodeError
from schemas.inputs import are_rankable, asked_about
from schemas.records import Features, Tensor
from streams.operators.configuration import CANDIDATE, candidate_width
from streams.operators.contract import LOOKED_UP, Emit, FetchFeatures
from streams.operators.selection.features.crosses import crosses_of
from streams.operators.selection.features.table import LARGEST, FeatureTable
from streams.operators.selection.pending import Lookups

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from schemas.codec import Codec
    from schemas.records import Source
    from streams.operators.configuration import Deployed
    from streams.operators.contract import Effects, Record
    from streams.operators.selection.pending import Pending
    from streams.operators.statistics import Counters

# What a store has answered is used for so long; then it is used once more, and asked for meanwhile.
STALE_US = 1_000_000
# A store that is silent for this long counts as down, and a key that it has not answered is asked for again.
SILENT_US = 1_000_000
# After so long without a question nobody can tell whether a store is still down.
QUIET_US = 10_000_000
# Keys that may be asked for within that time; the one asked for longest ago makes room.
MOST_ASKED = 65_536
# What a key takes that a query waits for, beside its letters (measured, CPython 3.11).
_KEY_BYTES = 400
# Queries that wait no more may stay in the heap in such numbers.
_SPARE = 64


class Recalled(NamedTuple):
    """Features of a query as its prediction has them: all of them, and the sources that were imputed."""

    features: tuple[float, ...]
    imputed: tuple[str, ...]
    rows: Tensor | None = None  # of its candidates, where they were ids
    unknown: tuple[str, ...] = ()  # those of the ids that were imputed


class FeatureWait:
    """A query that waits for features.

    Attributes:
        deployed: its application.
        query: itself.
        missing: keys that have not come.
        until_us: how long it waits.
        is_over: it waits no more.
        serial: tells it from the others.
    """

    __slots__ = ("deployed", "is_over", "missing", "query", "serial", "until_us")

    def __init__(self, deployed: Deployed, query: Pending, missing: set[str], until_us: int) -> None:
        self.deployed = deployed
        self.query = query
        self.missing = missing
        self.until_us = until_us
        self.is_over = False
        self.serial = 0


class QueryFeatures:
    """Completes queries of applications with sources.

    Args:
        codec: of the records.
        counters: of the role.
        capacity_bytes: that known features may take.
        bound: places that waiting queries may take, see `pending.Quota`.
    """

    def __init__(self, codec: Codec, counters: Counters, capacity_bytes: int, bound: int) -> None:
        self._codec = codec
        self._counters = counters
        self._table = FeatureTable(capacity_bytes)
        self._bound = bound
        self._places = self._waiting = 0
        self._serial = count()
        self._by_key: dict[str, dict[int, FeatureWait]] = {}
        self._due: list[tuple[int, int, FeatureWait]] = []  # a heap; some of them wait no more
        self._ready: list[FeatureWait] = []
        self._asked: dict[str, int] = {}  # keys that a store was asked for lately and has not answered, and since when
        self._latest_us: int | None = None  # when a store was asked last
        self._asked_us: int | None = None  # since when no store has answered
        self._wanted: list[str] = []
        self._means: list[Emit] = []

    def on_record(self, record: Record, now_us: int) -> None:
        """Take features of a key; queries that have waited for them alone are ready.

        What a store has that is no features is as nothing: it is not waited for, nor asked for again at once.

        Raises:
            DecodeError: the record has none.
        """
        key = (record.key or b"").decode(errors="replace")
        if record.partition == LOOKED_UP:
            self._asked_us = None
            self._asked.pop(key, None)
        try:
            features = None if record.value is None else self._codec.decode(Features, record.value)
            self._table.put(key, features, now_us)
        except DecodeError:
            if record.partition == LOOKED_UP:
                self._table.put(key, None, now_us)
                self._come(key)
            raise
        self._come(key)

    def _come(self, key: str) -> None:
        """Let queries go on that have waited for a key alone."""
        for wait in [*self._by_key.pop(key, {}).values()]:
            wait.missing.discard(key)
            if not wait.missing:
                self._end(wait)
                self._ready.append(wait)

    def gather(self, query: Pending, deployed: Deployed, now_us: int) -> bool:
        """Complete a query; False: it waits for features."""
        missing: set[str] = set()
        until_us = now_us
        for source in deployed.application.sources:
            keys = _keys(source, query)
            found = self._table.find(source.name, keys)
            if source.store == "redis":
                stale_us = now_us - STALE_US
                wanted = [
                    key for key, known in zip(keys, found, strict=True) if known is None or known.read_us <= stale_us
                ]
                self._ask(wanted, now_us)
            if None in found and (wait_us := self._patience_us(source, query, now_us)) > 0:
                missing |= {key for key, known in zip(keys, found, strict=True) if known is None}
                until_us = max(until_us, now_us + wait_us)
        if not missing or self._places + query.places > self._bound:
            self.complete(query, deployed)
            return True
        self._wait(FeatureWait(deployed, query, missing, until_us))
        return False

    def complete(self, query: Pending, deployed: Deployed) -> None:
        """Put what is known before a query's own features, and for the rest the means; so with its candidates."""
        values: list[float] = []
        imputed: list[str] = []
        for source in deployed.application.sources:
            if source.key == CANDIDATE:
                continue
            (found,) = self._known(source, _keys(source, query)) or (None,)
            self._count(source, 1, int(found is None))
            if found is not None:
                values += found
                self._learn(source.name, found)
            else:
                values += self._table.mean(source)
                imputed.append(source.name)
        if deployed.application.crosses:
            values += crosses_of(values, deployed.application)
        rows, unknown = self._rows(query, deployed, imputed) if query.ids else (None, ())
        _give(query, Recalled((*values, *query.features), tuple(imputed), rows, unknown))

    def _rows(self, query: Pending, deployed: Deployed, imputed: list[str]) -> tuple[Tensor | None, tuple[str, ...]]:
        """Return the features of each candidate (n, features), and the ids of which some were imputed.

        A query counts once for the mean of a source, with the mean of its candidates.
        """
        columns: list[NDArray[np.float64]] = []
        unknown: set[str] = set()
        if not are_rankable(len(query.ids), candidate_width(deployed.application)):
            return None, ()
        for source in deployed.application.sources:
            if source.key != CANDIDATE:
                continue
            found = self._known(source, _keys(source, query))
            known = [each for each in found if each is not None]
            self._count(source, len(found), len(found) - len(known))
            if known:
                self._learn(source.name, _mean(known))
            if len(known) < len(found):
                imputed.append(source.name)
                unknown |= {one for one, each in zip(query.ids, found, strict=True) if each is None}
            mean = self._table.mean(source)
            columns.append(np.array([mean if each is None else each for each in found]))
        if not columns:
            return None, ()
        return Tensor.of(np.concatenate(columns, axis=1)), tuple([one for one in query.ids if one in unknown])

    def _known(self, source: Source, keys: Sequence[str]) -> list[tuple[float, ...] | None]:
        """Return what a source has under keys; None for what is not there, or of another width."""
        values = [None if known is None else known.values for known in self._table.find(source.name, keys)]
        return [each if each is not None and len(each) == source.width else None for each in values]

    def _count(self, source: Source, looked_up: int, imputed: int) -> None:
        for outcome, number in (("known", looked_up - imputed), ("imputed", imputed)):
            if number:
                self._counters["features_total", "source", source.name, "outcome", outcome] += number

    def take_ready(self, now_us: int | None = None) -> list[FeatureWait]:
        """Remove and return the queries whose features have come, and by `now_us` those that have waited enough.

        They are to be completed.
        """
        ready, self._ready = self._ready, []
        if now_us is not None:
            self._forget(now_us)
        while now_us is not None and self._due and self._due[0][0] <= now_us:
            wait = heapq.heappop(self._due)[2]
            if not wait.is_over:
                self._end(wait)
                ready.append(wait)
        return ready

    def next_due(self) -> int | None:
        """Return when the first wait is over (us)."""
        while self._due and self._due[0][2].is_over:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def drop(self, partitions: Collection[int]) -> list[Pending]:
        """Remove and return the waiting queries of these partitions."""
        gone = [wait for _, _, wait in self._due if not wait.is_over and wait.query.partition in partitions]
        for wait in gone:
            self._end(wait)
        return [wait.query for wait in gone]

    def flush(self, effects: Effects) -> None:
        """Ask for what is wanted, and write the means that should be."""
        if self._wanted:
            effects.append(FetchFeatures(tuple(self._wanted)))
            self._wanted = []
        if self._means:
            effects += self._means
            self._means = []

    def statistics(self) -> dict[str, float]:
        """Return how many queries wait, and what the table holds."""
        if not len(self._table) and not self._waiting:
            return {}
        sizes = {"features_cached": float(len(self._table)), "features_bytes": float(self._table.size)}
        return {"features_waiting": float(self._waiting), **sizes}

    def _patience_us(self, source: Source, query: Pending, now_us: int) -> int:
        """Return how long a query waits for a source: not at all where its store is down."""
        is_silent = self._asked_us is not None and now_us - self._asked_us >= SILENT_US
        if source.store == "redis" and is_silent:
            return 0
        return int(source.wait * (query.until_us - now_us))

    def _wait(self, wait: FeatureWait) -> None:
        wait.query.keep_input()
        wait.query.grow(sum(map(_size, wait.missing)))
        self._places += wait.query.places
        self._waiting += 1
        wait.serial = next(self._serial)
        if len(self._due) > 2 * self._waiting + _SPARE:
            self._due = [entry for entry in self._due if not entry[2].is_over]
            heapq.heapify(self._due)
        heapq.heappush(self._due, (wait.until_us, wait.serial, wait))
        for key in wait.missing:
            self._by_key.setdefault(key, {})[wait.serial] = wait

    def _end(self, wait: FeatureWait) -> None:
        """Let a query wait no more; what it has waited for may come, or not."""
        wait.is_over = True
        self._places -= wait.query.places
        self._waiting -= 1
        for key in wait.missing:
            waiting = self._by_key[key]
            del waiting[wait.serial]
            if not waiting:
                del self._by_key[key]

    def _ask(self, keys: Sequence[str], now_us: int) -> None:
        """Ask the store for keys, unless they are being asked for."""
        self._forget(now_us)
        wanted = dict.fromkeys([key for key in keys if key not in self._asked], now_us)
        if not wanted:
            return
        self._asked |= wanted
        while len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]
        self._wanted += wanted
        if self._asked_us is None or (self._latest_us is not None and now_us - self._latest_us >= QUIET_US):
            self._asked_us = now_us
        self._latest_us = now_us

    def _forget(self, now_us: int) -> None:
        """Forget keys that a store has not answered in time: they may be asked for again."""
        while self._asked:
            key, since_us = next(iter(self._asked.items()))
            if now_us - since_us < SILENT_US:
                return
            del self._asked[key]

    def _learn(self, source: str, values: tuple[float, ...]) -> None:
        mean = self._table.learn(source, values)
        if mean is not None:
            self._means.append(Emit(topics.FEATURES, 0, source.encode(), self._codec.encode(mean)))


def _size(key: str) -> int:
    return _KEY_BYTES + len(key) * (1 if key.isascii() else 4)


def _keys(source: Source, query: Pending) -> list[str]:
    """Return the topic's keys of what a source has of a query; none where the query has no such field."""
    if source.key == CANDIDATE:
        return [topics.feature_key(source.name, one) for one in query.ids]
    field = query.query_id if source.key == "query_id" else query.context if source.key == "context" else query.input
    return [topics.feature_key(source.name, field)] if isinstance(field, str) else []


def _mean(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the mean of rows, in which numbers beyond bounds count as these: their sum stays a number."""
    return tuple(np.clip(np.array(rows), -LARGEST, LARGEST).mean(axis=0).tolist())


def _give(query: Pending, found: Recalled) -> None:
    """Set a query's features and those of its candidates, and what its models are asked about."""
    lookups = query.lookups = query.lookups or Lookups()
    query.features, lookups.imputed, rows, lookups.unknown = found
    if query.input is not None:
        query.input = asked_about(query.input, found.features)
    if rows is not None:
        lookups.candidates = rows
        query.grow(len(rows.data))
