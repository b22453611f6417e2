"""A job that can be killed: chunks of rows that are done, and a manifest that says which.

OUT.parts/manifest.json   what the job is, and each chunk that is done: file, first row, rows, counts
OUT.parts/000000.parquet  rows of a chunk, in order

A chunk counts once it stands in the manifest, which is replaced as a whole. What a kill leaves beside it is written
again. So each row of the input has exactly one in the output.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deploy.errors import DeployError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MANIFEST: Final = "manifest.json"
_LOCK: Final = ".lock"
_FORMAT: Final = 1


class DoneChunk(NamedTuple):
    """Rows that are done.

    Attributes:
        name: of the file that holds them; "" = they are elsewhere.
        source: index of the input's file or partition.
        until: place behind its last row there.
        rows: how many.
        counts: of their reasons, "" = none.
    """

    name: str
    source: int
    until: int
    rows: int
    counts: Mapping[str, int]


class Chunks:
    """The chunks of one job.

    Args:
        folder: of the chunks.
        job: what it is: another one does not go on with these.
        pinned: what is kept as it was when the job began, such as the policy's state.
    """

    def __init__(self, folder: Path, job: Mapping[str, Any], pinned: Mapping[str, Any]) -> None:
        self._folder = folder
        self._job = job
        self.pinned = pinned
        self.done: list[DoneChunk] = []
        self.pending: DoneChunk | None = None

    @property
    def rows(self) -> int:
        """How many rows are done."""
        return sum(chunk.rows for chunk in self.done)

    def files(self) -> list[Path]:
        """Return the chunks' files, in order."""
        return [self._folder / chunk.name for chunk in self.done]

    def next_name(self, ending: str) -> Path:
        """Return the file of the next chunk."""
        return self._folder / f"{len(self.done):06d}{ending}"

    def place(self) -> tuple[int, int]:
        """Return the file and the row at which the job goes on."""
        if not self.done:
            return 0, 0
        return self.done[-1].source, self.done[-1].until

    def begin(self, chunk: DoneChunk) -> None:
        """Say that a chunk is about to be done elsewhere: after a kill it is asked there whether it was."""
        self.pending = chunk
        self.write()

    def add(self, chunk: DoneChunk) -> None:
        """Say that a chunk is done."""
        self.pending = None
        self.done.append(chunk)
        self.write()

    def settle(self, *, is_done: bool) -> None:
        """Say whether the chunk that was begun is done."""
        pending, self.pending = self.pending, None
        if pending is not None and is_done:
            self.done.append(pending)

    def write(self) -> None:
        """Write the manifest."""
        document: dict[str, Any] = {
            "format": _FORMAT,
            "job": self._job,
            "pinned": self.pinned,
            "chunks": self.done,
            "pending": self.pending,
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f".{MANIFEST}.part"
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._folder / MANIFEST)

    def clear(self) -> None:
        """Remove the chunks: the output holds their rows."""
        forget(self._folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from the same job; a folder without a job is gone afterwards.

    Raises:
        UsageError: another process is at it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"another process is at this job: {folder} is locked") from error
        try:
            yield
        finally:
            if not (folder / MANIFEST).exists():
                forget(folder)
                (folder / _LOCK).unlink()
                folder.rmdir()


def forget(folder: Path) -> None:
    """Remove the chunks of a job, and its manifest first: what is left then is no job."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.name != _LOCK:
            path.unlink()


def opened(folder: Path, job: Mapping[str, Any]) -> Chunks | None:
    """Return the chunks of a job that was begun; None = there are none.

    Raises:
        UsageError: they are those of another job.
        DeployError: the manifest is damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes())
        begun, chunks = found["job"], [DoneChunk(*chunk) for chunk in found["chunks"]]
        pinned, pending = found["pinned"], found["pending"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeployError(f"{path} is damaged ({error}): remove {folder} to begin anew") from error
    told = json.loads(json.dumps(job))
    if begun != told:
        differs = next((key for key in {*begun, *told} if begun.get(key) != told.get(key)), "job")
        raise UsageError(
            f"{folder} holds the chunks of another job: {differs} was {begun.get(differs)!s:.200}, and is"
            f" {told.get(differs)!s:.200}. Give what was given then to go on, or --restart to begin anew"
        )
    chunked = Chunks(folder, begun, pinned)
    chunked.done = chunks
    chunked.pending = None if pending is None else DoneChunk(*pending)
    return chunked
