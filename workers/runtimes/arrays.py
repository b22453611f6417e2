"""Arrays of a package in NumPy's `.npz`, bounded before they are inflated.

A megabyte of it can be a gigabyte of zeros. So what is larger than `MOST_INFLATED` is written as it is, and nothing
that says it would be larger is inflated. Zip's other compressions are refused: Python inflates those without a bound.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from workers.errors import PackageError
from workers.runtimes.contract import part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.runtimes.contract import Files

MOST_INFLATED: Final = 256 << 20
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNREADABLE: Final = (ValueError, OSError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)


def write(path: Path, arrays: Mapping[str, object]) -> None:
    """Write arrays or numbers by name; compressed, unless they are too large to be inflated."""
    size = sum(np.asarray(each).nbytes for each in arrays.values())
    save = np.savez_compressed if 2 * size < MOST_INFLATED else np.savez
    save(path, **arrays)  # type: ignore[arg-type] # arrays, not `allow_pickle`


def read(files: Files, name: str, what: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a file.

    Args:
        files: of the package.
        name: of the file.
        what: it holds, for messages.

    Raises:
        PackageError: it is not listed, or holds something else, or too much.
    """
    content = part(files, name)
    try:
        _check(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            found = dict(stored.items())
        if not all(isinstance(each, np.ndarray) for each in found.values()):
            raise ValueError("not all of it are arrays")
    except _UNREADABLE as error:
        raise PackageError(f"{name} holds no {what} ({error}): package the model again") from error
    return found


def _check(content: bytes) -> None:
    """Check that no more comes of a file than may.

    Raises:
        ValueError: it would be too large, or is compressed otherwise.
        BadZipFile: it is none.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
    if any(member.compress_type not in _METHODS for member in members):
        raise ValueError("it is compressed by another method than deflate")
    size = sum(member.file_size for member in members)
    if size > max(MOST_INFLATED, len(content)):
        raise ValueError(f"it would be {size >> 20:,} MiB, more than {MOST_INFLATED >> 20} MiB")
