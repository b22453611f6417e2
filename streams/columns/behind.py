"""An operator that leaves all to another one, which stands behind it: what takes record batches is built on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.operators.contract import NONE_UNREAD, Batch, Loaded, Operator, Phase, Ran

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from schemas.records import PolicyState
    from streams.operators.contract import Effects, Needs, Record, StateKey, Unread

    Unpack = Callable[[Batch], list[Record]]  # the wanted records of a batch


class Behind(Operator):
    """Passes every call on.

    Args:
        kernel: the operator behind it.
    """

    def __init__(self, kernel: Operator) -> None:
        self._kernel = kernel

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Pass them on."""
        return self._kernel.on_records(records, now_us)

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Pass it on."""
        return self._kernel.on_timer(now_us, unread)

    def on_phase(self, phase: Phase, now_us: int) -> Effects:
        """Pass it on."""
        return self._kernel.on_phase(phase, now_us)

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Pass them on."""
        return self._kernel.on_states(states, now_us)

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Pass it on."""
        return self._kernel.on_predicted(batch_id, ran, now_us)

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Pass it on."""
        return self._kernel.on_loaded(loaded, now_us)

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Pass them on."""
        self._kernel.on_partitions(starts)

    def needs(self) -> Needs:
        """Return its needs."""
        return self._kernel.needs()

    def statistics(self) -> Mapping[str, float]:
        """Return its figures."""
        return self._kernel.statistics()


def unpacked(run: Iterable[Record | Batch], unpack: Unpack) -> list[Record]:
    """Return records, and those of batches, in order."""
    return [record for item in run for record in (unpack(item) if isinstance(item, Batch) else [item])]
