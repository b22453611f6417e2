"""What a query's answer says of its times: of its sender's clock, and of an objective that was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.records import Query

# Clocks of machines that follow NTP are this close; a sender that is further ahead is told.
AHEAD_US = 1_000_000
_DAY_S = 86_400
_LONGEST_MS = 1e12  # that is told as it is: a client may send any number


def of_sender(query: Query, record_us: int, now_us: int) -> str:
    """Return when a query was sent by the clock of its sender, or its record's time where it has none.

    Args:
        query: that has come.
        record_us: the time of its record.
        now_us: the time.
    """
    sent_us = query.sent_us or record_us
    if sent_us <= 0:
        return "its record has no time: set sent_us, or have the producer stamp its records"
    return sent(now_us - sent_us, has_clock=query.sent_us != 0)


def sent(ago_us: int, *, has_clock: bool) -> str:
    """Return how long ago a query was sent, and by whose clock: its sender's or that of its record."""
    when = f"{span(ago_us)} ago" if ago_us >= 0 else f"{span(-ago_us)} in the future"
    whose = "its sender's clock" if has_clock else "its record's time"
    return f"sent {when} by {whose}"


def cut(slo_ms: float, longest_us: int) -> str:
    """Say that a query asked for a longer objective than it may have."""
    asked_us = int(min(slo_ms, _LONGEST_MS) * 1_000)
    return f"asked for {span(asked_us)}, the application allows {span(longest_us)} (max_slo_ms)"


def span(us: int) -> str:
    """Return a duration for people.

    Examples:
        >>> [span(40_000), span(3_000_000), span(20_000_000), span(3_600_000_000), span(56 * 365 * 86_400_000_000)]
        ['40 ms', '3.0 s', '20 s', '60 min', '20,440 days']
    """
    seconds = us / 1e6
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 2 * _DAY_S:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / _DAY_S:,.0f} days"
