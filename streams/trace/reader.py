"""Reads a trace: verified before anything of it is returned, and in order."""

from __future__ import annotations

import hashlib
import heapq
from operator import attrgetter
from os import SEEK_END
from typing import TYPE_CHECKING, BinaryIO, Final

from schemas.errors import DecodeError
from streams.trace import manifest as manifests
from streams.trace import plain
from streams.trace.container import BLOCK_BYTES, ContainerError, blocks
from streams.trace.layout import unpack
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from streams.operators.contract import Record
    from streams.trace.manifest import Part, TraceManifest

_TIME: Final = attrgetter("timestamp_us")
_CHUNK_BYTES: Final = 1 << 20
_LEAST_BYTES: Final = 1 << 20  # a block of a deployment's usual bounds
_HELD_BYTES: Final = 1 << 30  # of the blocks of all partitions that are read together


class Trace:
    """A recorded trace. Reading holds a block of each partition in memory, not more.

    Attributes:
        folder: where it lies.
        manifest: what it holds.
    """

    def __init__(self, folder: Path, manifest: TraceManifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def open(cls, folder: Path) -> Trace:
        """Read the manifest and verify every file.

        Raises:
            TraceError: there is no trace, or it is damaged.
        """
        trace = cls(folder, manifests.read(folder))
        for topic in trace.manifest.topics.values():
            for part in topic.parts:
                verify(folder, part)
        return trace

    def topics(self) -> tuple[str, ...]:
        """Return the names of the topics, without the deployment's prefix."""
        return tuple(self.manifest.topics)

    def records(self, topic: str, partition: int | None = None) -> Iterator[Record]:
        """Yield the records of a topic: in the order of offsets, and by timestamp across partitions.

        Raises:
            TraceError: the topic is not in the trace, or a file has been damaged or deleted since `open`.
        """
        partitions = self._partitions([topic]) if partition is None else [(topic, partition)]
        return self._by_time(partitions)

    def merged(self, topics: Iterable[str]) -> Iterator[Record]:
        """Yield the records of several topics by timestamp; at the same time the topic that is named first leads."""
        return self._by_time(self._partitions(topics))  # on one level: half the cost

    def _partitions(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        return [
            (topic, partition)
            for topic in topics
            for partition in sorted({part.partition for part in self._recorded(topic).parts})
        ]

    def _by_time(self, partitions: Sequence[tuple[str, int]]) -> Iterator[Record]:
        share_bytes = max(_LEAST_BYTES, _HELD_BYTES // max(1, len(partitions)))
        streams = [self._partition(*one, min(BLOCK_BYTES, share_bytes)) for one in partitions]
        return heapq.merge(*streams, key=_TIME)

    def _recorded(self, topic: str) -> manifests.RecordedTopic:
        try:
            return self.manifest.topics[topic]
        except KeyError:
            known = ", ".join(self.topics()) or "none"
            raise TraceError(f"{topic} is not in {self.folder}; there are: {known}") from None

    def _partition(self, topic: str, partition: int, most_bytes: int) -> Iterator[Record]:
        for part in self._recorded(topic).parts:
            if part.partition == partition:
                yield from _read(self.folder, topic, part, most_bytes)


def verify(folder: Path, part: Part) -> None:
    """Compare a part's file with the manifest.

    Raises:
        TraceError: the file is not as the manifest says.
    """
    path, digest = folder / part.file, hashlib.sha256()
    try:
        with plain.opened(path) as file:
            if (missing := part.bytes - file.seek(0, SEEK_END)) > 0:
                raise _damaged(path, f"{missing} bytes are missing")
            if plain.has_holes(file, part.bytes):
                raise _damaged(path, "some of it was never written")
            file.seek(0)
            for chunk in chunks(file, part.bytes):
                digest.update(chunk)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}; take another copy") from error
    if digest.hexdigest() != part.sha256:
        raise _damaged(path, "its SHA-256 is not the manifest's")


def _damaged(path: Path, fault: str) -> TraceError:
    return TraceError(f"{path} is damaged: {fault}; take another copy of the trace")


def chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the first bytes of a file, as far as there are so many."""
    while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
        yield chunk
        size -= len(chunk)


def _read(folder: Path, topic: str, part: Part, most_bytes: int) -> Iterator[Record]:
    """Yield a part's records; what lies behind them in the file is not looked at."""
    path, count, last = folder / part.file, 0, part.first - 1
    try:
        with plain.opened(path) as file:
            for number, block in blocks(file, part.bytes, most_bytes):
                for record in unpack(topic, block, number):
                    if not (last < record.offset < part.next and record.partition == part.partition):
                        raise _damaged(path, f"offset {record.offset} is out of place")
                    if not part.from_us <= record.timestamp_us <= part.until_us:
                        raise _damaged(path, f"the time of offset {record.offset} is not the manifest's")
                    last = record.offset
                    yield record
                count += number
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}; open the trace again") from error
    except (ContainerError, DecodeError, IndexError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    if count != part.count:
        raise _damaged(path, f"it holds {count} records, not {part.count}")
