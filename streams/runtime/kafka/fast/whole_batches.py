"""Whole record batches and what they hold, both ways: of what was read, and of what is to be produced.

Batch     ──records_of──▶ Record ──batch_of──▶ Batch
EmitBatch ──emits_of────▶ Emit ────finished──▶ EmitBatch
Emit, EmitBatch, ... ────gathered────────────▶ EmitBatch
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, cast

from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams.operators.contract import Batch, Emit, EmitBatch, Position
from streams.runtime.corrupt import CorruptBatch
from streams.runtime.kafka.fast.record_batches import leniently, unpack

try:
    from streams.columns.batches import joined as _joined
except ImportError:  # no compiler when Skysail was installed

    def _joined(parts: list[bytes]) -> bytes:
        read = [one for part in parts for one in leniently(part)]
        return _built((one.timestamp, one.key, one.value, [(n, v or b"") for n, v in one.headers]) for one in read)


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streams.operators.contract import Record, Span

_Said = tuple[int, "bytes | None", "bytes | None", "Sequence[tuple[str, bytes]]"]
_UNBOUNDED = 1 << 30
_LATEST = slice(35, 43)  # of a batch's bytes: the latest time in it


def records_of(batch: Batch) -> list[Record]:
    """Return the wanted records of a batch: one an offset.

    Whoever is given batches calls this for those that are none of its business. It lets exceptions through: then all
    that was in hand is read again, record by record, and what is wrong with the bytes is dealt with there.

    Raises:
        CorruptRecordException: they are not what was written: their checksum is wrong.
        ValueError: they are not the records that the batch's header promises.
    """
    found, _ = unpack(batch.data, batch.topic, batch.partition, batch.offset)
    wanted = [record for record in found if record.offset < batch.end]
    if CorruptBatch in map(type, found) or [one.offset for one in wanted] != [*range(batch.offset, batch.end)]:
        raise ValueError(f"{batch.topic}-{batch.partition} has no records {batch.offset} to {batch.end - 1}")
    return wanted


def sound_records_of(batch: Batch) -> list[Record]:
    """Return the same, for whoever goes on without a batch that cannot be read.

    Raises:
        ValueError: it cannot.
    """
    try:
        return records_of(batch)
    except KafkaError as fault:
        raise ValueError(str(fault)) from fault


def emits_of(batch: EmitBatch) -> list[Emit]:
    """Return the same as records to be produced: the last of them completes what the batch completes.

    Raises:
        ValueError: it is not what a record batch is.
    """
    topic, partition, data, _, spans = batch
    completes = tuple(Position(span.topic, span.partition, offset) for span in spans for offset in range(*span[2:]))
    read = [*leniently(data)]
    last = len(read) - 1
    return [
        Emit(
            topic,
            partition,
            one.key,
            one.value or b"",
            completes if at == last else (),
            tuple(one.headers),  # type: ignore[arg-type]  # null, which clients may write, stays null
            is_part=bool(completes) and at < last,
        )
        for at, one in enumerate(read)
    ]


def batch_of(records: Sequence[Record]) -> Batch:
    """Return records of one partition as a batch, as a broker would send it; times are of whole milliseconds.

    Raises:
        ValueError: their offsets do not follow each other.
    """
    topic, partition, first = records[0][:3]
    if [record.offset for record in records] != [*range(first, first + len(records))]:
        raise ValueError(f"{topic}-{partition}: offsets with gaps are no plain batch")
    data = _built((one.timestamp_us // 1000, one.key, one.value, one.headers) for one in records)
    return Batch(topic, partition, first, first + len(records), first.to_bytes(8, "big") + data[8:])


def finished(emits: Sequence[Emit], time_ms: int, completes: tuple[Span, ...] = ()) -> EmitBatch:
    """Return records for one partition as a batch that is to be produced; what each of them completes is not asked."""
    topic, partition = emits[0][:2]
    data = _built((time_ms, one.key, one.value, one.headers) for one in emits)
    return EmitBatch(topic, partition, data, len(emits), completes)


def gathered(said: Sequence[Emit | EmitBatch]) -> EmitBatch:
    """Return records and batches for one partition as one batch, in order; records get the time of a batch beside them.

    Args:
        said: at least one batch is among them.

    Raises:
        ValueError: one of them is not what a record batch is.
    """
    topic, partition = said[0][:2]
    time_ms = next(int.from_bytes(one.data[_LATEST], "big") for one in said if isinstance(one, EmitBatch))
    parts: list[bytes] = []
    for is_batch, run in groupby(said, lambda one: isinstance(one, EmitBatch)):
        if is_batch:
            parts += [one.data for one in cast("Iterable[EmitBatch]", run)]
        else:
            parts.append(_built((time_ms, one.key, one.value, one.headers) for one in cast("Iterable[Emit]", run)))
    return EmitBatch(topic, partition, _joined(parts), sum(map(_count, said)))


def _count(said: Emit | EmitBatch) -> int:
    return said.count if isinstance(said, EmitBatch) else 1


def _built(records: Iterable[_Said]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, _UNBOUNDED)
    for number, (time_ms, key, value, headers) in enumerate(records):
        builder.append(number, time_ms, key, value, [*headers])
    return bytes(builder.build())
