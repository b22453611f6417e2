"""A cache of outputs: an input seen before is answered without asking; an input in flight is asked once.

    ask ──▶ not there ──▶ the model is asked; the entry waits for its output ──▶ which answers what waits, and is kept
        ├─▶ in flight ──▶ the query waits with it
        └─▶ answered  ──▶ the query has its output

The cache lies below the policy (Clipper, NSDI'17 §4.2). The policy decides first, so learning does not depend on the
cache. A key is the model, its version and package, and the whole input: kind, shape and bytes are compared. The hash
only finds the place; it is SipHash under a key of this process, so nobody can make inputs that collide. Only outputs
without a fault are kept, and only of the version that was asked for.

The least recently used entry goes first. On the first 500,000 requests of Twitter's cache cluster 52, LRU hits 0.6443
with room for 1,000 keys and 0.7731 with room for 10,000; CLOCK hits 0.6444 and 0.7698. A request costs 0.11 us against
0.10 (CPython 3.11, `skysail load run cache`). So LRU hits as often or more, needs no ring, and lets entries of any size
leave in order.

The cache is off by default. Where every input is different, selection and combiner take 8.4 us a query instead of 5.7
(rows of 256 bytes, full cache; for 3 KiB 13.2 instead of 8.4). And it would freeze the answers of a model that is no
function of its input.
"""

from __future__ import annotations

from collections import OrderedDict
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from schemas.records import DENSE, ModelOutput, NamedTensors, Outcome, Tensor, dense
from streams.operators.statistics import render

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from schemas.records import Element, Input, Model, ModelPredictions
    from streams.operators.selection.pending import Pending

# Memory of an entry beside its input and scores: 271 bytes (measured at 80,000 entries, CPython 3.11), more just after
# a table has doubled.
ENTRY_BYTES = 384

# Name and version of a model; the digest of its package, or how often the record of the model has changed where the
# version is not the serving one: the record has no other digests.
_Source: TypeAlias = tuple[str, str, str]
# A model's version; element type or kind, shape and bytes of the input.
_Key: TypeAlias = "tuple[_Source, Element, tuple[int, ...], bytes]"
# Due time of the output (us), reply partition and id of the query that was sent for it.
_Awaited: TypeAlias = tuple[int, int, str]
_TEXT, _RAW = "text", "raw"  # no element type is called so
_LARGE = frozenset({str, NamedTensors})  # answers that take memory beyond a number


class Orphan(NamedTuple):
    """A query that waited for another's output, which does not come: its models must be asked for it."""

    model: str
    query: Pending
    input: Input


class _CachedModel:
    """One model: its deployed version, its awaited outputs by partition and query id, and its counters."""

    __slots__ = ("changes", "coalesced", "flights", "hits", "misses", "model", "source")

    def __init__(self, model: Model) -> None:
        self.flights: dict[int, dict[str, _Key]] = {}
        self.hits = self.coalesced = self.misses = self.changes = 0
        self.deploy(model)

    def deploy(self, model: Model) -> None:
        self.model = model
        self.source = model.name, model.version, model.digest
        self.changes += 1

    def source_for(self, query: Pending) -> _Source:
        beside = query.beside(self.model.shares)
        return (self.model.name, beside, str(self.changes)) if beside else self.source


