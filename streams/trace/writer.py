"""Writes a trace. What the manifest names is on disk; a recorder that was killed goes on from there."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from schemas import records
from schemas.codec import Codec
from schemas.definitions import CURRENT
from streams.trace import manifest as manifests
from streams.trace.layout import pack, record_of
from streams.trace.manifest import RecordedTopic, TraceError, TraceManifest, file_name
from streams.trace.part import GrowingPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from streams.operators.contract import Record

MIB: Final = 1 << 20
_LOCK: Final = ".lock"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on disk.

    Attributes:
        rotate_bytes: a part that has reached this is complete, and another one begins.
        keep_bytes: the oldest complete parts are deleted beyond this; None = nothing is deleted.
    """

    rotate_bytes: int = 64 * MIB
    keep_bytes: int | None = None

    def rotate_at(self, growing: int) -> int:
        """Return when a part is complete, where this many grow: together they take no more than half the bound."""
        return self.rotate_bytes if self.keep_bytes is None else min(self.rotate_bytes, self.keep_bytes // 2 // growing)


class TraceWriter:
    """Adds records to a trace. One process writes to a folder at a time.

    Args:
        folder: of a trace that is continued, or one that is empty or not there yet.
        about: prefix, version and settings, for a new manifest.
        codec: of the deployment's records.
        limits: on disk.

    Raises:
        TraceError: the folder holds something else, another deployment's trace or a damaged one, or is in use.
    """

    def __init__(
        self, folder: Path, about: TraceManifest, codec: Codec | None = None, limits: Limits | None = None
    ) -> None:
        self._folder = folder
        self._codec = codec or Codec()
        self._limits = limits or Limits()
        self._lock = _locked(folder)
        try:
            self._manifest = _continued(folder, about)
            self._growing = {
                (topic.name, part.partition): GrowingPart(
                    folder / part.file, part.partition, _class(topic.record), part
                )
                for topic in self._manifest.topics.values()
                for part in topic.parts
                if not part.is_complete
            }
            manifests.write(folder, self._manifest)
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise _unusable(folder, error) from error
            raise
        self._next = {
            (topic.name, partition): offset
            for topic in self._manifest.topics.values()
            for partition, offset in topic.next.items()
        }
        self._last_us = {
            (topic.name, partition): time_us
            for topic in self._manifest.topics.values()
            for partition, time_us in topic.last_us.items()
        }
        self._schemas: dict[str, set[str]] = {}

    @property
    def manifest(self) -> TraceManifest:
        """What is on disk, except where the last write has failed."""
        return self._manifest

    @property
    def waiting_bytes(self) -> int:
        """Bytes of records that are not on disk yet, before compression."""
        return sum(part.waiting_bytes for part in tuple(self._growing.values()))

    def next_of(self, place: tuple[str, int]) -> int:
        """Return the offset that is taken next of an expected partition."""
        return self._next[place]

    def last_us_of(self, place: tuple[str, int]) -> int | None:
        """Return the timestamp of the last record that was taken of a partition; None = not known."""
        return self._last_us.get(place)

    def expect(self, topic: str, starts: Mapping[int, int], oldest: Mapping[int, int] | None = None) -> dict[int, int]:
        """Take up a topic that is about to be recorded.

        Args:
            topic: its name without the deployment's prefix.
            starts: of each of its partitions the offset to begin with, where nothing of it has been recorded yet.
            oldest: by partition the first offset that is still there; what was to be recorded before it is missed.

        Returns:
            by partition the offset to begin with, or to go on from.
        """
        record = record_of(topic)
        known = self._manifest.topics.get(topic) or RecordedTopic(topic, 0, record.__name__ if record else None)
        wanted = {**starts, **known.next}
        found = {partition: max(at, (oldest or {}).get(partition, at)) for partition, at in wanted.items()}
        self._manifest = self._manifest.with_topic(
            replace(
                known,
                partitions=max(known.partitions, len(starts)),
                first={**found, **known.first},
                next=found,
                missed=known.missed + sum(found.values()) - sum(wanted.values()),
            )
        )
        self._next |= {(topic, partition): offset for partition, offset in found.items()}
        return found

    def add(self, given: Iterable[Record]) -> int:
        """Take records of expected topics, in the order of offsets; return how many are new."""
        added = 0
        for record in given:
            place = record.topic, record.partition
            if record.offset < self._next[place]:
                continue  # read twice
            kind = _class(self._manifest.topics[record.topic].record)
            packed = pack(record, kind, self._codec)
            if packed.schema:
                self._schemas.setdefault(record.topic, set()).add(packed.schema)
            if place not in self._growing:
                path = self._folder / file_name(*place, record.offset)
                self._growing[place] = GrowingPart(path, record.partition, kind)
            self._growing[place].add(record, packed.data)
            self._next[place], self._last_us[place] = record.offset + 1, record.timestamp_us
            added += 1
        return added

    def write(self) -> None:
        """Bring what waits to disk, begin new parts, delete old ones.

        Raises:
            OSError: the disk takes no more. Nothing is lost by that: write again.
        """
        limit = self._limits.rotate_at(max(1, len(self._growing)))
        for (topic, partition), growing in [*self._growing.items()]:
            if growing.waiting_bytes:
                part = growing.write()
                if part.bytes >= limit:
                    part = replace(part, is_complete=True)
                    del self._growing[topic, partition]
                grown = self._manifest.topics[topic].with_part(
                    part, self._last_us[topic, partition], self._schemas.get(topic, ())
                )
                self._manifest = self._manifest.with_topic(grown)
        keep = self._limits.keep_bytes
        kept = self._manifest if keep is None else self._manifest.trimmed(keep)
        manifests.write(self._folder, kept)
        gone, self._manifest = _files(self._manifest) - _files(kept), kept
        for file in gone:
            (self._folder / file).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the folder to others; what waits is not written any more."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Bring what waits to disk, unless the block has failed, and leave the folder to others."""
        try:
            if error is None:
                self.write()
        finally:
            self.close()


def _class(name: str | None) -> type | None:
    if name is not None and name not in CURRENT:
        raise TraceError(f"the trace holds {name!r:.100}, which is no record of this version; name another folder")
    return None if name is None else getattr(records, name)


def _files(manifest: TraceManifest) -> set[str]:
    return {part.file for topic in manifest.topics.values() for part in topic.parts}


def _locked(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise TraceError(f"{folder} is being recorded to by another process; name another folder") from None
    return descriptor


def _unusable(folder: Path, error: OSError) -> TraceError:
    return TraceError(f"{folder} cannot be recorded to: {error.filename}: {error.strerror}; name another folder")


def _continued(folder: Path, about: TraceManifest) -> TraceManifest:
    """Return the manifest to go on from, that of the folder if it has one."""
    if not (folder / manifests.FILE).exists():
        if any(entry.name != _LOCK for entry in folder.iterdir()):
            raise TraceError(f"{folder} holds something that is no trace; name an empty folder or a new one")
        return about
    known = manifests.read(folder)
    if (known.prefix, known.source) != (about.prefix, about.source):
        theirs = f"the deployment {known.prefix} from {known.source}"
        raise TraceError(f"{folder} holds a trace of {theirs}; name another folder for {about.prefix}")
    return known
