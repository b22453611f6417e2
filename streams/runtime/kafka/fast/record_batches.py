"""From what a broker sent for a partition to records.

    batches ─┬─▶ inflated, within bounds ──▶ records
             ├─ whatever is wrong with one ▶ a `CorruptBatch`, and on behind it
             └─ plain, and wanted whole ───▶ a `Batch`, its checksum not looked at

Layout: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

from streams.operators.contract import Batch, Record
from streams.runtime.corrupt import CorruptBatch, corrupt
from streams.runtime.kafka.fast.inflation import MOST_BYTES, inflate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

try:
    from streams.columns import batches as compiled
except ImportError:  # no compiler when Skysail was installed
    compiled = None  # type: ignore[assignment] # the module is there for the checker

_LENGTH: Final = slice(8, 12)  # where the number of bytes that follow stands in a batch
# Format 2: epoch, magic, checksum of what follows it, attributes; the low byte of these says how it is compressed.
_MAGIC, _CHECKED, _COMPRESSION, _CODEC = 16, 21, 22, 0x07
_CHECKSUM: Final = slice(17, 21)
_HEADER: Final = Struct(">qiibIhiqqqhii")
_BY_BROKER: Final = 0x08  # attributes: the time is the broker's, one for all
_UNUSUAL: Final = 0x37  # attributes: compressed, part of a transaction, or the mark of one
_LEAST_BYTES: Final = 7  # of a record: seven numbers of one byte
_MOST_OFFSET: Final = 1 << 62
_LONGEST: Final = 10  # bytes of a number
# Records take ten times the bytes of the smallest ones.
_MOST_RECORDS: Final = 500_000
_LAST_MS: Final = 9_223_372_036_854_775  # as microseconds still 64 bits


class _ChecksumError(Exception):
    """The bytes that came are not those that were written."""


def unpack(data: bytes, topic: str, partition: int, start: int) -> tuple[list[Record], int]:
    """Return the records from an offset on, and the offset behind the last batch.

    Args:
        data: record batches; a last one that was cut off is left for the next fetch, and so is what would inflate to
            more than one batch may.
        topic: as the records shall name it.
        partition: its number.
        start: the wanted offset; a batch is sent whole.

    Raises:
        CorruptRecordException: the first batch is not what was written: its checksum is wrong.
    """
    found, end = split(data, topic, partition, start, None)
    return cast("list[Record]", found), end  # none was to stay whole


def split(
    data: bytes, topic: str, partition: int, start: int, whole_from: int | None
) -> tuple[list[Record | Batch], int]:
    """Return the same as `unpack`, but plain batches whole that begin at offset `whole_from` or behind it.

    One that is compressed is plain once it is inflated.

    Raises:
        CorruptRecordException: as `unpack`, if the first batch had to be unpacked.
    """
    found: list[Record | Batch] = []
    end, at, room = start, 0, MOST_BYTES
    while len(data) - at > _LENGTH.stop and room > 0:
        behind = at + _LENGTH.stop + int.from_bytes(data[at + _LENGTH.start : at + _LENGTH.stop], "big")
        if behind > len(data):
            break
        batch = data[at:behind]
        at, began = behind, at
        try:
            if batch[_COMPRESSION] & _CODEC:
                batch = _inflated(batch)
                room -= len(batch)
            whole = None if whole_from is None else _whole(batch, topic, partition, start, whole_from)
            if whole is not None:
                found += [whole] if whole.offset < whole.end else []
                end = whole.end
                continue
            records, end = _records(batch, topic, partition, start)
        except _ChecksumError:
            if began:
                break  # the next fetch begins with it
            message = f"{topic}-{partition} has a batch with a wrong checksum behind offset {end}"
            raise CorruptRecordException(message) from None
        except Exception as fault:  # noqa: BLE001  # whatever the libraries make of foreign bytes
            records = [lost := _lost(data[began:behind], topic, partition, start, fault)]
            end = lost.offset + 1
        found += records
    return found, end


def _whole(batch: bytes, topic: str, partition: int, start: int, whole_from: int) -> Batch | None:
    """Return a batch whole if its header says that it is plain, and could be true of so many bytes."""
    if len(batch) < _HEADER.size or batch[_MAGIC] != 2:
        return None
    base, _, _, _, _, attributes, behind, _, _, _, _, _, count = _HEADER.unpack_from(batch)
    is_plain = not attributes & _UNUSUAL and count == behind + 1 and whole_from <= base < _MOST_OFFSET
    if not is_plain or not 0 < count <= (len(batch) - _HEADER.size) // _LEAST_BYTES:
        return None
    return Batch(topic, partition, max(base, start), base + count, batch)


def _records(batch: bytes, topic: str, partition: int, start: int) -> tuple[list[Record], int]:
    """Return the records of one batch and the offset behind it: of a compacted batch the last ones may be gone."""
    if compiled is not None:
        with suppress(ValueError):
            return _usual(batch, topic, partition, start)
    return by_aiokafka(batch, topic, partition, start)


def _usual(batch: bytes, topic: str, partition: int, start: int) -> tuple[list[Record], int]:
    """Return the same in half of the time.

    Raises:
        ValueError: it is not a plain batch, it has gaps or no records, or these have headers.
    """
    read = compiled.records(batch)
    if not read or any(headers for *_, headers in read):
        raise ValueError("records with headers, or none")
    records = [Record(topic, partition, at, time_us, key, value) for at, time_us, key, value, _ in read if at >= start]
    return records, read[-1][0] + 1


def by_aiokafka(batch: bytes, topic: str, partition: int, start: int) -> tuple[list[Record], int]:
    """Return the records of one batch that is not compressed, whatever they have, and the offset behind it."""
    _check_format(batch)
    read = MemoryRecords(batch).next_batch()
    if not read.validate_crc():
        raise _ChecksumError
    if read.is_control_batch:  # the marks of transactions
        return [], read.next_offset
    try:
        return _taken(read, topic, partition, start), read.next_offset
    except UnicodeDecodeError:
        return _taken(leniently(batch), topic, partition, start), read.next_offset


def _taken(batch: Iterable[_ReadRecord], topic: str, partition: int, start: int) -> list[Record]:
    return [
        Record(topic, partition, r.offset, r.timestamp * 1000, r.key, r.value, tuple(r.headers))  # type: ignore[arg-type] # one may have no content
        for r in batch
        if r.offset >= start
    ]


def _inflated(batch: bytes) -> bytes:
    """Return the same batch, not compressed."""
    _check_format(batch)
    if calc_crc32c(batch[_CHECKED:]) != int.from_bytes(batch[_CHECKSUM], "big"):
        raise _ChecksumError
    base, _, epoch, magic, _, attributes, *rest, count = _HEADER.unpack_from(batch)
    if count > _MOST_RECORDS:
        raise ValueError(f"{count} records in one batch, more than {_MOST_RECORDS}")
    records = inflate(attributes & _CODEC, batch[_HEADER.size :])
    length = _HEADER.size - _LENGTH.stop + len(records)
    plain: bytes = _HEADER.pack(base, length, epoch, magic, 0, attributes & ~_CODEC, *rest, count) + records
    checksum: int = calc_crc32c(plain[_CHECKED:])
    return plain[: _CHECKSUM.start] + checksum.to_bytes(4, "big") + plain[_CHECKED:]


def _check_format(batch: bytes) -> None:
    if batch[_MAGIC] != 2:
        raise ValueError(f"message format {batch[_MAGIC]}; brokers since Kafka 0.11 write format 2")


def _lost(batch: bytes, topic: str, partition: int, start: int, fault: Exception) -> CorruptBatch:
    """Return what stands for a batch that cannot be unpacked; its header says where the next one begins."""
    first, last, newest_ms = start, start, 0
    with suppress(Exception):  # cut off in its header
        _check_format(batch)
        first, _, _, _, _, _, behind, _, newest_ms, *_ = _HEADER.unpack_from(batch)
        last = max(first + behind, start)
    time_ms = newest_ms if 0 <= newest_ms <= _LAST_MS else 0
    return corrupt((topic, partition), (first, last), time_ms, batch, f"{type(fault).__name__}: {fault}")


class _ReadRecord(NamedTuple):
    """A record, in aiokafka's words."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def leniently(batch: bytes) -> Iterator[_ReadRecord]:
    """Yield the records of a batch of format 2 that is not compressed, whatever bytes its headers' names are.

    aiokafka insists on UTF-8, librdkafka writes what it is given. This is slow, and rare.

    Raises:
        ValueError: it is cut off, or its numbers contradict each other.
    """
    base, _, _, _, _, attributes, _, first_ms, latest_ms, _, _, _, count = _HEADER.unpack_from(batch)
    cursor = _Cursor(batch, _HEADER.size)
    for _ in range(count):
        size = cursor.size()
        end = cursor.at + size
        cursor.at += 1  # attributes of the record: there are none
        time_ms = first_ms + cursor.number()
        offset = base + cursor.number()
        key, value = cursor.text(), cursor.text()
        headers = [(cursor.name(), cursor.text()) for _ in range(cursor.size())]
        if cursor.at != end:
            raise ValueError(f"a record of {size} bytes ends after {cursor.at - end + size}")
        yield _ReadRecord(offset, latest_ms if attributes & _BY_BROKER else time_ms, key, value, headers)
    if cursor.at != len(batch):
        raise ValueError(f"{len(batch) - cursor.at} bytes behind the last record")


class _Cursor:
    """Where the next number or text begins."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def number(self) -> int:
        """Read a zigzag varint."""
        found = 0
        for index, byte in enumerate(self._data[self.at : self.at + _LONGEST]):
            found |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                self.at += index + 1
                return (found >> 1) ^ -(found & 1)
        raise ValueError("a number is cut off")

    def size(self) -> int:
        """Read how many there are."""
        size = self.number()
        if size < 0:
            raise ValueError(f"{size} of something")
        return size

    def text(self) -> bytes | None:
        """Read bytes, or nothing."""
        size = self.number()
        if size < 0:
            return None
        begin, self.at = self.at, self.at + size
        if self.at > len(self._data):
            raise ValueError(f"{size} bytes are cut off")
        return self._data[begin : self.at]

    def name(self) -> str:
        """Read a header's name; what is no UTF-8 is escaped."""
        text = self.text()
        if text is None:
            raise ValueError("a header has no name")
        return text.decode(errors="backslashreplace")
