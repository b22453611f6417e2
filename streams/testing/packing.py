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

_WHOLE = 0.7  # of the runs, unless another share is asked for
_SLICED = 0.3  # of the batches
_CHECKED = 17  # bytes from which on a flip is seen: the checksum, and what it is of


@dataclass(frozen=True, slots=True)
class Packing:
    """Cuts what was read into runs and packs most of them.

    Attributes:
        topics: whose records are packed.
        random: draws where runs end, which are packed, and which batches are cut into slices.
        flipped: the share of batches of which a bit is turned that their checksum covers.
        whole: the share of runs that are packed.
    """

    topics: frozenset[str]
    random: Random
    flipped: float = 0.0
    whole: float = _WHOLE

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
        if not is_dense or self.random.random() > self.whole:
            return run
        whole = batch_of(run)
        if self.flipped and self.random.random() < self.flipped:
            whole = whole._replace(data=self._turned(whole.data))
        if self.random.random() > _SLICED:
            return [whole]
        cut = self.random.randint(whole.offset, whole.end)
        slices = (whole._replace(end=cut), whole._replace(offset=cut))
        return [one for one in slices if one.offset < one.end]

    def _turned(self, data: bytes) -> bytes:
        """Return bytes of which one has another bit: behind the checksum, or in it."""
        place = self.random.randrange(_CHECKED, len(data))
        return data[:place] + bytes([data[place] ^ 1 << self.random.randrange(8)]) + data[place + 1 :]
