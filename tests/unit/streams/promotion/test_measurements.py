"""A value that silence has one for, too, is compared when the window of its query has ended: not sales alone."""

from __future__ import annotations

import numpy as np
import pytest

from schemas import topics
from schemas.records import Candidate, Decision, Measurement, Measurements, MetricValue, WatchedMetric
from streams.operators.contract import Record
from streams.promotion.copies import Copies
from streams.promotion.lifecycle import Lifecycle
from streams.promotion.measurements import ComparableMeasurements
from streams.promotion.versions import VersionEvidence
from tests.loops import CODEC

DECISION = Decision((0,), 0, "shop", "single()", ("model",), (1.0,))
SOLD = WatchedMetric("shop", "sold", 100.0, "EUR", 5.0)
WINDOW_US = 60_000_000
SOLD_US = 100_000


def told(number: int, loss: float, final_us: int = 0, version: str = "2", predicted_us: int = 0) -> Measurement:
    """Return what a query has sold."""
    values, versions = (MetricValue("sold", 0.0, loss),), (f"model@{version}",)
    return Measurement(
        f"q{number}", "shop", None, DECISION, values, versions, predicted_us=predicted_us, final_us=final_us
    )


class Reader:
    """Reads a log that is being written."""

    def __init__(self) -> None:
        self._comparable = ComparableMeasurements(CODEC, Copies(WINDOW_US, 1 << 20))

    def read(self, at_us: int, *seen: Measurement, partition: int = 0) -> list[Measurement]:
        """Return what may be compared as of a record that was written then."""
        record = Record(topics.OBSERVATIONS, partition, 0, at_us, b"shop", CODEC.encode(Measurements(seen)))
        return self._comparable.take(record)

    def passes(self, at_us: int) -> list[Measurement]:
        """Return what may be compared as of a record of observations."""
        return self._comparable.take(Record(topics.OBSERVATIONS, 0, 0, at_us, b"shop", b""), has_observations=True)

    def ends(self, at_us: int) -> list[Measurement]:
        """Return what may be compared as of a time behind the last record."""
        return self._comparable.until(at_us)


def test_each_value_of_a_query_counts_once() -> None:
    """A joiner that was killed writes a measurement again, perhaps with another one of the same query."""
    one, again = told(1, 0.5), told(1, 0.9)
    again = again._replace(values=(*again.values, MetricValue("latency", 0.0, 0.1)))
    reader = Reader()
    assert reader.read(1_000_000, one) == [one]
    assert [[value.metric for value in seen.values] for seen in reader.read(1_000_000, again)] == [["latency"]]
    assert reader.read(1_000_000, again) == []


def test_a_sale_waits_until_its_window_ends_and_what_has_no_window_does_not() -> None:
    """The record that ends it may be any of its partition, and none of another."""
    reader, sale, quick = Reader(), told(1, 0.5, WINDOW_US), told(2, 0.5)
    assert reader.read(1, sale) == []
    assert reader.read(2, quick) == [quick]
    assert reader.read(WINDOW_US, told(3, 0.5), partition=1) == [told(3, 0.5)]
    assert reader.passes(WINDOW_US - 1) == []
    assert reader.passes(WINDOW_US) == [sale]
    assert reader.passes(WINDOW_US) == []


def test_a_sale_is_compared_when_its_window_has_ended_although_nothing_is_written_any_more() -> None:
    """Once, of any partition."""
    reader, sale, other = Reader(), told(1, 0.5, WINDOW_US), told(2, 0.5, WINDOW_US + 1)
    assert reader.read(1, sale) == []
    assert reader.read(1, other, partition=1) == []
    assert reader.ends(WINDOW_US) == [sale]
    assert reader.ends(WINDOW_US + 1) == [other]
    assert reader.ends(WINDOW_US + 1) == []


def test_a_query_that_had_to_be_forgotten_is_withdrawn() -> None:
    """Its silence would never have been written: sales alone would be left."""
    reader, sale = Reader(), told(1, 0.5, WINDOW_US)
    reader.read(1, sale)
    reader.read(2, sale._replace(values=()))
    assert reader.passes(WINDOW_US) == []


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to end no longer wait then."""
    monkeypatch.setattr("streams.promotion.measurements.MOST_WAITING", 3)
    reader, sales = Reader(), [told(number, 0.5, WINDOW_US + number) for number in range(5)]
    reader.read(1, *sales)
    assert reader.passes(2) == sales[:2]


def test_in_the_first_window_sales_alone_say_nothing() -> None:
    """The candidate sells to three times as many, for less each: what those who bought have paid would send it back."""
    random, reader = np.random.default_rng(3), Reader()
    log: list[tuple[int, Measurement]] = []
    for number in range(4_000):
        at_us, mine = number * WINDOW_US // 2_000, bool(random.random() < 0.5)
        is_sold = random.random() < (0.3 if mine else 0.1)
        loss = (0.4 if mine else 0.0) if is_sold else 1.0
        seen = told(number, loss, at_us + WINDOW_US, "2" if mine else "1", at_us)
        log.append((at_us + (SOLD_US if is_sold else WINDOW_US), seen))
    found = VersionEvidence("model", "2", "1", metrics=(SOLD,))
    in_time = sorted([each for each in log if each[0] < 2 * WINDOW_US], key=lambda each: each[0])
    for at_us, seen in in_time:
        for one in reader.read(at_us, seen):
            assert at_us >= WINDOW_US
            found.measure(one, at_us)
    (last,) = found.measured(0.05)
    assert last.lower < 0.08 < last.upper
    assert last.difference == pytest.approx(0.08, abs=0.04)


def test_sales_of_queries_before_the_wish_do_not_count_nor_does_their_silence() -> None:
    """What was sold before is not read again after a restart, and the rest of them has sold nothing."""
    lifecycle = Lifecycle(WINDOW_US)
    lifecycle.wish("version/model", Candidate("version", "model", "2", "1", 100, (0.5, 1.0), metrics=(SOLD,)))
    for number, version in enumerate("12"):
        lifecycle.measure(told(number, 1.0, WINDOW_US, version, predicted_us=99), WINDOW_US)
    (evidence,) = lifecycle.courses["version/model"].comparison.measured(0.05)
    assert evidence.pairs == 0
    for number, version in enumerate("12"):
        lifecycle.measure(told(number, 1.0, WINDOW_US, version, predicted_us=100), WINDOW_US)
    (evidence,) = lifecycle.courses["version/model"].comparison.measured(0.05)
    assert evidence.pairs == 1
