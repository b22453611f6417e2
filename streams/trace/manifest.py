"""What a trace holds, as a value, and its file: written as a whole or not at all."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import FormatError
from streams.trace import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FILE: Final = "manifest.json"
FORMAT: Final = 1
KAFKA: Final = "kafka"  # the source of what was recorded
_MOST_BYTES: Final = 64 << 20  # of a manifest: that of 10 TiB of parts has no more
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)  # what Kafka takes for a topic's name


class TraceError(FormatError):
    """A folder holds no trace, a damaged one, or another deployment's; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file with consecutive records of one partition.

    Attributes:
        file: its name in the trace's folder.
        partition: of the topic.
        first: offset of its first record.
        next: offset behind its last record.
        count: records.
        from_us: the earliest of their timestamps.
        until_us: the latest one.
        bytes: of the file, that hold these records. Any behind them come from a recorder that was killed.
        sha256: of these bytes, in hexadecimal.
        is_complete: nothing is added to it any more.
    """

    file: str
    partition: int
    first: int
    next: int
    count: int
    from_us: int
    until_us: int
    bytes: int
    sha256: str
    is_complete: bool

    def __post_init__(self) -> None:
        """Refuse what is of another type, as a damaged manifest may hold."""
        counts = (self.partition, self.first, self.next, self.count, self.bytes)
        if not all(type(one) is int for one in (*counts, self.from_us, self.until_us)) or min(counts) < 0:
            raise ValueError(f"{self.file!r} has a number that is none")
        if (type(self.file), type(self.sha256), type(self.is_complete)) != (str, str, bool):
            raise ValueError(f"{self.file!r} has a field of another type")


@dataclass(frozen=True, slots=True)
class RecordedTopic:
    """What is recorded of a topic.

    Attributes:
        name: without the deployment's prefix.
        partitions: how many the topic has.
        record: class of its values; None where they are not known.
        first: by partition the offset where the recording begins. A bound on disk moves it.
        next: by partition the offset behind the last record.
        last_us: by partition the timestamp of the last record, which tells its log from others; older traces have none.
        schemas: under which its values were written, by fingerprint or registry id.
        parts: its files, by partition and offset.
        dropped: records that were deleted to keep the bound on disk.
        missed: offsets that Kafka had deleted before they were recorded.
    """

    name: str
    partitions: int
    record: str | None = None
    first: Mapping[int, int] = field(default_factory=dict)
    next: Mapping[int, int] = field(default_factory=dict)
    schemas: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    dropped: int = 0
    missed: int = 0
    last_us: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no recorder writes: above all a file that is not this topic's, wherever it would lie."""
        if not _TOPIC.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no topic")
        for part in self.parts:
            if part.file != file_name(self.name, part.partition, part.first):
                raise ValueError(f"{part.file!r} is no part of {self.name}")

    def with_part(self, part: Part, last_us: int, schemas: Iterable[str] = ()) -> RecordedTopic:
        """Return the topic with a part that is new or has grown: its last record's time, its values' schemas."""
        parts = {one.file: one for one in self.parts} | {part.file: part}
        return replace(
            self,
            parts=tuple(sorted(parts.values(), key=lambda one: (one.partition, one.first))),
            next={**self.next, part.partition: part.next},
            last_us={**self.last_us, part.partition: last_us},
            schemas=tuple(sorted({*self.schemas, *schemas})),
        )

    def without(self, part: Part) -> RecordedTopic:
        """Return the topic without its oldest part of a partition."""
        return replace(
            self,
            parts=tuple(one for one in self.parts if one is not part),
            first={**self.first, part.partition: part.next},
            dropped=self.dropped + part.count,
        )

    @property
    def count(self) -> int:
        """Records."""
        return sum(part.count for part in self.parts)

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class TraceManifest:
    """What a trace holds.

    Attributes:
        prefix: of the deployment.
        version: of Skysail, that recorded it.
        settings: of the deployment, without secrets.
        topics: by name.
        source: the system that the records come from.
    """

    prefix: str
    version: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    topics: Mapping[str, RecordedTopic] = field(default_factory=dict)
    source: str = KAFKA

    @property
    def count(self) -> int:
        """Records."""
        return sum(topic.count for topic in self.topics.values())

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(topic.bytes for topic in self.topics.values())

    @property
    def from_us(self) -> int | None:
        """The earliest timestamp, in microseconds since the epoch; None without any record."""
        return min((part.from_us for topic in self.topics.values() for part in topic.parts), default=None)

    @property
    def until_us(self) -> int | None:
        """The latest timestamp, in microseconds since the epoch; None without any record."""
        return max((part.until_us for topic in self.topics.values() for part in topic.parts), default=None)

    def trimmed(self, keep_bytes: int) -> TraceManifest:
        """Return a manifest of at most so many bytes: without its oldest complete parts."""
        left = self
        while left.bytes > keep_bytes and (old := _oldest(left)) is not None:
            topic, part = old
            left = left.with_topic(topic.without(part))
        return left

    def with_topic(self, topic: RecordedTopic) -> TraceManifest:
        """Return a manifest in which this topic is new, or replaced."""
        return replace(self, topics={**self.topics, topic.name: topic})


