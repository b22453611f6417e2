"""Queries that wait for their observations: within a bound, the oldest are forgotten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from schemas.wire import write_long
from streams.operators.contract import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streams.operators.contract import Record
    from streams.telemetry.values import SampledQuery

MOST: Final = 20_000


class AwaitedJoins:
    """Finds the observations of sampled queries among all others.

    An observation has its query's id and behind it its application. So where the application's name stands, what is
    before it is looked up: a tenth of what it takes to decode an observation.

    Args:
        unpack: returns the records of a batch.
    """

    def __init__(self, unpack: Callable[[Batch], Sequence[Record]]) -> None:
        self._unpack = unpack
        self._awaited: dict[bytes, SampledQuery] = {}
        self._lengths: dict[bytes, set[int]] = {}  # of ids, by what stands behind them

    def __len__(self) -> int:
        return len(self._awaited)

    def expect(self, query: SampledQuery) -> None:
        """Wait for a query's observation."""
        if query.said.decision is None:
            return  # nothing was decided, so nothing is learnt
        name = query.said.query_id.encode()
        self._lengths.setdefault(_written(query.said.application), set()).add(len(name))
        self._awaited[name] = query
        while len(self._awaited) > MOST:
            del self._awaited[next(iter(self._awaited))]

    def of(self, fetched: Record | Batch) -> Iterator[tuple[SampledQuery, Record]]:
        """Yield the queries of which something fetched has the observations, each with its record."""
        data = fetched.data if isinstance(fetched, Batch) else fetched.value or b""
        found = {name for behind, lengths in self._lengths.items() for name in self._names(data, behind, lengths)}
        if not found:
            return
        records = self._unpack(fetched) if isinstance(fetched, Batch) else (fetched,)
        for name in found:
            record = next((one for one in records if name in (one.value or b"")), None)
            if record is not None:
                yield self._awaited.pop(name), record

    def _names(self, data: bytes, behind: bytes, lengths: set[int]) -> Iterator[bytes]:
        awaited, places = self._awaited, [found.start() for found in re.finditer(re.escape(behind), data)]
        for length in lengths:
            yield from [name for at in places if (name := data[at - length : at]) in awaited]


def _written(text: str) -> bytes:
    """Return a text as Avro writes it."""
    return write_long(len(text.encode())) + text.encode()
