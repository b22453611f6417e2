"""Opens files in folders that somebody else may have written: plain files alone, and through no link.

A link would lead to another file of whoever opens it; a pipe or a device would hold them up for ever.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from pathlib import Path

_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def opened(path: Path) -> BinaryIO:
    """Open a file to read it.

    Raises:
        OSError: it is not there, or it is no plain file.
    """
    return os.fdopen(_plain(path, os.O_RDONLY), "rb")


def opened_to_write(path: Path) -> BinaryIO:
    """Open a file to read and to append; an empty one is made if there is none, for its user alone.

    Raises:
        OSError: it is no plain file, or it has another name too, by which it is somebody's.
    """
    descriptor = _plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EMLINK, "it has another name outside of this folder", str(path))
    return os.fdopen(descriptor, "a+b")


def content(path: Path, most_bytes: int) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: as `opened`, or it is larger than that.
    """
    with opened(path) as file:
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
    return found


def has_holes(file: BinaryIO, size: int) -> bool:
    """Tell whether some of a file's first bytes were never written: such a file costs nothing, whatever its size."""
    return size > 0 and os.lseek(file.fileno(), 0, os.SEEK_HOLE) < size


def _plain(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | _SAFELY, 0o600)  # it holds what applications say
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file", str(path))