def _oldest(manifest: TraceManifest) -> tuple[RecordedTopic, Part] | None:
    """Return the complete part that ends first, among those that come first in their partitions."""
    firsts: dict[tuple[str, int], tuple[RecordedTopic, Part]] = {}
    for topic in manifest.topics.values():
        for part in topic.parts:
            firsts.setdefault((topic.name, part.partition), (topic, part))
    complete = [pair for pair in firsts.values() if pair[1].is_complete]
    return min(complete, key=lambda pair: pair[1].until_us, default=None)


def write(folder: Path, manifest: TraceManifest) -> None:
    """Write the manifest; after a crash of the machine either the old one is there or this one."""
    data = {"format": FORMAT, **asdict(manifest)}
    new = folder / (FILE + ".new")
    new.unlink(missing_ok=True)  # of a recorder that was killed, or a link to somewhere else
    with new.open("x", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / FILE)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(folder: Path) -> TraceManifest:
    """Read a folder's manifest.

    Raises:
        TraceError: there is none, or it is damaged.
    """
    path = folder / FILE
    try:
        data = json.loads(plain.content(path, _MOST_BYTES))
    except FileNotFoundError:
        if any(folder.glob("*")):
            told = "name a folder that `skysail record` has made, or record one into a new folder"
        else:
            told = f"record one with `skysail record {folder}`"
        raise TraceError(f"{folder} holds no trace (no {FILE}); {told}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise TraceError(f"{path} is damaged: {error}; take another copy of the trace") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TraceError(f"{path} has another format than {FORMAT}; read it with the version that recorded it")
    try:
        topics = {name: _topic(name, one) for name, one in data["topics"].items()}
        prefix, version, settings, source = (data[key] for key in ("prefix", "version", "settings", "source"))
        _check(str, prefix, version, source)
        _check(dict, settings)
        return TraceManifest(prefix, version, settings, topics, source)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path} is damaged: {error!r}; take another copy of the trace") from error


def file_name(topic: str, partition: int, first: int) -> str:
    """Return the name of the part that begins with this offset."""
    return f"{topic}-{partition:04d}-{first:012d}.avro"


def _topic(name: str, data: dict[str, Any]) -> RecordedTopic:
    numbers = {"first": data["first"], "next": data["next"], "last_us": data.get("last_us", {})}
    offsets = {key: {int(partition): at for partition, at in its.items()} for key, its in numbers.items()}
    parts = tuple(Part(**part) for part in data["parts"])
    found = RecordedTopic(**{**data, **offsets, "schemas": tuple(data["schemas"]), "parts": parts})
    _check(str, found.name, *found.schemas, *([] if found.record is None else [found.record]))
    _check(int, found.partitions, found.dropped, found.missed, *found.first.values(), *found.next.values())
    _check(int, *found.last_us.values())
    if found.name != name:
        raise ValueError(f"{found.name!r} stands under the name {name!r}")
    return found


def _check(kind: type, *values: object) -> None:
    for value in values:
        if type(value) is not kind:
            raise ValueError(f"{value!r:.100} is no {kind.__name__}")
