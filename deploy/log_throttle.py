"""Libraries that say the same again and again are heard once in a while: an outage at night must not fill a disk."""

from __future__ import annotations

import logging
import re

_EVERY_S = 10.0


class Seldom(logging.Filter):
    """Lets what one line of a library's source says through once in ten seconds, whatever the words are.

    With a broker away each of aiokafka's tasks says so ten times a second, for as long as that lasts.
    """

    def __init__(self, library: str) -> None:
        """Listen to a library: its logger and those below it."""
        super().__init__(library)
        self._said: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to let it through."""
        if not super().filter(record):
            return True
        place = (record.pathname, record.lineno)
        if record.created - self._said.get(place, -_EVERY_S) < _EVERY_S:
            return False
        self._said[place] = record.created
        return True


class Quoted:
    """Which lines of the roles' logs are worth a line on the console: one message of a role once in ten seconds.

    What the Kafka library says all roles say alike, so that it is quoted of one of them. The logs have everything.
    """

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], float] = {}

    def is_new(self, role: str, line: str, now_s: float) -> bool:
        """Tell whether to quote a line, such as `DATE TIME ERROR LOGGER: MESSAGE`; numbers make no other message."""
        message = re.sub(r"\d+", "#", line.partition(" ")[2].partition(" ")[2])
        key = ("" if "aiokafka" in message.partition(":")[0] else role, message)
        if now_s - self._said.get(key, -_EVERY_S) < _EVERY_S:
            return False
        self._said = {known: at_s for known, at_s in self._said.items() if now_s - at_s < _EVERY_S}
        self._said[key] = now_s
        return True
