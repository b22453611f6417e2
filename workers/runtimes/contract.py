"""What a runtime is: loaded once, then asked for whole batches.

A runtime module (`workers/runtimes/<name>.py`) has one function `load`, as `RuntimeModule` says. The answer for a row
may not depend on the rows beside it: labels equal, scores and values within 1e-5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from workers.errors import OutputError, PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from workers.manifest import Manifest

# A batch that has been validated and stacked: (n, *shape) for tensors, else n strings or n byte strings, or of a table
# n tuples of values, in the order of its columns.
Rows: TypeAlias = "NDArray[np.generic] | Sequence[str] | Sequence[bytes] | Sequence[tuple[object, ...]]"
# The files of a package by name: they have been verified, and a runtime reads no others.
Files: TypeAlias = "Mapping[str, bytes]"
# One answer a row: (n,) integer labels or float64 values, or n string labels.
Answers: TypeAlias = "NDArray[np.generic] | tuple[str, ...]"
# What a trunk gives for n rows: an array or a tensor, which has a length and takes slices and lists of places.
Middle: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Outputs:
    """The answers to one batch, row by row; `scores` is (n, k), one a class, where the model gives scores."""

    answers: Answers
    scores: NDArray[np.generic] | None = None


class Runtime(Protocol):
    """A loaded model.

    It may have two attributes that say where it runs best. `leaves_lock` is true if it computes without Python's lock.
    `waits` is true if it waits for a device most of its time. Without them it counts as keeping the lock.

    It may have a method `prepare(sizes)`. Where the settings allow some sizes of batches only, that is called with
    them, rising, before the first batch.

    It may have a `trunk`, which other models of its process can share (see `trunks`), and then a `head`: a runtime of
    its own that is asked about what the trunk gives. The two give the answers of the whole within 1e-5.
    """

    def predict_batch(self, rows: Rows) -> Outputs:
        """Answer every row of a batch of at least one; any exception means that no row was answered."""
        ...


class TrunkRuntime(Protocol):
    """A loaded trunk.

    Attributes:
        digest: equal ones do for each other.
    """

    digest: str

    def run(self, rows: Rows) -> Middle:
        """Return what the heads are asked about, for each row of a batch of at least one."""
        ...

    def split(self, middle: Middle) -> Sequence[Middle]:
        """Return it row by row; each keeps no more memory than its own."""
        ...

    def joined(self, parts: Sequence[Middle]) -> Middle:
        """Put rows together again."""
        ...


class RuntimeModule(Protocol):
    """What the registry expects of a runtime's module.

    It may have a constant `READS_WHAT_IT_LACKS`. If that is true, a file is read and verified when `load` asks for it.
    Otherwise all files have been before.
    """

    def load(self, manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> Runtime:
        """Load the model from the verified files of a package, by name; it may read no others."""
        ...


def part(files: Files, name: str) -> bytes:
    """Return one file.

    Raises:
        PackageError: the manifest does not list it.
    """
    if name not in files:
        raise PackageError(f"the package lists no {name}: package the model again")
    return files[name]


def labels(raw: object) -> Answers:
    """Bring n labels into the form that travels: int64 (n,), or a tuple of strings.

    Raises:
        OutputError: labels are neither all whole numbers nor all strings.
    """
    array = np.asarray(raw)
    if array.ndim == 1 and array.dtype.kind == "O":
        array = np.asarray(array.tolist())
    if array.ndim == 1 and array.dtype.kind in "iub":
        return array.astype(np.int64)
    if array.ndim == 1 and array.dtype.kind == "U":
        return tuple(array.tolist())
    if array.ndim == 1 and array.dtype.kind == "f" and np.array_equal(array, np.trunc(array)):
        return array.astype(np.int64)  # estimators fitted on 0.0 and 1.0 answer floats
    hint = "; of numbers such as a regressor's the output is `value`" if array.dtype.kind == "f" else ""
    raise OutputError(f"labels must be n whole numbers or n strings, not {array.dtype} of shape {array.shape}{hint}")


def values(raw: object) -> Outputs:
    """Bring n numbers into the form that travels: float64 (n,); (n, 1) is taken as (n,).

    Raises:
        OutputError: not one number for each row.
    """
    array = np.asarray(raw)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iubf":
        raise OutputError(f"values must be n numbers, not {array.dtype} of shape {array.shape}")
    return Outputs(array.astype(np.float64))


def scored(raw: object, classes: tuple[int | str, ...], *, keep: bool = True) -> Outputs:
    """Answer the class of the highest score, the first of equals; `raw` is (n, k) with k classes.

    Args:
        raw: one score a class.
        classes: the label of each column; empty = the column's index.
        keep: give the scores besides the labels.

    Raises:
        OutputError: not one score for each row and class.
    """
    scores = np.asarray(raw)
    if scores.ndim != 2 or scores.dtype.kind not in "iubf" or (classes and scores.shape[1] != len(classes)):
        wanted = f"(n, {len(classes)})" if classes else "(n, k)"
        raise OutputError(f"scores must be numbers of shape {wanted}, not {scores.dtype} of shape {scores.shape}")
    best = scores.argmax(axis=1)
    answers = labels(np.asarray(classes)[best]) if classes else best.astype(np.int64)
    if not keep:
        return Outputs(answers)
    return Outputs(answers, scores.astype(np.float32 if scores.dtype.itemsize <= 4 else np.float64, copy=False))
