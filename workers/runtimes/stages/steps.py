"""The file of one step: a head and its arrays, as NumPy writes them, at offsets where they can be used in place.

Equal steps have equal bytes, and so one digest.
"""

from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.lib import format as npy

from workers.errors import PackageError

if TYPE_CHECKING:
    import mmap
    from collections.abc import Mapping

    from numpy.typing import NDArray

Plain: TypeAlias = "str | int | float | bool | None"
Content: TypeAlias = "bytes | mmap.mmap"
SUFFIX = ".step"
_ALIGNED = 64  # bytes
_HEADER = 256  # an array's own header is shorter: it has one or two dimensions


class FittedStep(NamedTuple):
    """One step as it was fitted.

    Attributes:
        operator: what it does, one of `graph.OPERATORS`.
        options: numbers and words.
        arrays: of numbers, none of them empty.
    """

    operator: str
    options: Mapping[str, Plain]
    arrays: Mapping[str, NDArray[np.generic]]


def packed(step: FittedStep) -> bytes:
    """Return the content of a step's file."""
    head = {"operator": step.operator, "options": step.options, "arrays": [*step.arrays]}
    text = json.dumps(head, sort_keys=True).encode()
    out = io.BytesIO()
    for array in (np.frombuffer(text, np.uint8), *step.arrays.values()):
        npy.write_array(out, array, version=(1, 0), allow_pickle=False)
        out.write(bytes(-out.tell() % _ALIGNED))
    return out.getvalue()


def unpacked(content: Content) -> FittedStep:
    """Read a step's file; its arrays lie in the content.

    Raises:
        PackageError: it is not one.
    """
    try:
        text, at = _array(content, 0)
        head = json.loads(text.tobytes())
        arrays = {}
        for name in head["arrays"]:
            arrays[str(name)], at = _array(content, at)
        return FittedStep(head["operator"], head["options"], arrays)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PackageError(f"a file of the package holds no step ({error}): package the model again") from error


def _array(content: Content, at: int) -> tuple[NDArray[np.generic], int]:
    """Return the array that begins there, and where the next one does."""
    file = io.BytesIO(content[at : at + _HEADER])
    if npy.read_magic(file) != (1, 0):
        raise ValueError("an array is of another version of the format")
    shape, is_fortran, dtype = npy.read_array_header_1_0(file)
    if dtype.kind not in "biuf":
        raise ValueError("an array holds no numbers")
    start, count = at + file.tell(), math.prod(shape)
    array: NDArray[np.generic] = np.frombuffer(content, dtype, count, start)
    end = start + count * dtype.itemsize
    return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape), end + -end % _ALIGNED
