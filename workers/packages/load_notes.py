"""What became of loading packages on this machine: kept on disk, so that a package ends two processes here at most.

    is_good ─┬─ yes ─────────────────────────▶ loading ─┬─▶ good
             └─ no ─▶ tried in a process beside ─▶      ├─▶ refused, or stopped: nothing is kept
                                 │                      └─▶ the process ends: its note stays ─┐
                                 └─▶ ends, or hangs ─▶ a death ◀──────────────────────────────┘

Notes go by a package's digest: a mended one is another. A file that is locked is of a load that goes on. The lock ends
with its process, whatever ends that. Without a folder, or where nothing can be written, notes last as long as this
object.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Final

from workers.errors import DeadlyError, PackageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A package that has ended so many processes is not loaded again.
MOST_DEATHS: Final = 2
_LONGEST: Final = 64
_number = count()


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of a package: whether it was loaded here, how many processes it ended since, and how the last."""

    is_good: bool = False
    deaths: int = 0
    why: str = ""


class LoadNotes:
    """The notes of one folder, which many processes may use at a time."""

    def __init__(self, folder: Path | None = None) -> None:
        """Nothing is read or written yet; the folder may be missing."""
        self._folder = folder
        self._known: dict[str, Note] = {}

    def of(self, digest: str) -> Note:
        """Return what is known of a package; a load of it that ended with its process counts by now."""
        self._bury(digest)
        return self._read(digest)

    def require(self, digest: str, version: str) -> Note:
        """Return what is known of a package that may be loaded.

        Raises:
            PackageError: it has ended too many processes.
        """
        note = self.of(digest)
        if note.deaths >= MOST_DEATHS:
            raise PackageError(
                f"it has ended {note.deaths} processes that loaded it, the last {note.why}: it is tried no more here."
                f" Package it anew, or let it be tried again: skysail model retry {version}"
            )
        return note

    @contextmanager
    def loading(self, digest: str) -> Iterator[None]:
        """Note that a package is being loaded, and what becomes of it: also if this process does not outlive it."""
        held, path = self._hold(digest)
        try:
            yield
        except DeadlyError as error:
            self.died(digest, str(error))
            raise
        else:
            self._write(digest, Note(is_good=True))
        finally:
            self._let_go(held, path)

    def died(self, digest: str, why: str) -> None:
        """Note that a package ended a process, or did not end itself."""
        note = self._read(digest)
        self._write(digest, replace(note, deaths=note.deaths + 1, why=why))

    def good(self, digest: str) -> None:
        """Note that a package was loaded, and what ended processes before is over."""
        self._write(digest, Note(is_good=True))

    def forget(self, digest: str) -> None:
        """Forget a package, as somebody has said that it may be tried again."""
        self._bury(digest)
        self._write(digest, Note())

    def _read(self, digest: str) -> Note:
        with suppress(OSError, ValueError, TypeError):
            if self._folder is not None:
                return Note(**json.loads((self._folder / f"{_name(digest)}.json").read_text(encoding="utf-8")))
        return self._known.get(digest, Note())

    def _write(self, digest: str, note: Note) -> None:
        if self._read(digest) == note:
            return
        self._known[digest] = note
        if self._folder is None:
            return
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = self._folder / f"{_name(digest)}.{os.getpid()}.{next(_number)}.new"
            new.write_text(json.dumps(asdict(note)), encoding="utf-8")
            new.replace(self._folder / f"{_name(digest)}.json")

    def _hold(self, digest: str) -> tuple[int | None, Path | None]:
        """Make a file that is locked as long as this process lives."""
        if self._folder is None:
            return None, None
        path = self._folder / f"{_name(digest)}.{os.getpid()}.{next(_number)}.loading"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            held = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            fcntl.flock(held, fcntl.LOCK_EX)
            new.replace(path)  # nobody sees it before it is locked
        except OSError:
            return None, None
        return held, path

    def _let_go(self, held: int | None, path: Path | None) -> None:
        if held is not None and path is not None:
            path.unlink(missing_ok=True)
            os.close(held)

    def _bury(self, digest: str) -> None:
        """Count the loads of a package that ended with their process."""
        for path in [] if self._folder is None else [*self._folder.glob(f"{_name(digest)}.*.loading")]:
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
                path.unlink()  # fails if another process has counted it
                self.died(digest, "without a word while it was loaded")


def _name(digest: str) -> str:
    """Return what files about a package are called, whatever a record says that its digest is."""
    return digest if digest.isalnum() and len(digest) <= _LONGEST else sha256(digest.encode()).hexdigest()
