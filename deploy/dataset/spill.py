"""Records of a log by query: put into buckets on disk by their ids, so that a join needs the memory of one bucket.

queries, predictions, observations ─▶ bucket of the id ─▶ a dictionary of one bucket after the other
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKETS: Final = 64  # 30 million records of 1 KB: half a GB in memory at a time
_HEAD: Final = struct.Struct("<II")


class Spill:
    """Values by id, of one kind, in files.

    Args:
        folder: that they lie in; it is created.
        kind: their name.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"{kind}-{number:02d}" for number in range(BUCKETS)]
        self._files: list[BinaryIO] = [path.open("wb") for path in self._paths]
        self.count = 0

    def put(self, query_id: str, value: bytes) -> None:
        """Keep a value."""
        name = query_id.encode("utf-8", "surrogatepass")
        file = self._files[zlib.crc32(name) % BUCKETS]
        file.write(_HEAD.pack(len(name), len(value)))
        file.write(name)
        file.write(value)
        self.count += 1

    def close(self) -> None:
        """Say that there are no more."""
        for file in self._files:
            file.close()

    def bucket(self, number: int) -> dict[str, bytes]:
        """Return the values of a bucket by id; the first one of an id counts, as for all who read predictions."""
        found: dict[str, bytes] = {}
        for query_id, value in self._read(number):
            found.setdefault(query_id, value)
        return found

    def _read(self, number: int) -> Iterator[tuple[str, bytes]]:
        with self._paths[number].open("rb") as file:
            while head := file.read(_HEAD.size):
                name, size = _HEAD.unpack(head)
                yield file.read(name).decode("utf-8", "surrogatepass"), file.read(size)
