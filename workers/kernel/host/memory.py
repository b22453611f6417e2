"""The copies that a host's workers want: which are in memory, are being loaded, or are taken out for a while.

    wanted ─▶ taken out? ─▶ residency ─▶ Load ─▶ being loaded ─▶ in memory ─▶ Unload
                                                     └─ slow ─▶ others are loaded beside it

Each copy is a *unit*: the version that serves has the name of its model, another one `model@version`. Schedule,
residency and profiles know it by that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streams.operators.contract import Unload
from workers.kernel.alarms import Alarms
from workers.kernel.host.models import Copy

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator

    from schemas.records import Model
    from streams.operators.contract import Effects, Load
    from workers.kernel.host.models import Hosted
    from workers.kernel.schedule.profiles import Profiles
    from workers.kernel.schedule.residency import Eviction, Residency

# Loading a model keeps others from being loaded for ten times as long as it usually takes, and at least so long (us):
# then they are loaded beside it. A library that is imported takes some seconds.
SLOW_US: Final = 5_000_000
SLOWER: Final = 10
# While nobody waits, it is left alone for so long (us), as what it takes is measured best so; looked at as often.
ALONE_US: Final = 20_000_000
ALONE_LOOK_US: Final = 100_000


class Memory:
    """The copies of one host.

    Attributes:
        units: all that are wanted, by name.
        changed: those that the schedule must hear of.
        emptied: names under which nothing waits any more.
        epoch: the number of the models' process.
        last_eviction: what was unloaded last to make room.
    """

    def __init__(self, residency: Residency, profiles: Profiles, counters: Counter[str]) -> None:
        """Hold nothing.

        Args:
            residency: chooses which units are in memory.
            profiles: say how long loading takes.
            counters: of the host.
        """
        self.residency = residency
        self._profiles = profiles
        self._counters = counters
        self.units: dict[str, tuple[Hosted, Copy]] = {}
        self.changed: dict[str, None] = {}
        self.emptied: list[str] = []
        self.epoch = 0
        self.last_eviction: Eviction | None = None
        self._loading: dict[tuple[str, int], int] = {}  # the epoch of each copy that is being loaded
        self._later = Alarms()  # units that were taken out
        self._slow = Alarms()  # units whose loading has taken too long for others to wait for it

    def __contains__(self, unit: object) -> bool:
        """Tell whether a unit is in memory."""
        return unit in self.residency

    def __iter__(self) -> Iterator[str]:
        """Yield the units in memory, the least recently used first."""
        return iter(self.residency)

    @property
    def due_us(self) -> int | None:
        """When `on_timer` or `moves` has something to do; None = never."""
        dues = (self._later.due_us, self._slow.due_us, self.residency.due_us)
        return min((due_us for due_us in dues if due_us is not None), default=None)

    @property
    def moving(self) -> int:
        """How many units are to be loaded, or are being loaded."""
        return self.residency.wishes + self.residency.loading

    def has_room(self, hosted: Hosted, model: Model, more_bytes: int = 0) -> bool:
        """Tell whether a version fits beside all that is there.

        Args:
            hosted: its model.
            model: the version.
            more_bytes: that would be given up for it.
        """
        return self.residency.lacks(hosted.size_of(model), model.trunk, model.trunk_bytes) <= more_bytes

    def on_timer(self, now_us: int) -> None:
        """Want again what is not taken out any more, and put aside what is slow."""
        for unit in self._later.take(now_us):
            self.want(unit, now_us)
        for unit in self._slow.take(now_us):
            self._put_aside(unit, now_us)

    def add(self, hosted: Hosted, load: Load) -> Copy:
        """Take a copy that a worker wants; returns it."""
        name, version = load.model.name, load.model.version
        unit = name if not hosted.copies else f"{name}@{version}"
        if unit in self.units:
            unit = f"{name}@{version}#{load.copy}"
        copy = hosted.copies[load.copy] = Copy(load, unit)
        self.units[unit] = hosted, copy
        return copy

    def want(self, unit: str, now_us: int) -> None:
        """Have a copy loaded, once its version is not taken out any more."""
        if unit not in self.units:
            return
        hosted, copy = self.units[unit]
        model = copy.load.model
        until_us = hosted.out_until(model)
        if until_us > now_us:
            self._later.set(until_us, unit)
        elif not self.is_loading(copy):
            self.residency.want(unit, hosted.size_of(model), model.trunk, model.trunk_bytes)

    def is_loading(self, copy: Copy) -> bool:
        """Tell whether a copy is being loaded."""
        return (copy.load.model.name, copy.load.copy) in self._loading

    def left_to_load(self, copy: Copy, now_us: int) -> int:
        """Return what is left of loading a copy (us), if it starts now or has started."""
        takes_us = self._profiles.load_us(copy.unit)
        return max(0, copy.loading_us + takes_us - now_us) if self.is_loading(copy) else takes_us

    def ended(self, model: str, number: int) -> int | None:
        """Note that loading a copy is over; returns the process in which it was loaded. None = it was not awaited."""
        return self._loading.pop((model, number), None)

    def loaded(self, copy: Copy, took_us: int, size_bytes: int, now_us: int) -> None:
        """Note that a copy is in memory."""
        self.residency.loaded(copy.unit, size_bytes, now_us)
        self._profiles.switched(copy.unit, copy.load.model.version)
        self._profiles.loaded(copy.unit, took_us, size_bytes)
        self.changed[copy.unit] = None

    def drop(self, unit: str) -> None:
        """Note that a unit is not in memory any more, nor to be loaded."""
        self.residency.drop(unit)
        self.changed[unit] = None

    def retire(self, unit: str) -> None:
        """Forget a unit: nobody wants it any more."""
        self.emptied.append(unit)
        self.drop(unit)
        self.units.pop(unit, None)
        self._profiles.forget(unit)

    def rename(self, hosted: Hosted, copy: Copy, unit: str) -> None:
        """Let a copy have another name, because it serves now, or no longer; nothing waits under the old one."""
        self.emptied.append(copy.unit)
        self.units[unit] = self.units.pop(copy.unit)
        self.residency.rename(copy.unit, unit)
        self._profiles.rename(copy.unit, unit)
        copy.unit = unit
        if self.is_loading(copy):
            self._slow.set(self._slow_us(copy), unit)
        if until_us := hosted.out_until(copy.load.model):
            self._later.set(until_us, unit)

    def release(self, hosted: Hosted, number: int) -> Effects:
        """Let go of a copy that its worker does not want any more."""
        copy = hosted.copies.pop(number, None)
        if copy is None:
            return []
        model = copy.load.model
        is_there = self.ended(model.name, number) is not None or copy.unit in self
        self.retire(copy.unit)
        return [Unload(model.name, model.version, number)] if is_there else []

    def moves(self, now_us: int) -> Effects:
        """Unload and load as the residency says."""
        effects: Effects = []
        for eviction in self.residency.excess(now_us):
            effects.append(self._evict(eviction))
        for load, evictions in self.residency.changes(now_us, lambda unit: self._load_by(unit, now_us)):
            effects += [self._evict(eviction) for eviction in evictions]
            _, copy = self.units[load]
            self._loading[copy.load.model.name, copy.load.copy] = self.epoch
            copy.loading_us = now_us
            self._slow.set(self._slow_us(copy), load)
            self.changed[load] = None
            self._counters["host_loads_total"] += 1
            effects.append(copy.load._replace(is_vital=False))
        return effects

    def lose(self, busy: Collection[str], now_us: int) -> None:
        """Note that the models' process is gone; what was in memory is loaded again, what was used last first.

        Args:
            busy: units that ran: they are seen to when their batches are given up.
            now_us: the time.
        """
        self.epoch += 1
        self._counters["host_process_ends_total"] += 1
        for unit in reversed([*self.residency]):
            self.drop(unit)
            if unit not in busy:
                self.want(unit, now_us)

    def _evict(self, eviction: Eviction) -> Unload:
        self.last_eviction = eviction
        self._counters["host_evictions_total"] += 1
        self.changed[eviction.unit] = None
        load = self.units[eviction.unit][1].load
        return Unload(load.model.name, load.model.version, load.copy)

    def _load_by(self, unit: str, now_us: int) -> int:
        """Return when a unit would be in memory had it been loaded at once (us): that order starves none."""
        hosted, copy = self.units[unit]
        offer = hosted.offer_of(copy)
        since_us = offer.since_us if offer is not None and offer.dues_us else now_us
        return since_us + self._profiles.load_us(unit)

    def _slow_us(self, copy: Copy) -> int:
        """Return from when on loading a copy is slow (us): by ten times what it usually takes, and not at once."""
        return copy.loading_us + max(SLOW_US, SLOWER * self._profiles.load_us(copy.unit))

    def _put_aside(self, unit: str, now_us: int) -> None:
        """Let others be loaded beside a unit whose loading is slow; it is looked at again if too many are."""
        _, copy = self.units.get(unit, (None, None))
        if copy is None or not self.is_loading(copy):
            return
        if (slow_us := self._slow_us(copy)) > now_us:  # it is another time that it is loaded
            self._slow.set(slow_us, unit)
        elif not self.residency.wishes and now_us < copy.loading_us + ALONE_US:
            self._slow.set(now_us + ALONE_LOOK_US, unit)
        elif self.residency.put_aside(unit):
            self._counters["host_slow_loads_total"] += 1
        else:
            self._slow.set(now_us + SLOW_US, unit)
