"""Files of packages on a disk of this machine, by their digests: for packages whose folders are mounted from elsewhere.

    load ─▶ a file of that digest is here ─▶ read and checked ─▶ the runtime
                └─ none, or a damaged one ─▶ the package's folder ─▶ checked ─▶ kept here; the longest unused make room

Equal files of several models are here once. Several processes may use one folder at a time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.trace import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class DiskCache(NamedTuple):
    """A folder of files that are named by their digests.

    Attributes:
        folder: that only its owner may write to.
        most_bytes: that all files may take; a larger one is not kept.
    """

    folder: str
    most_bytes: int

    def get(self, digest: str) -> bytes | None:
        """Return the content of this digest, checked; None = it is not here."""
        if not _DIGEST.fullmatch(digest):
            return None
        path = Path(self.folder, digest)
        try:
            with plain.opened(path) as file:
                content = file.read()
            if hashlib.sha256(content).hexdigest() == digest:
                os.utime(path)  # used now
                return content
            _log.warning("%s is damaged: it is read from its package again", path)
            path.unlink()
        except OSError:
            pass  # it is not here, or has just made room
        return None

    def put(self, digest: str, content: bytes) -> None:
        """Keep content that has this digest; what cannot be kept is read from its package the next time, too."""
        if len(content) > self.most_bytes or not _DIGEST.fullmatch(digest):
            return
        try:
            self._make_room(len(content))
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(content)
            Path(file.name).replace(Path(self.folder, digest))
        except OSError as error:
            _log.warning("no file is kept in %s: %s", self.folder, error)

    def _make_room(self, more_bytes: int) -> None:
        """Remove the files that were not used for longest; one that nobody has finished writing is such a file."""
        found = sorted(self._files())
        left = sum(size for _, size, _ in found) + more_bytes - self.most_bytes
        for _, size, path in found:
            if left <= 0:
                return
            path.unlink(missing_ok=True)
            left -= size

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Yield when each file was used last (ns), its size (bytes), and its path."""
        for path in Path(self.folder).iterdir():
            try:
                status = path.stat()
            except OSError:  # another process has removed it
                continue
            if S_ISREG(status.st_mode):  # a folder is none of ours
                yield status.st_mtime_ns, status.st_size, path
