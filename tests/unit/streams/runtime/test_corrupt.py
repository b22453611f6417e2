"""What stands for a batch that cannot be unpacked, among the records of a poll."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.contract import Record
from streams.runtime.corrupt import KEPT_BYTES, corrupt, parted, readable

if TYPE_CHECKING:
    import pytest

GOOD = [Record("predictions", 3, offset, 1_000, None, b"v") for offset in (4, 9)]
LOST = corrupt(("predictions", 3), (5, 8), 1_700, b"x" * 100_000, "InflationError: LZ4 says no")


def test_it_becomes_a_letter_that_says_which_offsets_and_why() -> None:
    """Only the beginning of its bytes is kept; it stands at the last of its offsets, so that what follows is next."""
    records, (letter,) = parted([GOOD[0], LOST, GOOD[1]])
    assert records == GOOD
    assert letter.cause == "corrupt_batch"
    assert letter.message == "cannot be unpacked: offsets 5 to 8, 100000 bytes: InflationError: LZ4 says no"
    assert (letter.record.offset, letter.record.timestamp_us, len(letter.record.value or b"")) == (
        8,
        1_700_000,
        KEPT_BYTES,
    )


def test_who_writes_no_dead_letters_reads_on_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """As a client that waits for its predictions does."""
    assert readable([GOOD[0], LOST, GOOD[1]]) == GOOD
    assert "predictions-3 is read on behind a batch that cannot be unpacked: offsets 5 to 8" in caplog.text


def test_a_reason_may_be_of_any_length_and_of_any_letters() -> None:
    """Libraries quote what they stumble over."""
    assert len(corrupt(("t", 0), (1, 1), 0, b"", "\udcff" * 10_000).what) < 1_500
