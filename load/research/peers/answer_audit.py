"""Judges each answer by the id of its query, after a stretch: nothing is decoded while a system is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from load.research.peers.wire_formats import WireFormat

POINTS = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
_FLAT_US = 50_000  # in two seconds: a rate that is 4 % too high shows
_DEFAULTS = 0.01  # of the answers; a system with more of them keeps its backlog flat by that
OBJECTIVES_MS = (20, 50, 100)


class Entry(NamedTuple):
    """A query: which row it asks about and when it was meant to be sent."""

    row: int
    intended_us: int


@dataclass(slots=True)
class Tally:
    """The outcomes of the queries of one part.

    Attributes:
        asked: queries sent.
        answered: distinct queries with an answer, whatever it says.
        duplicates: further answers to answered queries.
        wrong: answers that differ from what their model says offline.
        defaults: answers without a model's.
        latencies_us: of the first answers, from the intended send time, in order of arrival.
        right_us: of those that are right and no defaults.
    """

    asked: int = 0
    answered: int = 0
    duplicates: int = 0
    wrong: int = 0
    defaults: int = 0
    latencies_us: list[int] = field(default_factory=list)
    right_us: list[int] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Queries without an answer."""
        return self.asked - self.answered

    @property
    def is_flat(self) -> bool:
        """Whether no backlog grew: nothing is missing, and the last fifth waited no longer than the first half did.

        In the middle of each, and by no more than 50 ms. Where more than 1 % are defaults it is not known.
        """
        latencies, count = self.latencies_us, len(self.latencies_us)
        if self.missing or not count or self.defaults > _DEFAULTS * count:
            return False
        grown_us = np.median(latencies[-max(1, count // 5) :]) - np.median(latencies[: max(1, count // 2)])
        return bool(grown_us <= _FLAT_US)

    def latency_ms(self) -> dict[str, float]:
        """Return the percentiles; nothing where nothing was answered."""
        if not self.latencies_us:
            return {}
        values = np.percentile(self.latencies_us, list(POINTS.values())) / 1e3
        return dict(zip(POINTS, values.tolist(), strict=True))

    def goodput_per_s(self, objective_ms: float, seconds: float) -> float:
        """Return the rate of right answers within an objective."""
        return float((_array(self.right_us) <= objective_ms * 1e3).sum() / seconds)


class Ledger:
    """The queries of one part.

    Args:
        wire_format: reads the answers.
        truth: what each model says about each row; a model that is not in it is not judged.
    """

    def __init__(self, wire_format: WireFormat, truth: Mapping[str, Sequence[int]]) -> None:
        self._wire_format, self._truth = wire_format, truth
        self._entries: dict[str, Entry] = {}

    def asked(self, query_id: str, row: int, intended_us: int) -> None:
        """Note a query."""
        self._entries[query_id] = Entry(row, intended_us)

    def __len__(self) -> int:
        return len(self._entries)

    def judge(self, arrivals: Iterable[tuple[int, bytes]]) -> Tally:
        """Judge answers `(arrived_us, value)`; those to queries of other parts do not count."""
        tally, seen = Tally(len(self._entries)), set[str]()
        for arrived_us, value in arrivals:
            said = self._wire_format.answer(value)
            entry = self._entries.get(said.query_id)
            if entry is None:
                continue
            if said.query_id in seen:
                tally.duplicates += 1
                continue
            seen.add(said.query_id)
            self._count(tally, entry, said.labels, arrived_us - entry.intended_us)
        return tally

    def _count(self, tally: Tally, entry: Entry, labels: Sequence[tuple[str, object]], latency_us: int) -> None:
        wrong = any(model in self._truth and self._truth[model][entry.row] != label for model, label in labels)
        tally.answered += 1
        tally.wrong += wrong
        tally.defaults += not labels
        tally.latencies_us.append(latency_us)
        if labels and not wrong:
            tally.right_us.append(latency_us)


def _array(values: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(values, np.int64)
