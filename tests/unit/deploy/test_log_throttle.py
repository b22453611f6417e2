"""Tests of the filter for libraries that repeat themselves."""

from __future__ import annotations

import logging

from deploy.process.log_throttle import Quoted, RateLimitFilter


def said(name: str, line: int, at_s: float) -> logging.LogRecord:
    """Return what a line of source said then."""
    record = logging.LogRecord(name, logging.ERROR, "client.py", line, "broker %d is gone", (line,), None)
    record.created = at_s
    return record


def test_a_line_of_the_library_is_heard_once_in_ten_seconds() -> None:
    """Each of its lines by itself, those of its parts, too."""
    seldom = RateLimitFilter("aiokafka")
    heard = [seldom.filter(said("aiokafka.consumer", 7, 1_000.0 + tenth / 10)) for tenth in range(250)]
    assert [index for index, each in enumerate(heard) if each] == [0, 100, 200]
    assert seldom.filter(said("aiokafka", 8, 1_024.0))


def test_everybody_else_is_heard_always() -> None:
    """What Skysail says is worth its line, as is what other libraries do, also those whose names begin alike."""
    seldom = RateLimitFilter("aiokafka")
    assert all(
        seldom.filter(said(name, 7, 1_000.0)) for name in ("streams.runtime.role.accumulator", "aiokafkaesque") * 3
    )


def test_a_message_of_a_role_is_quoted_once_in_a_while_and_one_of_the_library_of_one_role() -> None:
    """Times and numbers differ from line to line; another message, and another role's own, is quoted at once."""
    quoted = Quoted()

    def told(role: str, message: str, now_s: float) -> bool:
        return quoted.is_new(role, f"2024-01-02 03:04:{now_s:06.3f} ERROR {message}", now_s)

    lost = "aiokafka: Unable connect to node with id {}: refused"
    assert told("selection", lost.format(1), 0)
    assert not told("joiner", lost.format(2), 1)
    assert told("selection", "streams.roles: Redis is away", 2)
    assert told("joiner", "streams.roles: Redis is away", 3)
    assert not told("selection", "streams.roles: Redis is away", 11.9)
    assert told("selection", "streams.roles: Redis is away", 12)
    assert told("learner", lost.format(1), 12)
