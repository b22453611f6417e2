"""`skysail record`: which span its options name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from deploy.cli.record import place_of, since, span_of
from deploy.errors import UsageError
from streams.recorder.span import Offset, RecordedSpan, Time

NOW_US = 1_766_000_000_000_000


def test_places_are_offsets_times_and_now() -> None:
    """A time without a zone is UTC, as are all times that are printed."""
    assert place_of("12", NOW_US) == Offset(12)
    assert place_of("now", NOW_US) == Time(NOW_US)
    assert place_of("2026-11-23T14:00+02:00", NOW_US) == Time(
        int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()) * 1_000_000
    )
    assert place_of("2026-11-23", NOW_US) == Time(int(datetime(2026, 11, 23, tzinfo=UTC).timestamp()) * 1_000_000)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1_800), ("1.5h", 5_400), ("7d", 604_800)])
def test_how_long_ago(text: str, seconds: int) -> None:
    """A number and a unit."""
    assert since(text, NOW_US) == Time(NOW_US - seconds * 1_000_000)


def test_a_span_has_a_begin_and_an_end() -> None:
    """Neither need be named."""
    assert span_of(None, None, None, follow=False, now_us=NOW_US) == RecordedSpan()
    assert span_of("3", None, "now", follow=True, now_us=NOW_US) == RecordedSpan(Offset(3), Time(NOW_US), follows=True)


@pytest.mark.parametrize(
    ("begin", "ago", "end", "follow"),
    [
        ("yesterday", None, None, False),
        (None, "soon", None, False),
        (None, "1 h", None, False),
        ("3", "1h", None, False),
        (None, None, "5", True),
    ],
)
def test_what_is_no_span_is_refused(begin: str | None, ago: str | None, end: str | None, follow: bool) -> None:
    """The message says what to write."""
    with pytest.raises(UsageError):
        span_of(begin, ago, end, follow=follow, now_us=NOW_US)
