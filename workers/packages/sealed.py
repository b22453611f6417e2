"""The files of a package. Each is read once, hashed, and then used from memory, so the checked bytes are those used.

Only files that the manifest lists are read, and no link is followed. So the manifest's digest pins all of them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader
    from pathlib import Path

    from workers.manifest import Manifest
    from workers.packages.disk_cache import DiskCache

# A link is refused, and a pipe cannot block the reading.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def sealed(folder: Path, manifest: Manifest, cache: DiskCache | None = None) -> Mapping[str, bytes]:
    """Return the content of every file that the manifest lists; what a cache has of them is not read from the folder.

    Raises:
        PackageError: one is missing, is no plain file of the folder, or is not the one that was packaged.
    """
    return dict(Opened(folder, manifest, cache))


class Opened(Mapping[str, bytes]):
    """The files that the manifest lists, each read and checked when it is asked for."""

    def __init__(self, folder: Path, manifest: Manifest, cache: DiskCache | None = None) -> None:
        self._folder, self._manifest, self._cache = folder, manifest, cache

    def __getitem__(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            PackageError: as `sealed`.
        """
        if name not in self._manifest.files:
            raise KeyError(name)
        digest, cache = self._manifest.files[name], self._cache
        if cache is not None and (kept := cache.get(digest)) is not None:
            return kept
        with opened(self._folder, name) as file:
            content = file.read()
        _check(self._folder, self._manifest, name, hashlib.sha256(content).hexdigest())
        if cache is not None:
            cache.put(digest, content)
        return content

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._manifest.files)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._manifest.files)


def verify(folder: Path, manifest: Manifest) -> None:
    """Check every file that the manifest lists, one after the other, and keep none.

    Raises:
        PackageError: as `sealed`.
    """
    for name in manifest.files:
        with opened(folder, name) as file:
            _check(folder, manifest, name, hashlib.file_digest(file, "sha256").hexdigest())


def contents(folder: Path, names: Iterable[str]) -> Mapping[str, bytes]:
    """Return the content of files without checking digests, for a package that is just being made.

    Raises:
        PackageError: one is missing, or is no plain file of the folder.
    """
    found = {}
    for name in names:
        with opened(folder, name) as file:
            found[name] = file.read()
    return found


def _check(folder: Path, manifest: Manifest, name: str, found: str) -> None:
    if found != manifest.files[name]:
        raise PackageError(
            f"{folder}: {name} is not the file that was packaged (SHA-256 differs): "
            "copy it again, or package the model again if the change was meant"
        )


def opened(folder: Path, name: str) -> BufferedReader:
    """Open a file of a package; a link is not followed.

    Raises:
        PackageError: it is missing, or no plain file.
    """
    try:
        number = os.open(folder / name, _FLAGS)
    except FileNotFoundError as error:
        raise PackageError(f"{folder}: {name} is missing: copy the whole folder again") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise PackageError(
                f"{folder}: {name!r} is not a plain file of the package but a link, which is not followed: copy the"
                " files, or link the whole folder (of a volume of Kubernetes name its folder ..data)"
            ) from error
        raise PackageError(f"{folder}: {name!r} is not a plain file of the package ({error})") from error
    file = os.fdopen(number, "rb")
    if not stat.S_ISREG(os.fstat(number).st_mode):
        file.close()
        raise PackageError(f"{folder}: {name!r} is not a plain file of the package: package the model again")
    return file
