"""Libraries that say the same again and again are heard once in a while: an outage at night must not fill a disk."""

from __future__ import annotations

import logging

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
