"""Room that several holders share: each may hold as much as is left free for all others, so that nobody fills it.

    one holder    ██████████······ it, half                    (Choudhury and Hahne 1998, "Dynamic Queue Length
    two           ██████▒▒▒▒▒▒···· a third each                 Thresholds", with a factor of one)
    n             n + 1 equal parts; the last one is free for the next holder

Two things are bounded: the number of records, and what large records have beyond a usual record's size.
"""

from __future__ import annotations

# Most predictions have 300 to 700 bytes; five models with ten scores each make 1,000.
USUAL_BYTES = 1_024
# A label and its query's id, twice: in the value and as the key.
USUAL_FEEDBACK_BYTES = 128


class SharedBuffer:
    """Room for records, by who holds them: an application, a model, a source.

    Args:
        records: at most.
        large_bytes: at most, of what records have beyond the usual.
        usual_bytes: what a record may have without counting as large.

    Attributes:
        records: as above.
        usual_bytes: as above.
        used: records that are held.
        used_large_bytes: what they have beyond the usual.
    """

    __slots__ = ("_held", "_large_bytes", "records", "used", "used_large_bytes", "usual_bytes")

    def __init__(self, records: int, large_bytes: int, usual_bytes: int = USUAL_BYTES) -> None:
        self.usual_bytes = usual_bytes
        self.records = records
        self._large_bytes = large_bytes
        self._held: dict[int | str, list[int]] = {}  # records, and what they have beyond the usual
        self.used = self.used_large_bytes = 0

    def take(self, holder: int | str, size: int) -> bool:
        """Make room for one more record of so many bytes; False if this holder has its share."""
        held = self._held.get(holder)
        if (0 if held is None else held[0]) >= self.records - self.used:
            return False
        if size > self.usual_bytes:
            large = size - self.usual_bytes
            if (0 if held is None else held[1]) + large > self._large_bytes - self.used_large_bytes:
                return False
            self.used_large_bytes += large
        else:
            large = 0
        self.used += 1
        if held is None:
            self._held[holder] = [1, large]
        else:
            held[0] += 1
            held[1] += large
        return True

    def give_back(self, holder: int | str, size: int) -> None:
        """Free the room of one record of this holder; a record that is not held is ignored."""
        held = self._held.get(holder)
        if held is None:
            return
        self.used -= 1
        if size > self.usual_bytes:
            self.used_large_bytes -= size - self.usual_bytes
            held[1] -= size - self.usual_bytes
        held[0] -= 1
        if not held[0]:
            del self._held[holder]

    def held(self, holder: int | str) -> int:
        """Return how many records this holder has: it may have one more while they are fewer than are free."""
        held = self._held.get(holder)
        return 0 if held is None else held[0]

    def take_usual(self, holder: int | str, count: int) -> None:
        """Make room for so many usual records, of those that it may have."""
        held = self._held.setdefault(holder, [0, 0])
        held[0] += count
        self.used += count

    def give_usual_back(self, holder: int | str, count: int) -> None:
        """Free the room of so many usual records that this holder has; one that holds nothing any more is ignored."""
        held = self._held.get(holder)
        if held is None:
            return
        self.used -= count
        held[0] -= count
        if not held[0]:
            del self._held[holder]

    def clear(self) -> None:
        """Free everything."""
        self._held.clear()
        self.used = self.used_large_bytes = 0

    @property
    def is_pressed(self) -> bool:
        """Whether a quarter is taken: then topics that can wait should stay unread, as a poll brings many records."""
        return 4 * self.used >= self.records or 4 * self.used_large_bytes >= self._large_bytes
