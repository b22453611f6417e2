"""Which predictions are sampled: those whose caller has said so, and a share of those about which nobody has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas.errors import DecodeError
from schemas.records import Prediction
from streams.operators.contract import Batch
from streams.telemetry.context import HEADER, leg_id, own, told
from streams.telemetry.values import LegContext, SampledQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Record

# Multiples of the golden ratio lie evenly in [0, 1): also of every hundredth offset, as a client's batches may be.
_GOLDEN: Final = 0x9E3779B97F4A7C15
_ALL: Final = 1 << 64
_NEEDLE: Final = HEADER.encode()


class Sampling:
    """Samples predictions as they are fetched. A batch without any costs one look through it.

    Args:
        codec: of predictions.
        unpack: returns the records of a batch; raises `ValueError` where it is none.
        rate: share of the predictions without a header that are sampled, in [0, 1].
    """

    def __init__(self, codec: Codec, unpack: Callable[[Batch], Sequence[Record]], rate: float) -> None:
        self._codec = codec
        self._unpack = unpack
        self._below = int(rate * _ALL)

    def of(self, fetched: Record | Batch) -> Iterator[SampledQuery]:
        """Yield the sampled ones of a batch, or the one record if it is."""
        if not isinstance(fetched, Batch):
            records: Sequence[Record] = (fetched,)
        else:
            records = self._unpack(fetched) if self._may_hold(fetched) else ()
        for record in records:
            if record.headers or self._is_drawn(record.partition, record.offset):
                yield from self._sampled(record)

    def _may_hold(self, batch: Batch) -> bool:
        return _NEEDLE in batch.data or any(
            self._is_drawn(batch.partition, offset)
            for offset in (range(batch.offset, batch.end) if self._below else ())
        )

    def _is_drawn(self, partition: int, offset: int) -> bool:
        return (offset + 1 + (partition << 32)) * _GOLDEN % _ALL < self._below

    def _sampled(self, record: Record) -> Iterator[SampledQuery]:
        context, is_sampled = told(record.headers)
        if context is None:
            is_sampled = self._is_drawn(record.partition, record.offset)
            context = own(record.position)
        if is_sampled:
            at = LegContext(context.trace_id, leg_id(context.trace_id, *record.position))
            try:
                said = self._codec.decode(Prediction, record.value or b"")
            except DecodeError:
                return  # no prediction: whoever joins it says so
            yield SampledQuery(context, at, record.position, record.timestamp_us, said)
