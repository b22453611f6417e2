"""Takes a record batch apart in Python, whatever bytes its headers' names are; slow, and rare.

aiokafka insists on UTF-8, librdkafka writes what it is given. Layout: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER: Final = Struct(">qiibIhiqqqhii")
_BY_BROKER: Final = 0x08  # attributes: the time is the broker's, one for all
_LONGEST: Final = 10  # bytes of a number


class Read(NamedTuple):
    """A record, in aiokafka's words."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def records(batch: bytes) -> Iterator[Read]:
    """Yield the records of a batch of format 2 that is not compressed.

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
        yield Read(offset, latest_ms if attributes & _BY_BROKER else time_ms, key, value, headers)
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
