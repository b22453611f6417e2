"""Room for what waits, shared so that nobody can fill it: each may hold as much as is left free for all others.

    one holder    ██████████······ it, half                    (Choudhury and Hahne 1998, "Dynamic Queue Length
    two           ██████▒▒▒▒▒▒···· a third each                 Thresholds", with a factor of one)
    n             n + 1 equal parts; the last one is free for whoever comes next

Records are bounded by their number, and by what large ones have beyond a usual record's size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Most predictions have 300 to 700 bytes; five models with ten scores each make 1,000.
USUAL_BYTES = 1_024


@dataclass(slots=True)
class _Held:
    records: int = 0
    large_bytes: int = 0


@dataclass(slots=True)
class Room:
    """Room for records, by who holds them: an application, a model, a source.

    Attributes:
        records: at most.
        large_bytes: at most, of what records have beyond `USUAL_BYTES`.
        used: of both, by all.
    """

    records: int
    large_bytes: int
    used: _Held = field(default_factory=_Held)
    _held: dict[int | str, _Held] = field(default_factory=dict)

    def take(self, holder: int | str, size: int) -> bool:
        """Make room for one more record of so many bytes; False if this holder has its share."""
        used, large = self.used, size - USUAL_BYTES
        held = self._held.get(holder) or _Held()
        if held.records + 1 > self.records - used.records:
            return False
        if large > 0:
            if held.large_bytes + large > self.large_bytes - used.large_bytes:
                return False
            used.large_bytes += large
            held.large_bytes += large
        used.records += 1
        held.records += 1
        self._held[holder] = held
        return True

    def give_back(self, holder: int | str, size: int) -> None:
        """Free what one record of this holder took; what is not held is ignored."""
        held = self._held.get(holder)
        if held is None:
            return
        large = max(0, size - USUAL_BYTES)
        for each in (self.used, held):
            each.records -= 1
            each.large_bytes -= large
        if not held.records:
            del self._held[holder]

    def clear(self) -> None:
        """Free everything."""
        self.used = _Held()
        self._held.clear()

    @property
    def is_pressed(self) -> bool:
        """Whether a quarter is taken: time to leave unread what can wait, as a poll brings many records at once."""
        used = self.used
        return 4 * used.records >= self.records or 4 * used.large_bytes >= self.large_bytes
