"""Today's kernels as ones that take whole batches and write whole batches: what they decide is the same."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from streams.operators.contract import Batch, Emit, Span
from streams.runtime.kafka.fast.whole_batches import finished, records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Effect, Effects, EmitBatch, Operator, Position, Record


class WholeKernel:
    """Unpacks what another kernel is given, and packs what it emits.

    Attributes:
        kernel: the other one.
        batches: how many it was given.
        finished: how many it has made.
    """

    def __init__(self, kernel: Operator) -> None:
        self.kernel = kernel
        self.batches = 0
        self.finished = 0

    def on_records(self, records: Sequence[Record | Batch], now_us: int) -> Effects:
        """Let the other one decide about records."""
        self.batches += sum(isinstance(one, Batch) for one in records)
        given = [record for one in records for record in (records_of(one) if isinstance(one, Batch) else [one])]
        return self._packed(self.kernel.on_records(given, now_us), now_us)

    def on_timer(self, now_us: int, *args: Any) -> Effects:
        """Let the other one decide."""
        return self._packed(self.kernel.on_timer(now_us, *args), now_us)

    def __getattr__(self, name: str) -> Any:
        """Be the other one in all else."""
        return getattr(self.kernel, name)

    def _packed(self, effects: Effects, now_us: int) -> Effects:
        found: Effects = []
        for place, run in groupby(effects, _place):
            emits = [*run]
            if place is None or any(effect.is_part for effect in emits if isinstance(effect, Emit)):
                found += emits
            else:
                found.append(self._finished([emit for emit in emits if isinstance(emit, Emit)], now_us))
        return found

    def _finished(self, emits: list[Emit], now_us: int) -> EmitBatch:
        self.finished += 1
        completes = tuple(span for emit in emits for span in map(_span, emit.completes))
        return finished(emits, now_us // 1000, completes)


def _span(position: Position) -> Span:
    return Span(position.topic, position.partition, position.offset, position.offset + 1)


def _place(effect: Effect) -> tuple[str, int] | None:
    place: tuple[str, int] | None = itemgetter(0, 1)(effect) if isinstance(effect, Emit) else None
    return place
