"""Tests of the filter for libraries that repeat themselves."""

from __future__ import annotations

import logging

from deploy.seldom import Seldom


def said(name: str, line: int, at_s: float) -> logging.LogRecord:
    """Return what a line of source said then."""
    record = logging.LogRecord(name, logging.ERROR, "client.py", line, "broker %d is gone", (line,), None)
    record.created = at_s
    return record


def test_a_line_of_the_library_is_heard_once_in_ten_seconds() -> None:
    """Each of its lines by itself, those of its parts, too."""
    seldom = Seldom("aiokafka")
    heard = [seldom.filter(said("aiokafka.consumer", 7, 1_000.0 + tenth / 10)) for tenth in range(250)]
    assert [index for index, each in enumerate(heard) if each] == [0, 100, 200]
    assert seldom.filter(said("aiokafka", 8, 1_024.0))


def test_everybody_else_is_heard_always() -> None:
    """What Skysail says is worth its line, as is what other libraries do, also those whose names begin alike."""
    seldom = Seldom("aiokafka")
    assert all(seldom.filter(said(name, 7, 1_000.0)) for name in ("streams.runtime.lanes", "aiokafkaesque") * 3)
