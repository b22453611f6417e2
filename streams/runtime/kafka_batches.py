"""From what a broker sent for a partition to records."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, SupportsIndex

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

from streams.operators.contract import Record

try:
    from streams.runtime import kafka_unpacking
except ImportError:  # no compiler when Skysail was installed
    kafka_unpacking = None  # type: ignore[assignment] # the module is there for the checker

_LENGTH: Final = slice(8, 12)  # where the number of bytes that follow stands in a batch
# Makes a named tuple in half the time of its constructor (0.19 against 0.39 us), at 20,000 a second and more.
_new = tuple.__new__


class _ChecksumError(Exception):
    """What came is not what was written."""


def unpack(data: bytes, topic: str, partition: int, start: int) -> tuple[list[Record], int]:
    """Return the records from an offset on, and the offset behind the last batch.

    Args:
        data: record batches; a last one that was cut off is left for the next fetch.
        topic: as the records shall name it.
        partition: its number.
        start: the wanted offset; a batch is sent whole.

    Raises:
        CorruptRecordException: a checksum is wrong, or a batch cannot be read.
    """
    found: list[Record] = []
    end = start
    at = 0
    while len(data) - at > _LENGTH.stop:
        behind = at + _LENGTH.stop + int.from_bytes(data[at + _LENGTH.start : at + _LENGTH.stop], "big")
        if behind > len(data):
            break
        try:
            records, end = _records(data[at:behind], topic, partition, start)
        except _ChecksumError:
            message = f"{topic}-{partition} has a batch with a wrong checksum behind offset {end}"
            raise CorruptRecordException(message) from None
        found += records
        at = behind
    return found, end


def _records(batch: bytes, topic: str, partition: int, start: int) -> tuple[list[Record], int]:
    """Return the records of one batch and the offset behind it: of a compacted batch the last ones may be gone."""
    if kafka_unpacking is not None:
        with suppress(ValueError):
            return kafka_unpacking.records(batch, calc_crc32c, topic, partition, start, Record)
    read = MemoryRecords(batch).next_batch()
    if not read.validate_crc():
        raise _ChecksumError
    if read.is_control_batch:  # the marks of transactions
        return [], read.next_offset
    try:
        return _taken(read, topic, partition, start), read.next_offset
    except (UnicodeDecodeError, CorruptRecordException):
        return _taken(_Lenient(batch), topic, partition, start), read.next_offset


def _taken(batch: Any, topic: str, partition: int, start: int) -> list[Record]:
    return [
        _new(Record, (topic, partition, r.offset, r.timestamp * 1000, r.key, r.value, tuple(r.headers)))
        for r in batch
        if r.offset >= start
    ]


class _Lenient(_DefaultRecordBatchPy):  # type: ignore[misc]  # aiokafka has no types; final for its own checker
    """A batch whose header names may be any bytes, as librdkafka writes them; slow, and rare."""

    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Text(self._buffer)


class _Text(bytearray):
    """Bytes that decode to something readable whatever they are."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        part = super().__getitem__(at)
        return _Text(part) if isinstance(part, bytearray) else part

    def decode(self, encoding: str = "utf-8", errors: str = "") -> str:
        """Replace what is no text by its escaped form."""
        del errors
        return super().decode(encoding, "backslashreplace")
