"""Appends records of one partition to one file."""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from fastavro.write import Writer

from streams.trace import plain
from streams.trace.layout import schema_of
from streams.trace.manifest import Part
from streams.trace.reader import chunks, verify

if TYPE_CHECKING:
    from pathlib import Path

    from streams.operators.contract import Record

BLOCK_BYTES: Final = 128 * 1024  # before compression: what a reader holds of each partition
LEVEL: Final = 1  # of deflate, 1 to 9: higher ones cost several times the CPU time for a tenth of the bytes


class _Block(NamedTuple):
    """What fastavro's writer takes for a block."""

    num_records: int
    bytes_: io.BytesIO


@dataclass(slots=True)
class _WaitingRecords:
    """Packed records that are not in the file yet."""

    packed: list[bytes] = field(default_factory=list)
    size: int = 0
    first: int | None = None
    next: int = 0
    from_us: int = 0
    until_us: int = 0

    def add(self, record: Record, packed: bytes) -> None:
        if self.first is None:
            self.first, self.from_us, self.until_us = record.offset, record.timestamp_us, record.timestamp_us
        self.packed.append(packed)
        self.size += len(packed)
        self.next = record.offset + 1
        self.from_us = min(self.from_us, record.timestamp_us)
        self.until_us = max(self.until_us, record.timestamp_us)

    def blocks(self) -> list[_Block]:
        found: list[_Block] = []
        block, count = io.BytesIO(), 0
        for packed in self.packed:
            block.write(packed)
            count += 1
            if block.tell() >= BLOCK_BYTES:
                found.append(_Block(count, block))
                block, count = io.BytesIO(), 0
        return [*found, _Block(count, block)] if count else found


class GrowingPart:
    """A part that is not complete.

    Args:
        path: of its file.
        partition: whose records these are.
        record: class of their values, as far as known.
        part: what is in the file already; what lies behind it is cut off.

    Raises:
        TraceError: the file is damaged.
    """

    def __init__(self, path: Path, partition: int, record: type | None, part: Part | None = None) -> None:
        self._path = path
        self._partition = partition
        self._schema = schema_of(record)
        self._part = part
        self._waiting = _WaitingRecords()
        self._digest = hashlib.sha256()
        if part is not None:
            verify(path.parent, part)
            with plain.opened_to_write(path) as file:
                file.truncate(part.bytes)
                file.seek(0)
                for chunk in chunks(file, part.bytes):
                    self._digest.update(chunk)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are not in the file yet."""
        return self._waiting.size

    def add(self, record: Record, packed: bytes) -> None:
        """Take a record."""
        self._waiting.add(record, packed)

    def write(self) -> Part:
        """Write what waits; return the part as it is on disk now.

        Raises:
            OSError: the disk takes no more. The file can be used again, as what was written is cut off.
        """
        begin = self._part.bytes if self._part else 0
        with plain.opened_to_write(self._path) as file:
            file.truncate(begin)
            file.seek(0, os.SEEK_END)
            writer = Writer(file, self._schema, codec="deflate", compression_level=LEVEL)
            for block in self._waiting.blocks():
                writer.write_block(block)
            writer.flush()
            os.fsync(file.fileno())
            file.seek(begin)
            self._digest.update(file.read())
            size = file.tell()
        self._part = self._grown(size)
        self._waiting = _WaitingRecords()
        return self._part

    def _grown(self, size: int) -> Part:
        old, new = self._part, self._waiting
        assert new.first is not None, "something waits"
        return Part(
            file=self._path.name,
            partition=self._partition,
            first=old.first if old else new.first,
            next=new.next,
            count=(old.count if old else 0) + len(new.packed),
            from_us=min(old.from_us, new.from_us) if old else new.from_us,
            until_us=max(old.until_us, new.until_us) if old else new.until_us,
            bytes=size,
            sha256=self._digest.hexdigest(),
            is_complete=False,
        )