class PredictionCache:
    """Outputs by model and input, at most so many bytes of them; an optimisation only, lost when the process ends.

    An entry counts from the moment its model is asked, so entries in flight are bounded, too.

    Args:
        capacity_bytes: of all entries: inputs, scores and `ENTRY_BYTES` each.
    """

    __slots__ = ("_bytes", "_capacity_bytes", "_entries", "_late", "_models", "_orphans", "_waiting")

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._entries: OrderedDict[_Key, ModelOutput | _Awaited] = OrderedDict()
        self._models: dict[str, _CachedModel] = {}
        self._waiting: dict[_Key, list[Pending]] = {}
        self._late: dict[_Key, _Awaited] = {}  # the first that was overdue: its output is still welcome
        self._orphans: list[Orphan] = []
        self._bytes = 0

    def ask(self, model: Model, query: Pending, due_us: int, now_us: int) -> bool:
        """Tell whether the model must be asked; if not, the query has its output already or waits for another's.

        Args:
            model: as deployed now.
            query: its input is still there; a hit is put into its outputs.
            due_us: when its output must be on its way back.
            now_us: an input whose model query is overdue by now is asked again.
        """
        asked = self._models.get(model.name)
        if asked is None:
            asked = self._models[model.name] = _CachedModel(model)
        elif asked.model is not model:
            asked.deploy(model)
        if _names_version(query, model.name):
            return True  # the remembered outputs may be another version's
        given, source = query.input, asked.source_for(query) if model.shares else asked.source
        key = (source, given.dtype, given.shape, given.data) if type(given) is Tensor else _key(source, given)
        found = self._entries.get(key)
        if found is None:
            asked.misses += 1
            size = ENTRY_BYTES + len(key[3])
            if size > self._capacity_bytes:
                return True  # and not kept: it would drive out all other entries
            self._bytes += size
            partition, query_id = query.partition, query.row_id
            self._entries[key] = due_us, partition, query_id
            flights = asked.flights.get(partition)
            if flights is None:
                flights = asked.flights[partition] = {}
            flights[query_id] = key
            if self._bytes > self._capacity_bytes:
                self._shrink()
            return True
        self._entries.move_to_end(key)
        if isinstance(found, ModelOutput):
            asked.hits += 1
            query.outputs[model.name] = found
            return False
        overdue = found[0] < now_us
        if overdue:
            asked.misses += 1
            self._await_again(asked, key, (due_us, query.partition, query.row_id))
        else:
            asked.coalesced += 1
        self._waiting.setdefault(key, []).append(query)  # if overdue for either of the two
        return overdue

    def awaits(self, query: Pending) -> bool:
        """Tell whether an output under this query's id is awaited, for an earlier query with that id."""
        for name in query.models:
            asked = self._models.get(name)
            if asked is not None and query.row_id in asked.flights.get(query.partition, ()):
                return True
        return False

    def knows(self, model: Model, query: Pending) -> bool:
        """Tell whether the model's output for this query's input is there, or awaited."""
        return self._found(model, query) is not None

    def holds(self, model: Model, query: Pending) -> bool:
        """Tell whether the model's output for this query's input is there."""
        return isinstance(self._found(model, query), ModelOutput)

    def _found(self, model: Model, query: Pending) -> ModelOutput | _Awaited | None:
        asked, given = self._models.get(model.name), query.input
        if asked is None or asked.model is not model or _names_version(query, model.name):
            return None
        source = asked.source_for(query) if model.shares else asked.source
        key = (source, given.dtype, given.shape, given.data) if type(given) is Tensor else _key(source, given)
        return self._entries.get(key)

    def take_outputs(
        self, partition: int, batch: ModelPredictions, outputs: Sequence[ModelOutput], left: Container[str] = ()
    ) -> Iterator[Pending]:
        """Take a worker batch; yields each other query that waited for one of its outputs, which it now has.

        A failure is shared with those that waited, since their input is the same, but never kept. An output that
        expired says nothing about them: they are asked for themselves (`orphans`).

        Args:
            partition: of the queries.
            batch: that a worker answered.
            outputs: of its rows.
            left: ids of rows whose answer is still on its way: they were asked twice, and this is none.
        """
        asked = self._models.get(batch.model)
        flights = asked.flights.get(partition) if asked is not None else None
        if not flights:
            return
        for query_id, output in zip(batch.query_ids, outputs, strict=True):
            key = None if query_id in left else flights.pop(query_id, None)
            if key is None:
                continue
            is_kept = output.outcome is Outcome.OK and output.version == key[0][1]
            if is_kept and key not in self._waiting:
                self._keep(key, output)
            else:
                yield from self._settle(key, (partition, query_id), output, is_kept=is_kept)

    def forget(self, query: Pending) -> None:
        """Give up on the outputs that this query was to fetch: its models will not be asked."""
        for model in query.models:
            asked = self._models.get(model)
            key = asked.flights.get(query.partition, {}).get(query.row_id) if asked is not None else None
            if key is not None:
                self._abandon(key)

    def drop(self, partitions: Sequence[int]) -> None:
        """Give up on all outputs that would come to these partitions: another process takes them."""
        flights = (
            ((partition, query_id), key)
            for asked in self._models.values()
            for partition in partitions
            for query_id, key in asked.flights.pop(partition, {}).items()
        )
        for flight, key in flights:
            if key in self._entries and not self._was_late(key, flight):
                self._abandon(key)

    @property
    def has_orphans(self) -> bool:
        """Whether a query waited for an output that does not come."""
        return bool(self._orphans)

    def orphans(self) -> list[Orphan]:
        """Return, once, the queries that waited for an output that does not come, and may still be in time."""
        orphans, self._orphans = self._orphans, []
        return [orphan for orphan in orphans if not orphan.query.answered]

    def statistics(self) -> Mapping[str, float]:
        """Return how full it is, and by model how many queries were hits, in flight already (coalesced), or neither."""
        figures = {"cache_entries": float(len(self._entries)), "cache_bytes": float(self._bytes)}
        for name, asked in self._models.items():
            for result, count in ("hit", asked.hits), ("coalesced", asked.coalesced), ("miss", asked.misses):
                figures[render(("cache_total", "model", name, "result", result))] = float(count)
        return figures

    def _await_again(self, asked: _CachedModel, key: _Key, awaited: _Awaited) -> None:
        """Expect the output from another query; the first that was overdue is still taken, however late."""
        overdue = self._entries[key]
        assert not isinstance(overdue, ModelOutput)
        if key in self._late:
            asked.flights[overdue[1]].pop(overdue[2], None)
        else:
            self._late[key] = overdue
        self._entries[key] = awaited
        # Queries answered meanwhile are dropped; else they would add up for as long as the model is silent.
        self._waiting[key] = [query for query in self._waiting.get(key, ()) if not query.answered]
        asked.flights.setdefault(awaited[1], {})[awaited[2]] = key

    def _settle(self, key: _Key, flight: tuple[int, str], output: ModelOutput, *, is_kept: bool) -> Iterator[Pending]:
        """Keep the output or not, and pass it to the waiting queries."""
        if output.outcome is not Outcome.OK and self._was_late(key, flight):
            return  # a younger one is on its way
        if output.outcome is Outcome.EXPIRED:
            self._abandon(key)
            return
        waiting = self._waiting.pop(key, ())
        if is_kept:
            self._keep(key, output)
        else:
            self._forget(key, self._entries.pop(key))
        for query in waiting:
            if _wants(query, key) and query.take(output):
                yield query

    def _was_late(self, key: _Key, flight: tuple[int, str]) -> bool:
        """Tell whether this flight was the overdue one of its entry, which now is none any more."""
        late = self._late.get(key)
        if late is None or late[1:] != flight:
            return False
        del self._late[key]
        return True

    def _keep(self, key: _Key, output: ModelOutput) -> None:
        if self._late:
            self._expect_none(key, self._entries[key])
        self._entries[key] = output
        if output.scores is not None or type(output.answer) in _LARGE:
            self._bytes += _output_bytes(output)
            self._shrink()

    def _shrink(self) -> None:
        while self._bytes > self._capacity_bytes:
            key, found = self._entries.popitem(last=False)
            self._forget(key, found)
            if not isinstance(found, ModelOutput):
                self._release(key)

    def _abandon(self, key: _Key) -> None:
        """Remove an entry that awaits its output; the models of waiting queries are asked for them."""
        self._forget(key, self._entries.pop(key))
        self._release(key)

    def _release(self, key: _Key) -> None:
        for query in self._waiting.pop(key, ()):
            if _wants(query, key):
                self._orphans.append(Orphan(key[0][0], query, _input(key)))

    def _forget(self, key: _Key, found: ModelOutput | _Awaited) -> None:
        """Clean up after an entry that was removed."""
        self._bytes -= ENTRY_BYTES + len(key[3])
        if isinstance(found, ModelOutput):
            self._bytes -= _output_bytes(found)
        else:
            self._expect_none(key, found)

    def _expect_none(self, key: _Key, *awaited: ModelOutput | _Awaited | None) -> None:
        """Expect these outputs no more, nor the late one of the entry."""
        for flight in (*awaited, self._late.pop(key, None)):
            if flight is not None and not isinstance(flight, ModelOutput):
                self._models[key[0][0]].flights.get(flight[1], {}).pop(flight[2], None)


def _names_version(query: Pending, model: str) -> bool:
    """Tell whether a query, or its application, says which version of a model is to answer."""
    return query.version is not None or (query.application is not None and model in query.application.versions)


def _wants(query: Pending, key: _Key) -> bool:
    return not query.answered and key[0][0] not in query.outputs


def _key(source: _Source, given: Input | None) -> _Key:
    if isinstance(given, DENSE):
        return source, given.dtype, given.shape, given.data
    if isinstance(given, str):
        return source, _TEXT, (), given.encode()
    assert isinstance(given, bytes)
    return source, _RAW, (), given


def _input(key: _Key) -> Input:
    _, kind, shape, data = key
    if kind == _TEXT:
        return data.decode()
    return data if kind == _RAW else dense(kind, shape, data)


def _output_bytes(output: ModelOutput) -> int:
    """Return the memory of an output beyond a number (bytes)."""
    scores = len(output.scores.data) if output.scores is not None else 0
    answer = output.answer
    return scores + (
        len(answer.data) if isinstance(answer, NamedTensors) else getsizeof(answer) if type(answer) is str else 0
    )
