"""Hands records out as whole batches now and then, as a broker's consumer does: for runs that draw both ways."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from streams.runtime.kafka.fast.whole_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from streams.operators.contract import Batch, Record

_WHOLE = 0.7  # of the runs
_SLICED = 0.3  # of the batches


@dataclass(frozen=True, slots=True)
class Packing:
    """Cuts what was read into runs and packs most of them.

    Attributes:
        topics: whose records are packed.
        random: draws where runs end, which are packed, and which batches are cut into slices.
    """

    topics: frozenset[str]
    random: Random

    def __call__(self, records: Iterable[Record]) -> list[Record | Batch]:
        """Return the same records, in order; those in batches have times of whole milliseconds, as Kafka has."""
        found: list[Record | Batch] = []
        for (topic, _), run in groupby(records, itemgetter(0, 1)):
            left = [*run]
            while left and topic in self.topics:
                count = self.random.randint(1, len(left))
                found += self._packed(left[:count])
                del left[:count]
            found += left
        return found

    def _packed(self, run: list[Record]) -> Sequence[Record | Batch]:
        is_dense = run[-1].offset - run[0].offset == len(run) - 1
        if not is_dense or self.random.random() > _WHOLE:
            return run
        whole = batch_of(run)
        if self.random.random() > _SLICED:
            return [whole]
        cut = self.random.randint(whole.offset, whole.end)
        slices = (whole._replace(end=cut), whole._replace(offset=cut))
        return [one for one in slices if one.offset < one.end]
