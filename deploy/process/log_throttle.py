"""Throttles repeated log lines: an outage at night must not fill a disk."""

from __future__ import annotations

import logging
import re

_EVERY_S = 10.0


class RateLimitFilter(logging.Filter):
    """Passes a library's messages from one source line once in ten seconds.

    While a broker is away each of aiokafka's tasks logs ten times a second.
    """

    def __init__(self, library: str) -> None:
        """Filter a library's logger and those below it."""
        super().__init__(library)
        self._said: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record passes."""
        if not super().filter(record):
            return True
        place = (record.pathname, record.lineno)
        if record.created - self._said.get(place, -_EVERY_S) < _EVERY_S:
            return False
        self._said[place] = record.created
        return True


class Quoted:
    """Chooses the log lines that the console shows: each message of a role once in ten seconds.

    All roles repeat the Kafka library's messages, so one role's line is shown. The logs have everything.
    """

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], float] = {}

    def is_new(self, role: str, line: str, now_s: float) -> bool:
        """Tell whether to show a line, such as `DATE TIME ERROR LOGGER: MESSAGE`; numbers are ignored."""
        message = re.sub(r"\d+", "#", line.partition(" ")[2].partition(" ")[2])
        key = ("" if "aiokafka" in message.partition(":")[0] else role, message)
        if now_s - self._said.get(key, -_EVERY_S) < _EVERY_S:
            return False
        self._said = {known: at_s for known, at_s in self._said.items() if now_s - at_s < _EVERY_S}
        self._said[key] = now_s
        return True
