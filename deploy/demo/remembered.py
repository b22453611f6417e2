"""Which outputs came from the prediction cache, told by what is on the topics: nobody predicted them for their query.

An output that a worker made for a query stands in `model-predictions` under the query's id. One that does not was
remembered, and then the same version predicted the same row for another query. The topics may be read in any order.
"""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """What an output follows from: a model's version, and the number of a row."""

    model: str
    version: str
    row: int


class Remembered:
    """Folds outputs and predicted rows; each is one (query id, model)."""

    def __init__(self) -> None:
        self._predicted: set[tuple[str, str]] = set()
        self._unpredicted: dict[tuple[str, str], Source] = {}
        self._sources: set[Source] = set()

    def output(self, query_id: str, source: Source) -> bool:
        """Note a fine output of an answer; tells whether nobody is known to have predicted it for this query."""
        key = query_id, source.model
        if key in self._predicted:
            return False
        self._unpredicted[key] = source
        return True

    def predicted(self, query_id: str, source: Source) -> bool:
        """Note a row that a worker predicted; tells whether its output has been taken for a remembered one."""
        key = query_id, source.model
        self._predicted.add(key)
        self._sources.add(source)
        return self._unpredicted.pop(key, None) is not None

    def count(self, model: str) -> int:
        """Return how many of a model's outputs were remembered: those that another query explains."""
        return sum(source.model == model and source in self._sources for source in self._unpredicted.values())
