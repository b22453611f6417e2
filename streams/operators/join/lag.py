"""Whether a topic is behind in one partition: it has not been read up to where it ended half a second ago.

A topic that is written all the time has unread records at nearly every moment. So unread records alone tell nothing,
and waiting for none would never end. The end at the look before decides:

    look      1              2               3
    end       ├─────────────▶│ 1,000         │ 1,020
    position  ├──▶ 400: behind at look 2     ├──▶ 1,010: past 1,000, so no longer behind

If nothing is read at all, as while the partition has no leader, waiting does not help. Then it is not behind.
"""

from __future__ import annotations

# As often as roles give their kernels the numbers of unread records.
_LOOK_US = 500_000


class Lag:
    """The reading progress of one topic in one partition.

    Attributes:
        position: the offset after the last record that was read; None = nothing was read.
        is_behind: whether it is behind.
    """

    __slots__ = ("_end", "_looked_us", "_was", "is_behind", "position")

    def __init__(self) -> None:
        self.position: int | None = None
        self.is_behind = False
        self._was: int | None = None  # the position at the last look
        self._end: int | None = None  # of the topic then
        self._looked_us: int | None = None

    def look(self, unread: int, now_us: int) -> None:
        """Take how many records are unread; if some are at the first look, it is behind."""
        if not unread:
            self.is_behind = False
        if self._looked_us is not None and now_us < self._looked_us + _LOOK_US:
            return
        if unread:
            is_reading = self._looked_us is None or self.position != self._was
            is_past = self._end is not None and self.position is not None and self.position >= self._end
            self.is_behind = is_reading and not is_past
        self._was, self._looked_us = self.position, now_us
        self._end = None if self.position is None else self.position + unread
