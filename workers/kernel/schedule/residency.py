"""Which models of a host are in memory: those that are asked, as many as a budget of bytes holds.

rows wait, or a copy is wanted ─▶ wanted ─▶ load it, and unload those that were not used for longest to make room

Units may have a trunk in common, which is in memory once, as long as one of them is. So it takes its room once.

With a `demand` (see `demand`) the unit of the largest is loaded first, and one with demand makes room only for a unit
with more. Units of equal demand are loaded in an order that is given, or in that of the wishes. Of those without demand
the units that nobody asks now make room first.

A unit whose loading takes long is put aside: others are loaded beside it, so that one that hangs keeps none out.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# A model of unknown size is reckoned to take so much: what a small one takes with its objects.
UNKNOWN_BYTES: Final = 1 << 20
# So many units may be put aside at a time: each is a thread, and memory that nobody knows of.
MOST_ASIDE: Final = 3
# If nothing could be loaded, that is looked at again after so long (us) for each unit and wish: a look takes 0.7 us for
# each.
LOOK_US: Final = 10


class Eviction(NamedTuple):
    """A model that makes room.

    Attributes:
        unit: which.
        needed_by: for which other one.
        idle_us: for how long it was not used.
    """

    unit: str
    needed_by: str
    idle_us: int


class Change(NamedTuple):
    """What is to be unloaded, and then loaded."""

    load: str
    evictions: tuple[Eviction, ...]


class _Wish(NamedTuple):
    """What a unit is reckoned to take by itself, its trunk, and what that takes."""

    size_bytes: int
    trunk: str
    trunk_bytes: int


@dataclass(slots=True)
class _Unit:
    size_bytes: int
    used_us: int
    trunk: str = ""
    is_busy: bool = False
    is_loading: bool = False
    is_aside: bool = False
    is_asked: bool = False


@dataclass(slots=True)
class _ResidentTrunk:
    size_bytes: int
    users: int = 0


class _Victims(NamedTuple):
    """Units that may make room.

    Attributes:
        free: those without demand, the first to go first.
        free_bytes: that all of these may give back.
        worked: the others with their demand, the least first.
    """

    free: list[str]
    free_bytes: int
    worked: list[tuple[int, str]]


class Residency:
    """Which units (versions of models) are in memory, and which are to be. Every time is an argument (us).

    Attributes:
        budget_bytes: that all units together may take.
        used_bytes: that they take, those that are being loaded included.
    """

    def __init__(
        self, budget_bytes: int, loading: int = 1, demand: Callable[[str, int], int] = lambda _unit, _now_us: 0
    ) -> None:
        """Start with nothing.

        Args:
            budget_bytes: that all units together may take.
            loading: so many units are loaded at a time.
            demand: returns a unit's demand at a time (us); a schedule has it.
        """
        self._demand = demand
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._most_loading = loading
        self._loading = 0
        self._aside = 0  # of these
        self._look_us = 0  # when it is looked again for what can be loaded
        self._is_late = False  # somebody has wanted to look before that
        self._units: OrderedDict[str, _Unit] = OrderedDict()  # in memory or being loaded; the least recently used first
        self._wishes: dict[str, _Wish] = {}  # units that are to be loaded, in this order
        self._trunks: dict[str, _ResidentTrunk] = {}  # of the units that are in memory or being loaded
        self._too_large: list[str] = []

    def __len__(self) -> int:
        """Return how many are in memory."""
        return len(self._units) - self._loading

    def __contains__(self, unit: object) -> bool:
        """Tell whether a unit is in memory."""
        return unit in self._units and not self._units[str(unit)].is_loading

    def __iter__(self) -> Iterator[str]:
        """Yield the units in memory, the least recently used first."""
        return (unit for unit, known in self._units.items() if not known.is_loading)

    @property
    def due_us(self) -> int | None:
        """When `changes` may have something that it did not look for when it was called last; None = never."""
        return self._look_us if self._is_late else None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is to be loaded; what is put aside counts as loaded."""
        return not self._wishes and self._loading == self._aside

    @property
    def wishes(self) -> int:
        """How many units are to be loaded."""
        return len(self._wishes)

    @property
    def loading(self) -> int:
        """How many units are being loaded."""
        return self._loading

    def lacks(self, size_bytes: int, trunk: str = "", trunk_bytes: int = 0) -> int:
        """Return how many bytes would have to be given up for a unit, none if it is not above 0; see `want`."""
        return self._lacks(_wish(size_bytes, trunk, trunk_bytes))

    def bytes_of(self, unit: str) -> int:
        """Return what a unit in memory takes by itself; 0 = it is not there."""
        known = self._units.get(unit)
        return 0 if known is None else known.size_bytes

    def want(self, unit: str, size_bytes: int, trunk: str = "", trunk_bytes: int = 0) -> None:
        """Wish that a unit is loaded, unless it is.

        Args:
            unit: which.
            size_bytes: of it with its trunk; 0 = not known.
            trunk: which one it has in common with others; "" = none.
            trunk_bytes: of the trunk.
        """
        if unit not in self._units:
            self._wishes.setdefault(unit, _wish(size_bytes, trunk, trunk_bytes))

    def unwant(self, unit: str) -> None:
        """Wish it no longer."""
        self._wishes.pop(unit, None)

    def use(self, unit: str, now_us: int, *, is_busy: bool) -> None:
        """Note that a unit is used; a busy one is not unloaded."""
        known = self._units.get(unit)
        if known is not None:
            known.used_us, known.is_busy = now_us, is_busy
            self._units.move_to_end(unit)

    def ask(self, unit: str, *, is_asked: bool) -> None:
        """Note whether rows wait for a unit."""
        if (known := self._units.get(unit)) is not None:
            known.is_asked = is_asked

    def put_aside(self, unit: str) -> bool:
        """Let another unit be loaded beside one that is being loaded; False = too many are put aside already."""
        known = self._units.get(unit)
        if known is None or not known.is_loading or known.is_aside:
            return True
        if self._aside >= MOST_ASIDE:
            return False
        known.is_aside = True
        self._aside += 1
        return True

    def release(self, unit: str) -> None:
        """Note that a unit is not needed here any more: of those without demand it is the first to make room."""
        if unit in self._units:
            self._units.move_to_end(unit, last=False)

    def loaded(self, unit: str, size_bytes: int, now_us: int) -> None:
        """Note that a unit is in memory, and how much it takes with its trunk; 0 = as reckoned."""
        known = self._units[unit]
        self._end_loading(known)
        known.used_us = now_us
        if size_bytes:
            own_bytes = max(0, size_bytes - (self._trunks[known.trunk].size_bytes if known.trunk else 0))
            self.used_bytes += own_bytes - known.size_bytes
            known.size_bytes = own_bytes
        self._units.move_to_end(unit)

    def drop(self, unit: str) -> None:
        """Note that a unit is not in memory any more, nor wanted there."""
        self._wishes.pop(unit, None)
        known = self._units.pop(unit, None)
        if known is not None:
            self._end_loading(known)
            self.used_bytes -= known.size_bytes
            if known.trunk:
                self._leave(known.trunk)

    def rename(self, unit: str, name: str) -> None:
        """Let a unit have another name."""
        if (known := self._units.pop(unit, None)) is not None:
            self._units[name] = known
        if (wish := self._wishes.pop(unit, None)) is not None:
            self._wishes[name] = wish

    def too_large(self) -> list[str]:
        """Return the wishes that no room can be made for, each once: they are larger than the budget."""
        found, self._too_large = self._too_large, []
        return found

    def changes(self, now_us: int, order: Callable[[str], int] = lambda _unit: 0) -> Iterator[Change]:
        """Yield what is to be loaded now, and what is to be unloaded for it.

        Args:
            now_us: the time.
            order: returns a unit's place among those of equal demand.
        """
        if not self._has_place() or not self._wishes:
            self._is_late = False
            return
        if now_us < self._look_us:
            self._is_late = True
            return
        self._is_late, is_vain = False, True
        groups: dict[int, list[str]] = {}
        for unit in self._wishes:
            groups.setdefault(self._demand(unit, now_us), []).append(unit)
        victims = self._victims(now_us)
        for demand in sorted(groups, reverse=True):
            for unit in sorted(self._promising(groups[demand], demand, victims), key=order):
                wish = self._wishes[unit]
                if self._is_too_large(wish):
                    del self._wishes[unit]
                    self._too_large.append(unit)
                    continue
                chosen = self._chosen(wish, demand, victims)
                if chosen is None:
                    continue
                evictions = tuple(Eviction(victim, unit, now_us - self._units[victim].used_us) for victim in chosen)
                self._load(unit, wish, chosen, now_us)
                is_vain = False
                yield Change(unit, evictions)
                if not self._has_place():
                    return
                victims = self._victims(now_us)
        if is_vain:
            self._look_us = now_us + LOOK_US * (len(self._units) + len(self._wishes))

    def _promising(self, units: list[str], demand: int, victims: _Victims) -> list[str]:
        """Return those of some wishes of one demand for which there may be room, or that are too large for any."""
        if victims.worked and victims.worked[0][0] < demand:
            return units
        wishes = ((unit, self._wishes[unit]) for unit in units)
        return [unit for unit, wish in wishes if self._lacks(wish) <= victims.free_bytes or self._is_too_large(wish)]

    def _is_too_large(self, wish: _Wish) -> bool:
        return wish.size_bytes + wish.trunk_bytes > self.budget_bytes

    def _has_place(self) -> bool:
        """Tell whether another unit may be loaded now."""
        return self._loading - self._aside < self._most_loading

    def _end_loading(self, known: _Unit) -> None:
        self._loading -= known.is_loading
        self._aside -= known.is_aside
        known.is_loading = known.is_aside = False

    def _load(self, unit: str, wish: _Wish, victims: Iterable[str], now_us: int) -> None:
        """Begin to load a unit in the place of others."""
        self._enter(wish)  # before the victims go: the room of a trunk that they leave to it is not given back
        for victim in victims:
            self.drop(victim)
        del self._wishes[unit]
        self._units[unit] = _Unit(wish.size_bytes, now_us, wish.trunk, is_loading=True)
        self.used_bytes += wish.size_bytes
        self._loading += 1

    def excess(self, now_us: int) -> Iterator[Eviction]:
        """Yield what is to be unloaded because units take more than was reckoned; busy ones stay."""
        while self.used_bytes > self.budget_bytes:
            others = [unit for unit in self if not self._units[unit].is_busy]
            if not others:
                return
            victim = min(others, key=lambda unit: self._units[unit].is_asked)
            idle_us = now_us - self._units[victim].used_us
            self.drop(victim)
            yield Eviction(victim, "", idle_us)

    def _enter(self, wish: _Wish) -> None:
        """Count one more user of a unit's trunk."""
        if wish.trunk:
            known = self._trunks.get(wish.trunk)
            if known is None:
                known = self._trunks[wish.trunk] = _ResidentTrunk(wish.trunk_bytes)
                self.used_bytes += wish.trunk_bytes
            known.users += 1

    def _leave(self, trunk: str) -> None:
        """Count one user of a trunk less; without any it goes."""
        known = self._trunks[trunk]
        known.users -= 1
        if not known.users:
            self.used_bytes -= known.size_bytes
            del self._trunks[trunk]

    def _victims(self, now_us: int) -> _Victims:
        """Return the units that may make room: of those without demand the ones that nobody asks come first."""
        free, asked, worked, free_bytes = list[str](), list[str](), list[tuple[int, str]](), 0
        for unit, known in self._units.items():
            if known.is_busy or known.is_loading:
                continue
            if demand := self._demand(unit, now_us):
                worked.append((demand, unit))
                continue
            (asked if known.is_asked else free).append(unit)
            free_bytes += known.size_bytes + (self._trunks[known.trunk].size_bytes if known.trunk else 0)
        return _Victims(free + asked, free_bytes, sorted(worked))

    def _lacks(self, wish: _Wish) -> int:
        """Return how much room a unit lacks (bytes)."""
        brings_bytes = 0 if wish.trunk in self._trunks else wish.trunk_bytes
        return wish.size_bytes + brings_bytes + self.used_bytes - self.budget_bytes

    def _chosen(self, wish: _Wish, demand: int, victims: _Victims) -> list[str] | None:
        """Return which units make room for another one; None = too many are busy, or worth more."""
        room, chosen = _Room(self._trunks, wish.trunk, self._lacks(wish)), list[str]()
        if room.is_enough():
            return chosen
        for unit in victims.free:
            chosen.append(unit)
            room.take(self._units[unit])
            if room.is_enough():
                return chosen
        for its, unit in victims.worked:
            if its >= demand:
                return None
            chosen.append(unit)
            room.take(self._units[unit])
            if room.is_enough():
                return chosen
        return None


def _wish(size_bytes: int, trunk: str, trunk_bytes: int) -> _Wish:
    shared = min(trunk_bytes, size_bytes) if trunk else 0
    return _Wish((size_bytes or UNKNOWN_BYTES) - shared, trunk, shared)


class _Room:
    """The room for a unit, as others would make it: a trunk goes with the last that has it, unless the unit has it."""

    def __init__(self, trunks: Mapping[str, _ResidentTrunk], stays: str, lacks_bytes: int) -> None:
        self._trunks, self._stays, self._gone = trunks, stays, Counter[str]()
        self._lacks_bytes = lacks_bytes

    def is_enough(self) -> bool:
        """Tell whether the unit fits."""
        return self._lacks_bytes <= 0

    def take(self, unit: _Unit) -> None:
        """Take the room of another one."""
        self._lacks_bytes -= unit.size_bytes
        if unit.trunk and unit.trunk != self._stays:
            self._gone[unit.trunk] += 1
            if self._gone[unit.trunk] == self._trunks[unit.trunk].users:
                self._lacks_bytes -= self._trunks[unit.trunk].size_bytes
