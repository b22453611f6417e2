"""Batches that are held are found by their times, whatever times somebody has written."""

from __future__ import annotations

from streams.operators.contract import Record
from streams.telemetry.held import HeldBatches


def test_a_search_over_an_age_takes_no_longer_than_what_is_held() -> None:
    """A prediction that says it was received in 1970 is looked for from then on: that ended nothing but the role."""
    held = HeldBatches(lambda _: (), 1 << 20)
    record = Record("predictions", 0, 7, 1_790_000_000_000_000, b"key", b"some id in it")
    held.add(record, 1)
    # A walk over each tenth of a second since 1970 would take minutes: the test's limit finds that.
    assert [*held.find("predictions", None, b"id", 0, 1 << 62)] == [record]
    assert [*held.find("predictions", 0, b"id", record.timestamp_us + 1, 1 << 62)] == []
