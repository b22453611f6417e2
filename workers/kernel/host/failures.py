"""What a host does when a copy is loaded, fails to load or is lost: whom it tells, what it tries again or takes out.

loaded ─▶ its worker hears of it once; it does not notice when the copy leaves memory and comes back
fault  ─▶ its worker is refused the copy ─▶ it tries again, or the version is taken out for a while
lost   ─▶ through another model: wanted again ─ to blame: taken out, which is longer each time
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.contract import Loaded, LogMessage, Unload

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.operators.contract import Effects
    from workers.kernel.host.memory import Memory
    from workers.kernel.host.models import Copy, Hosted


class Outcomes:
    """What becomes of the copies of one host."""

    def __init__(
        self,
        memory: Memory,
        measured: Callable[[str, Hosted, int], None],
        perform: Callable[[Hosted, Effects, int], Effects],
    ) -> None:
        """Know of nothing.

        Args:
            memory: of the host.
            measured: hears that a unit was loaded.
            perform: sees to the effects of a model's worker, and returns those that are left.
        """
        self._memory = memory
        self._measured = measured
        self._perform = perform

    def on_loaded(self, hosted: Hosted, copy: Copy, loaded: Loaded, now_us: int) -> Effects:
        """Take that a copy was loaded, or could not be."""
        if loaded.fault is None:
            return self._loaded(hosted, copy, loaded.took_us, loaded.size_bytes, now_us)
        self._memory.drop(copy.unit)
        if copy.is_told:  # it was in memory before; its worker does not try again by itself
            return self._taken_out(hosted, copy, loaded.fault, now_us)
        return self.refused(hosted, copy.load.copy, loaded.fault, now_us)

    def on_lost(self, hosted: Hosted, copy: Copy, fault: str | None, now_us: int) -> Effects:
        """Take that a copy was lost while it was loaded; without a fault, through another model."""
        self._memory.drop(copy.unit)
        if fault is None:
            self._memory.want(copy.unit, now_us)
            return []
        return self.lost_over(hosted, copy.load.copy, fault, now_us)

    def give_up_too_large(self, now_us: int) -> Effects:
        """Refuse the copies that are larger than all memory, each once."""
        effects: Effects = []
        for unit in self._memory.residency.too_large():
            hosted, copy = self._memory.units[unit]
            fault = self._too_large(hosted.size_of(copy.load.model))
            effects += self.refused(hosted, copy.load.copy, fault, now_us, is_hopeless=True)
        return effects

    def reconsider(self, hosted: Hosted, now_us: int) -> Effects:
        """Let a worker wait no longer for versions that are taken out: it may want another one by now."""
        effects: Effects = []
        for number, copy in [*hosted.copies.items()]:
            if not copy.is_told and hosted.out_until(copy.load.model) > now_us:
                effects += self.refused(hosted, number, hosted.why_out(copy.load.model), now_us)
        return effects

    def lost_over(self, hosted: Hosted, number: int, fault: str | None, now_us: int) -> Effects:
        """See to a copy that was lost over a batch or over loading it; with a fault it is to blame, and taken out."""
        copy = hosted.copies.get(number)
        if copy is None:
            return []
        is_loading = self._memory.is_loading(copy)
        if fault is None and is_loading:
            return []  # it is on its way already
        self._memory.drop(copy.unit)
        if fault is None:
            copy.is_told &= hosted.offer_of(copy) is not None  # a plan that tries it waits for it
            self._memory.want(copy.unit, now_us)
            return []
        effects: Effects = []
        if is_loading:
            self._memory.ended(hosted.model.name, number)
            effects.append(Unload(hosted.model.name, copy.load.model.version, number))
        return effects + self._taken_out(hosted, copy, fault, now_us)

    def refused(self, hosted: Hosted, number: int, fault: str, now_us: int, *, is_hopeless: bool = False) -> Effects:
        """Tell a worker that it cannot have a copy; one that serves is wanted all the same."""
        worker, copy = hosted.worker, hosted.copies[number]
        assert worker is not None, "it has asked for the copy"
        if copy.is_told and hosted.serves(copy):
            self._memory.want(copy.unit, now_us)
        elif not copy.is_told or hosted.offer_of(copy) is None:
            hosted.copies.pop(number)
            self._memory.retire(copy.unit)
        loaded = Loaded.of(copy.load, fault)._replace(is_hopeless=is_hopeless)
        told = worker.on_loaded(loaded, now_us)
        return self._perform(hosted, told, now_us)

    def _loaded(self, hosted: Hosted, copy: Copy, took_us: int, size_bytes: int, now_us: int) -> Effects:
        """Note that a copy is in memory; its worker hears of it for the first time, or if it has lost it."""
        worker, model = hosted.worker, copy.load.model
        size_bytes = min(size_bytes, hosted.sizes.get(model.version, size_bytes))
        if size_bytes > self._memory.residency.budget_bytes:
            unload = Unload(model.name, model.version, copy.load.copy)
            self._memory.drop(copy.unit)
            return [unload, *self._taken_out(hosted, copy, self._too_large(size_bytes), now_us)]
        size_bytes = hosted.measured(model, size_bytes)
        self._memory.loaded(copy, took_us, size_bytes, now_us)
        self._measured(copy.unit, hosted, now_us)
        offer = hosted.offer_of(copy)
        assert worker is not None, "it has asked for the copy"
        if copy.is_told and (offer is None or (offer.is_ready and offer.fault is None)):
            return []
        copy.is_told = True
        told = worker.on_loaded(Loaded.of(copy.load, took_us=took_us), now_us)
        return self._perform(hosted, told, now_us)

    def _taken_out(self, hosted: Hosted, copy: Copy, fault: str, now_us: int) -> Effects:
        """Take a version out for a while, which is longer each time."""
        model = copy.load.model
        wait_s = (hosted.take_out(model, fault, now_us) - now_us) / 1e6
        message = f"{model.name} {model.version} is taken out for {wait_s:g} s, the other models go on: {fault}"
        told = self.refused(hosted, copy.load.copy, hosted.why_out(model), now_us)
        return [LogMessage(message, is_fault=True), *told]

    def _too_large(self, size_bytes: int) -> str:
        needed, there = size_bytes / (1 << 20), self._memory.residency.budget_bytes / (1 << 20)
        return f"it takes {needed:,.1f} MiB, and its host has {there:,.0f} for all models (hosts.<pool>.memory_mib)"
