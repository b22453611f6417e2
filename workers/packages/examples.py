"""The example rows that a package keeps. Whoever loads it uses them to check and time the forms of its model."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib import format as npy

from workers.errors import PackageError, refusing
from workers.packages.variants import EXAMPLES_FILE
from workers.runtimes.contract import part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files


def stored_examples(manifest: Manifest, files: Files) -> NDArray[np.generic]:
    """Return the example rows of a package.

    The header's count of rows reserves no memory: there are as many rows as there are bytes of them.

    Raises:
        PackageError: there are none, or they are not rows of this model.
    """
    with refusing(f"{EXAMPLES_FILE} holds no rows: package the model again"):
        rows = _array(part(files, EXAMPLES_FILE))
    if rows.dtype.name != manifest.input.dtype or rows.shape[1:] != manifest.input.shape or not len(rows):
        raise PackageError(
            f"{EXAMPLES_FILE} holds {rows.dtype}{[*rows.shape]}, where the model takes rows of {manifest.input}: "
            "package the model again"
        )
    return rows.copy()  # writable, as torch requires


def _array(content: bytes) -> NDArray[np.generic]:
    """Read what `np.save` wrote; of objects there are none, as those are a pickle."""
    file = io.BytesIO(content)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("it is of another version of the format")
    shape, is_fortran, dtype = npy.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("it holds objects")
    rows = np.frombuffer(content, dtype=dtype, offset=file.tell())
    return rows.reshape(shape[::-1]).T if is_fortran else rows.reshape(shape)
