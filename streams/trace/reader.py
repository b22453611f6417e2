"""Reads a trace: verified before anything of it is returned, and in order."""

from __future__ import annotations

import hashlib
import heapq
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from fastavro import block_reader

from streams.trace import manifest as manifests
from streams.trace.layout import unpack
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from streams.operators.contract import Record
    from streams.trace.manifest import Manifest, Part

_CHUNK_BYTES: Final = 1 << 20


class Trace:
    """A recorded trace. Reading holds a block of each partition in memory, not more.

    Attributes:
        folder: where it lies.
        manifest: what it holds.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
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
        recorded = self._recorded(topic).parts
        partitions = {part.partition for part in recorded} if partition is None else {partition}
        return _by_time(self._partition(topic, one) for one in sorted(partitions))

    def merged(self, topics: Iterable[str]) -> Iterator[Record]:
        """Yield the records of several topics by timestamp; at the same time the topic that is named first leads."""
        return _by_time([self.records(topic) for topic in topics])

    def _recorded(self, topic: str) -> manifests.RecordedTopic:
        try:
            return self.manifest.topics[topic]
        except KeyError:
            known = ", ".join(self.topics()) or "none"
            raise TraceError(f"{topic} is not in {self.folder}; there are: {known}") from None

    def _partition(self, topic: str, partition: int) -> Iterator[Record]:
        for part in self._recorded(topic).parts:
            if part.partition == partition:
                yield from _read(self.folder, topic, part)


def verify(folder: Path, part: Part) -> None:
    """Compare a part's file with the manifest.

    Raises:
        TraceError: the file is not as the manifest says.
    """
    digest = hashlib.sha256()
    try:
        with (folder / part.file).open("rb") as file:
            for chunk in chunks(file, part.bytes):
                digest.update(chunk)
            missing = part.bytes - file.tell()
    except OSError as error:
        raise TraceError(f"{folder / part.file} cannot be read: {error.strerror}; take another copy") from error
    if missing or digest.hexdigest() != part.sha256:
        fault = f"{missing} bytes are missing" if missing else "its SHA-256 is not the manifest's"
        raise TraceError(f"{folder / part.file} is damaged: {fault}; take another copy of the trace")


def chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the first bytes of a file, as far as there are so many."""
    while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
        yield chunk
        size -= len(chunk)


def _read(folder: Path, topic: str, part: Part) -> Iterator[Record]:
    """Yield a part's records; what lies behind them in the file is not looked at."""
    try:
        with (folder / part.file).open("rb") as file:
            blocks: Iterator[Any] = block_reader(file)  # `bytes_`: what a block holds, inflated
            found = (one for block in blocks for one in unpack(topic, block.bytes_, block.num_records))
            yield from islice(found, part.count)
    except OSError as error:
        raise TraceError(f"{folder / part.file} cannot be read: {error.strerror}; open the trace again") from error


def _by_time(streams: Iterable[Iterator[Record]]) -> Iterator[Record]:
    return heapq.merge(*streams, key=lambda record: record.timestamp_us)
