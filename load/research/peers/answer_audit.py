"""Judges each answer by the id of its query, after a stretch: nothing is decoded while a system is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from load.figures import LEAST_FOR_P999

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from load.research.peers.wire_formats import WireFormat

Truth: TypeAlias = "int | frozenset[int]"  # one answer, or any of these
POINTS = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
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
        latencies_us: of the first answers, from the intended send time, in order of arrival; a default is none, and
            so takes for ever.
        right_us: of those that are right and no defaults.
    """

    asked: int = 0
    answered: int = 0
    duplicates: int = 0
    wrong: int = 0
    defaults: int = 0
    latencies_us: list[float] = field(default_factory=list)
    right_us: list[int] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Queries without an answer."""
        return self.asked - self.answered

    def latency_ms(self) -> dict[str, float]:
        """Return the percentiles; infinite where that many are defaults, nothing where nothing was answered."""
        return percentiles_ms(self.latencies_us, POINTS)

    def goodput_per_s(self, objective_ms: float, seconds: float) -> float:
        """Return the rate of right answers within an objective."""
        return float((_array(self.right_us) <= objective_ms * 1e3).sum() / seconds)


class Ledger:
    """The queries of one part.

    Args:
        wire_format: reads the answers.
        truth: what each model says about each row, or may say; a model that is not in it is not judged.
    """

    def __init__(self, wire_format: WireFormat, truth: Mapping[str, Sequence[Truth]]) -> None:
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
        wrong = any(model in self._truth and not _is(label, self._truth[model][entry.row]) for model, label in labels)
        tally.answered += 1
        tally.wrong += wrong
        tally.defaults += not labels
        tally.latencies_us.append(latency_us if labels else math.inf)
        if labels and not wrong:
            tally.right_us.append(latency_us)


def percentiles_ms(latencies_us: Sequence[float], points: Mapping[str, float]) -> dict[str, float]:
    """Return percentiles of latencies (us) by name, each a latency that was seen; none of no latencies."""
    if not latencies_us:
        return {}
    values = np.percentile(latencies_us, list(points.values()), method="inverted_cdf") / 1e3
    return dict(zip(points, values.tolist(), strict=True))


def p999_ms(latencies_us: Sequence[float]) -> float | None:
    """Return p99.9, of 10,000 answers or more."""
    if len(latencies_us) < LEAST_FOR_P999:
        return None
    return percentiles_ms(latencies_us, {"p999": 99.9})["p999"]


def _is(label: object, truth: Truth) -> bool:
    return label in truth if isinstance(truth, frozenset) else label == truth


def _array(values: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(values, np.int64)
